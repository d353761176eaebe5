"""Vocabularies: exact round trips, errors that name the character, and the bytes of every token."""

from __future__ import annotations

import pickle
import string
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from atrl_envs import SpellingError, Vocab
from tests.envs import tokenizers_built as built

PRINTABLE = "\n" + "".join(map(chr, range(32, 127)))
CHARACTERS = Vocab.characters()
FAMILIES = [built.byte_level, built.sentence_piece, built.word_piece, built.without_decoder]


def text_of(vocab: Vocab, ids: list[int]) -> str:
    table, lengths = vocab.byte_table
    return b"".join(bytes(table[i, : lengths[i]].tolist()) for i in ids).decode(errors="replace")


@given(st.text(alphabet=PRINTABLE))
@settings(max_examples=200, deadline=None)
def test_characters_round_trip(text: str) -> None:
    ids = CHARACTERS.encode(text)
    assert len(ids) == len(text)
    assert CHARACTERS.decode(ids) == text
    assert CHARACTERS.decode(torch.tensor(ids, dtype=torch.int64)) == text
    assert text_of(CHARACTERS, ids) == text


def test_characters_have_what_an_env_needs() -> None:
    assert CHARACTERS.size == len(PRINTABLE) + 3
    assert isinstance(CHARACTERS.tokenizer, PreTrainedTokenizerFast)
    assert (CHARACTERS.pad_id, CHARACTERS.eos_id) == (0, 1)
    assert CHARACTERS.tokenizer.eos_token_id == CHARACTERS.eos_id
    table, lengths = CHARACTERS.byte_table
    assert table.dtype == torch.uint8
    assert table.shape == (CHARACTERS.size, 1)
    assert lengths.tolist() == [0, 0, 0] + [1] * 96
    assert CHARACTERS.decode([0, 5, 1, 2]) == CHARACTERS.decode([5])


def test_special_tokens_written_out_are_only_characters() -> None:
    text = "<eos>, <pad>, <unk>"
    ids = CHARACTERS.encode(text)
    assert len(ids) == len(text)
    assert not {CHARACTERS.eos_id, CHARACTERS.pad_id} & set(ids)
    assert CHARACTERS.decode(ids) == text


def test_saved_loaded_pickled_and_equal(tmp_path: Path) -> None:
    CHARACTERS.tokenizer.save_pretrained(tmp_path)
    loaded = Vocab.from_tokenizer(AutoTokenizer.from_pretrained(tmp_path))
    pickled = pickle.loads(pickle.dumps(CHARACTERS))
    text = "  a  b \n\n <eos> it 's ."
    for other in (loaded, pickled):
        assert other == CHARACTERS
        assert hash(other) == hash(CHARACTERS)
        assert other.encode(text) == CHARACTERS.encode(text)
        assert other.decode(other.encode(text)) == text
    assert Vocab.from_tokenizer(built.byte_level()) != CHARACTERS
    assert CHARACTERS != "characters"


@pytest.mark.parametrize(("text", "position"), [("½", 0), ("ab½c", 2), ("tab\t", 3), ("\n−1", 1), ("½½", 0)])
def test_unknown_character_is_named(text: str, position: int) -> None:
    with pytest.raises(ValueError, match=f"at position {position} ") as caught:
        CHARACTERS.encode_batch(["fine", text])
    error = caught.value
    assert isinstance(error, SpellingError)
    assert (error.text, error.position, error.character) == (text, position, text[position])
    assert pickle.loads(pickle.dumps(error)).position == position


def test_unknown_character_in_other_families() -> None:
    with pytest.raises(SpellingError, match="'é'.*position 7"):
        Vocab.from_tokenizer(built.word_piece()).encode("12 the é")
    with pytest.raises(SpellingError, match="'3'.*position 2"):
        Vocab.from_tokenizer(built.dropping()).encode("1+3")
    assert Vocab.from_tokenizer(built.dropping()).encode("1+2") == [1, 3, 2]
    for build in (built.byte_level, built.sentence_piece):
        vocab = Vocab.from_tokenizer(build())
        assert vocab.decode(vocab.encode("3 ½ 日本")).strip() == "3 ½ 日本"


@pytest.mark.parametrize("build", FAMILIES)
def test_joined_bytes_are_the_decoded_text(build: object) -> None:
    vocab = Vocab.from_tokenizer(build())  # type: ignore[operator]
    known = {built.word_piece: ["the sum is 12. is 34?", "46 , 4s"], built.without_decoder: ["a b b a"]}
    for text in known.get(build, [*built.CORPUS, " two  spaces", "   three", "日本 ½\n\n", "a"]):  # type: ignore[call-overload]
        ids = vocab.encode(text)
        text_from_bytes = text_of(vocab, ids)
        assert vocab.decode(ids) in (text_from_bytes, text_from_bytes.removeprefix(" "))


@given(st.lists(st.integers(0, 10**6), max_size=12))
@settings(max_examples=100, deadline=None)
def test_any_ids_decode_to_their_bytes(numbers: list[int]) -> None:
    vocab = BYTE_LEVEL
    ids = [number % vocab.size for number in numbers]
    assert text_of(vocab, ids) == vocab.decode(ids)


BYTE_LEVEL = Vocab.from_tokenizer(built.byte_level())


def test_added_tokens_have_bytes_unless_special() -> None:
    think = BYTE_LEVEL.tokenizer.convert_tokens_to_ids("<think>")
    spaces = BYTE_LEVEL.tokenizer.convert_tokens_to_ids("   ")
    assert text_of(BYTE_LEVEL, [think]) == "<think>"
    assert text_of(BYTE_LEVEL, [spaces]) == "   "
    assert text_of(BYTE_LEVEL, [BYTE_LEVEL.eos_id, BYTE_LEVEL.pad_id]) == ""


def test_byte_fallback_tokens_are_single_bytes() -> None:
    vocab = Vocab.from_tokenizer(built.sentence_piece())
    ids = [vocab.tokenizer.convert_tokens_to_ids(f"<0x{byte:02X}>") for byte in "½".encode()]
    table, lengths = vocab.byte_table
    assert [table[i, 0].item() for i in ids] == list("½".encode())
    assert [int(lengths[i]) for i in ids] == [1, 1]


def test_padding_falls_back_to_the_end_token_and_sizes_are_checked() -> None:
    vocab = Vocab.from_tokenizer(built.sentence_piece())
    assert vocab.pad_id == vocab.eos_id
    wider = Vocab.from_tokenizer(built.sentence_piece(), size=vocab.size + 50)
    assert wider.size == vocab.size + 50
    assert wider.byte_table[1][-50:].tolist() == [0] * 50
    with pytest.raises(ValueError, match="smaller than the tokenizer"):
        Vocab.from_tokenizer(built.sentence_piece(), size=10)


def test_unusable_tokenizers_are_refused() -> None:
    endless = built.byte_level()
    endless.eos_token = None
    with pytest.raises(ValueError, match="no end-of-sequence token"):
        Vocab.from_tokenizer(endless)
    with pytest.raises(TypeError, match="fast tokenizer"):
        Vocab.from_tokenizer(string)
