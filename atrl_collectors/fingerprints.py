"""A fingerprint says whether two sets of tensors are the same bytes: a receiver proves what it serves.

fingerprint(model.state_dict())          # -4120937461123098713, on every machine and in every process
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy
import torch

CHUNK_WORDS = 1 << 15  # 256 KiB, so that a chunk and its multipliers stay in the cache
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MULTIPLIERS: list[numpy.ndarray] = []


def fingerprint(tensors: Mapping[str, torch.Tensor]) -> int:
    """A 64-bit digest (as a signed int) of names, dtypes, shapes, order and every byte.

    Each 8-byte word is folded, multiplied by an odd number that depends on its position, folded again and
    summed; chunks and tensors are chained. About 3 GB/s on one core; not meant against an adversary.
    """
    digest = _GOLDEN
    scratch = numpy.empty(CHUNK_WORDS, dtype=numpy.uint64), numpy.empty(CHUNK_WORDS, dtype=numpy.uint64)
    for name, tensor in tensors.items():
        head = f"{name}|{tensor.dtype}|{tuple(tensor.shape)}".encode()
        digest = _chain(digest, int.from_bytes(hashlib.blake2b(head, digest_size=8).digest(), "little"))
        for part in _chunks(_bytes_of(tensor)):
            digest = _chain(digest, _digest(part, *scratch))
    return digest - (1 << 64) if digest >> 63 else digest


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor, on the CPU, [nbytes] uint8; a view where possible."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)


def _chunks(data: torch.Tensor) -> list[numpy.ndarray]:
    array = data.numpy()
    whole = array.size // 8 * 8
    if array.ctypes.data % 8:  # a view into the middle of something
        array = array.copy()
    words = array[:whole].view(numpy.uint64)
    parts = [words[i : i + CHUNK_WORDS] for i in range(0, words.size, CHUNK_WORDS)]
    if whole < array.size:
        rest = numpy.zeros(8, dtype=numpy.uint8)
        rest[: array.size - whole] = array[whole:]
        parts.append(rest.view(numpy.uint64))
    return parts


def _digest(words: numpy.ndarray, product: numpy.ndarray, folded: numpy.ndarray) -> int:
    product, folded = product[: words.size], folded[: words.size]
    numpy.right_shift(words, 32, out=folded)
    numpy.bitwise_xor(words, folded, out=product)
    numpy.multiply(product, _multipliers()[: words.size], out=product)
    numpy.right_shift(product, 29, out=folded)
    numpy.bitwise_xor(product, folded, out=product)
    return int(product.sum(dtype=numpy.uint64))


def _multipliers() -> numpy.ndarray:
    if not _MULTIPLIERS:
        with numpy.errstate(over="ignore"):
            z = numpy.arange(1, CHUNK_WORDS + 1, dtype=numpy.uint64) * numpy.uint64(_GOLDEN)
            z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        _MULTIPLIERS.append((z ^ (z >> numpy.uint64(31))) | numpy.uint64(1))
    return _MULTIPLIERS[0]


def _chain(digest: int, word: int) -> int:
    digest = ((digest ^ word) * 0xFF51AFD7ED558CCD + _GOLDEN) & _MASK
    return digest ^ (digest >> 33)
