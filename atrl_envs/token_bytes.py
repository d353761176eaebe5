"""The bytes that each token adds to a text, as one tensor: detokenisation becomes an index-select.

    table, lengths = byte_table(tokenizer, size=len(tokenizer))       # [V, max_bytes] uint8, [V] int64
    text = bytes(b for i in ids for b in table[i, : lengths[i]].tolist()).decode(errors="replace")

Joining the bytes of a token sequence gives the tokenizer's decoded text, except that decoders which drop one
space at the very start of a text (SentencePiece, WordPiece) have nothing to drop it from here: that space stays.
Special tokens have no bytes. Added tokens that are not special (`<think>`, runs of spaces) are text, and have.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_BYTE_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_ANCHOR = "a"  # a plain word: what a token adds is what it adds beside this


def byte_table(tokenizer: PreTrainedTokenizerFast, size: int) -> tuple[Tensor, Tensor]:
    """Bytes [size, max_bytes] uint8 (zero-padded) and their number [size] int64, on the CPU.

    Ids that the tokenizer does not know (a model's vocabulary may be padded beyond it) have no bytes.
    """
    special = set(tokenizer.all_special_ids)
    special |= {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    ids = [i for i in sorted(tokenizer.get_vocab().values()) if i < size and i not in special]
    names = [str(token) for token in tokenizer.convert_ids_to_tokens(ids)]
    pieces = _token_bytes(tokenizer, names)
    lengths = torch.zeros(size, dtype=torch.int64)
    lengths[ids] = torch.tensor([len(piece) for piece in pieces], dtype=torch.int64)
    width = max(1, int(lengths.max()))
    packed = b"".join(piece.ljust(width, b"\0") for piece in pieces)
    table = torch.zeros(size, width, dtype=torch.uint8)
    table[ids] = torch.frombuffer(bytearray(packed), dtype=torch.uint8).view(len(ids), width)
    return table, lengths


def tokenizer_parts(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """The tokenizer's own description (model, pre_tokenizer, decoder, ...) as plain Python."""
    return json.loads(tokenizer.backend_tokenizer.to_str())


def part_types(part: dict[str, Any] | None) -> list[str]:
    """Types of a part and, for a `Sequence`, of what it holds, in order: ["Sequence", "Split", "ByteLevel"]."""
    if not part:
        return []
    inner = part.get("pretokenizers") or part.get("decoders") or part.get("normalizers") or []
    return [part["type"], *(name for item in inner for name in part_types(item))]


def _token_bytes(tokenizer: PreTrainedTokenizerFast, names: list[str]) -> list[bytes]:
    decoder = tokenizer_parts(tokenizer).get("decoder")
    kinds = part_types(decoder)
    if "ByteLevel" in kinds:
        alphabet = _byte_level_alphabet()
        return [_byte_level(name, alphabet) for name in names]
    if "ByteFallback" in kinds or "Metaspace" in kinds:
        return [_metaspace(name, fallback="ByteFallback" in kinds) for name in names]
    if "BPEDecoder" in kinds:
        suffix = (decoder or {}).get("suffix", "</w>")
        return [name.replace(suffix, " ").encode() for name in names]
    return _by_difference(tokenizer, names)


def _byte_level(name: str, alphabet: dict[str, int]) -> bytes:
    # A token with a character outside the byte alphabet is an added token, and stands for its own text.
    if all(character in alphabet for character in name):
        return bytes(alphabet[character] for character in name)
    return name.encode()


def _byte_level_alphabet() -> dict[str, int]:
    """The printable stand-in of each byte in byte-level BPE: itself if printable, else 256, 257, ... in order."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    hidden = [byte for byte in range(256) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(256 + index): byte for index, byte in enumerate(hidden)})
    return alphabet


def _metaspace(name: str, fallback: bool) -> bytes:
    byte = _BYTE_FALLBACK.fullmatch(name) if fallback else None
    return bytes([int(byte.group(1), 16)]) if byte else name.replace("\u2581", " ").encode()


def _by_difference(tokenizer: PreTrainedTokenizerFast, names: list[str]) -> list[bytes]:
    """Ask the decoder itself: what does a token add after a word?"""
    decoder = tokenizer.backend_tokenizer.decoder
    if decoder is None:  # `tokenizers` then joins tokens by one space
        return [f" {name}".encode() for name in names]
    alone = len(decoder.decode([_ANCHOR]))
    return [decoder.decode([_ANCHOR, name])[alone:].encode() for name in names]
