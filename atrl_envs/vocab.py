"""A vocabulary: text to token ids and back, with the two ids an env needs (padding, end of sequence).

    vocab = Vocab.characters()                    # printable ASCII and newline, one token a character
    vocab = Vocab.from_tokenizer(hf_tokenizer)    # any fast tokenizer of transformers
    vocab.decode(vocab.encode("12+34="))          # "12+34="

`vocab.tokenizer` is a real transformers tokenizer, so `save_pretrained` and inference engines understand it.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from atrl_envs.token_bytes import byte_table, part_types, tokenizer_parts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


class SpellingError(ValueError):
    """A text that the vocabulary cannot spell: `text`, and the `character` at `position` (0-based)."""

    def __init__(self, text: str, position: int) -> None:
        self.text, self.position, self.character = text, position, text[position]
        name = unicodedata.name(self.character, f"U+{ord(self.character):04X}")
        super().__init__(
            f"the vocabulary cannot spell {self.character!r} ({name}) at position {position} of {_shorten(text)!r}; "
            "replace the character or use a tokenizer that knows it (Vocab.from_tokenizer)"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.text, self.position)


class Vocab:
    """Token ids of a text, and back. Equal when tokenizer, ids and size are equal; picklable.

    Attributes: `tokenizer` (PreTrainedTokenizerFast), `pad_id`, `eos_id` (the same id where a tokenizer has no
    padding token), `size` (number of ids; a model's output must not be narrower).
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, *, pad_id: int, eos_id: int, size: int) -> None:
        self.tokenizer = tokenizer
        self.pad_id, self.eos_id, self.size = int(pad_id), int(eos_id), int(size)

    @classmethod
    def characters(cls) -> Vocab:
        """Printable ASCII and newline, one token each: 96 characters, then `<pad>` 0, `<eos>` 1, `<unk>` 2."""
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast

        spelled = ["<pad>", "<eos>", "<unk>", "\n", *map(chr, range(32, 127))]
        ids = {token: index for index, token in enumerate(spelled)}
        backend = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
        backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
        backend.decoder = decoders.Fuse()
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=backend,
            pad_token="<pad>",
            eos_token="<eos>",
            unk_token="<unk>",
            clean_up_tokenization_spaces=False,
            split_special_tokens=True,  # a text that contains "<eos>" is five characters, not an end
        )
        return cls(tokenizer, pad_id=ids["<pad>"], eos_id=ids["<eos>"], size=len(spelled))

    @classmethod
    def from_tokenizer(cls, tokenizer: Any, size: int | None = None) -> Vocab:
        """The vocabulary of a fast transformers tokenizer; EOS serves as padding where it has no padding token.

        size: number of ids, if the model's embedding is wider than the tokenizer. Special tokens written out in
        a text are read as the tokenizer reads them (see its `split_special_tokens`).
        """
        if not getattr(tokenizer, "is_fast", False):
            raise TypeError(
                f"Vocab.from_tokenizer wants a fast tokenizer (PreTrainedTokenizerFast), got "
                f"{type(tokenizer).__name__}; load it with AutoTokenizer.from_pretrained(..., use_fast=True)"
            )
        eos_id, pad_id = tokenizer.eos_token_id, tokenizer.pad_token_id
        if eos_id is None:
            raise ValueError(
                "the tokenizer has no end-of-sequence token, so no response could end; set tokenizer.eos_token"
            )
        known = 1 + max(tokenizer.get_vocab().values())
        if size is not None and size < known:
            raise ValueError(f"size={size} is smaller than the tokenizer, which uses ids up to {known - 1}")
        return cls(tokenizer, pad_id=eos_id if pad_id is None else pad_id, eos_id=eos_id, size=size or known)

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, without adding special tokens. SpellingError where a character has no token."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text; much faster than one call a text. SpellingError as in `encode`."""
        if not texts:
            return []
        backend = self.tokenizer.backend_tokenizer
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = self.tokenizer.split_special_tokens
        rows = [row.ids for row in backend.encode_batch_fast(list(texts), add_special_tokens=False)]
        unknown, may_drop = self._gaps
        for text, ids in zip(texts, rows, strict=True):
            if may_drop or unknown in ids:
                self._check_spelling(text)
        return rows

    def decode(self, ids: Iterable[int] | Tensor) -> str:
        """Text of the ids; special tokens are not content and are left out."""
        plain = ids.tolist() if isinstance(ids, Tensor) else [int(i) for i in ids]
        return str(self.tokenizer.decode(plain, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    @functools.cached_property
    def byte_table(self) -> tuple[Tensor, Tensor]:
        """Bytes of every token, [size, max_bytes] uint8 and their number [size] int64; 0 for special tokens."""
        return byte_table(self.tokenizer, self.size)

    @functools.cached_property
    def _gaps(self) -> tuple[int | None, bool]:
        """The id that stands for 'unknown', and whether unknown characters vanish without a trace."""
        parts = tokenizer_parts(self.tokenizer)
        model = parts["model"]
        unknown = model.get("unk_id")
        if unknown is None and model.get("unk_token") is not None:
            unknown = self.tokenizer.convert_tokens_to_ids(model["unk_token"])
        complete = bool(model.get("byte_fallback")) or "ByteLevel" in part_types(parts.get("pre_tokenizer"))
        return unknown, unknown is None and not complete

    def _check_spelling(self, text: str) -> None:
        """Raise for the first character that has no token of its own: an unknown token, or none at all."""
        encoding = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        unknown, may_drop = self._gaps
        covered = [character.isspace() or not may_drop for character in text]
        lost: list[tuple[int, int]] = []
        for token, (start, end) in zip(encoding["input_ids"], encoding["offset_mapping"], strict=True):
            if token == unknown:
                lost.append((start, end))
            covered[start:end] = [True] * (end - start)
        starts = [self._first_unknown(text, start, end) for start, end in lost]
        starts += [index for index, known in enumerate(covered) if not known]
        if starts:
            raise SpellingError(text, min(starts))

    def _first_unknown(self, text: str, start: int, end: int) -> int:
        """The culprit within a span that became one unknown token: the first character unknown by itself."""
        for position in range(start, end):
            alone = self.tokenizer(text[position], add_special_tokens=False)["input_ids"]
            if self._gaps[0] in alone:
                return position
        return start

    @functools.cached_property
    def _identity(self) -> tuple[Any, ...]:
        return self.tokenizer.backend_tokenizer.to_str(), self.pad_id, self.eos_id, self.size

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return self._identity == other._identity if isinstance(other, Vocab) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._identity)

    def __getstate__(self) -> dict[str, Any]:
        # What can be computed again is not sent to workers.
        return {name: self.__dict__[name] for name in ("tokenizer", "pad_id", "eos_id", "size")}

    def __repr__(self) -> str:
        return f"Vocab(size={self.size}, pad_id={self.pad_id}, eos_id={self.eos_id})"


def _shorten(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
