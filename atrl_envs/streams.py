"""Counter-based randomness: every draw is a function of its keys, so nothing depends on order, slot or process.

    noise = uniform(seed, group, member, position)           # float32 in [0, 1), the shape of the keys
    problem = permuted_index(mix(seed, epoch), index, size)  # a shuffle of range(size), evaluated pointwise
    rng = generator(seed, "train", index)                    # numpy generator of one item

Keys are ints or int64 tensors. All arithmetic is on 64-bit integers modulo 2^64, so results are equal bit for bit
on every device, and nothing waits for the device. Neighbouring keys share nothing.
"""

from __future__ import annotations

import hashlib
from typing import Any, overload

import numpy
import torch
from torch import Tensor

# Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (2014): increment and finaliser.
_MASK = (1 << 64) - 1
_INCREMENT = 0x9E3779B97F4A7C15
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_SHUFFLE_ROUNDS = 32


@overload
def mix(*keys: int) -> int: ...
@overload
def mix(*keys: Tensor | int) -> Any: ...
def mix(*keys: Tensor | int) -> Tensor | int:
    """One 64-bit hash of all keys, in order: an int for ints, else an int64 tensor of their broadcast shape."""
    state: Tensor | int = 0
    for key in keys:
        if isinstance(state, int) and isinstance(key, int):
            state = _finalise((state ^ (key & _MASK)) + _INCREMENT)
        else:
            left = _signed(state) if isinstance(state, int) else state
            right = _signed(key & _MASK) if isinstance(key, int) else key
            state = _finalise_tensor(torch.add(left ^ right, _signed(_INCREMENT)))
    return _signed(state) if isinstance(state, int) else state


def uniform(*keys: Tensor | int) -> Tensor:
    """float32 in [0, 1), multiples of 2^-24, of the keys' broadcast shape."""
    bits = torch.as_tensor(mix(*keys), dtype=torch.int64)
    return _shift_right(bits, 40).to(torch.float32) * 2.0**-24


def permuted_index(key: Tensor | int, index: Tensor, size: int) -> Tensor:
    """Where a shuffle of range(size) sends `index` [...] int64; `key` (int or [...]) names the shuffle.

    Swap-or-not (Hoang, Morris, Rogaway, CRYPTO 2012): each round pairs x with (offset - x) mod size and swaps the
    pair on one hashed bit, so that any size is permuted exactly and each index by itself. 32 rounds suffice for a
    shuffle that must look random to a statistic, not to an adversary.
    """
    if size < 1:
        raise ValueError(f"permuted_index wants a size of at least 1, got {size}")
    x = index
    for number in range(_SHUFFLE_ROUNDS):
        round_key = mix(key, number)
        offset = (round_key & (2**62 - 1)) % size
        partner = torch.remainder(offset - x, size)
        swap = _coin(round_key, torch.maximum(x, partner))
        x = torch.where(swap, partner, x)
    return x


def generator(seed: int, split: str, index: int) -> numpy.random.Generator:
    """The numpy generator of item `index` of a split: a function of the three, whatever was drawn before."""
    counter = numpy.random.SeedSequence([seed & _MASK, *split.encode(), 0, index & _MASK])
    return numpy.random.Generator(numpy.random.Philox(counter))


def split_of(prompt: str, test_fraction: float) -> str:
    """ "test" for a share `test_fraction` of all prompts, else "train": a property of the text alone."""
    digest = hashlib.blake2b(prompt.encode(), digest_size=8, person=b"atrl split").digest()
    return "test" if int.from_bytes(digest, "big") < test_fraction * 2.0**64 else "train"


def _finalise(state: int) -> int:
    state &= _MASK
    state = ((state ^ (state >> 30)) * _MULTIPLIERS[0]) & _MASK
    state = ((state ^ (state >> 27)) * _MULTIPLIERS[1]) & _MASK
    return state ^ (state >> 31)


def _finalise_tensor(state: Tensor) -> Tensor:
    state = (state ^ _shift_right(state, 30)) * _signed(_MULTIPLIERS[0])
    state = (state ^ _shift_right(state, 27)) * _signed(_MULTIPLIERS[1])
    return state ^ _shift_right(state, 31)


def _coin(key: Tensor | int, value: Tensor) -> Tensor:
    """A fair bit for each value; half of a finaliser is enough for one bit of a keyed round."""
    state = (value ^ key) * _signed(_MULTIPLIERS[0])
    return (state ^ _shift_right(state, 29)) * _signed(_MULTIPLIERS[1]) < 0


def _shift_right(state: Tensor, bits: int) -> Tensor:
    """Logical shift: torch's keeps the sign, so the sign's copies are masked away."""
    return (state >> bits) & ((1 << (64 - bits)) - 1)


def _signed(state: int) -> int:
    return state - (1 << 64) if state >> 63 else state
