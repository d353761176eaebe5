"""The verifier as a tensor program: rows are independent, the host never looks, nothing random is paid."""

from __future__ import annotations

import ast
import importlib
import pickle
import random
import shutil
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import atrl_envs.verify
from atrl_envs.verify import MathVerifier, Verdict, verify_texts
from atrl_envs.verify.extract import STYLES
from atrl_envs.verify.gold import INVALID, encode_gold
from atrl_envs.verify.grammar import answer_machine
from atrl_envs.vocab import Vocab
from tests.envs.verify.on_gpu import assert_never_waits
from tests.envs.verify.slow_reader import value_in
from tests.envs.verify.spellings import PieceVocab, batch, split

CHARACTERS = Vocab.characters()
FAST = settings(max_examples=60, deadline=None)
PEEKING = ("finder", "peek", "remainders")  # modules that ask whether they may look
TEXTS = [
    "42", "\\boxed{1/2} so", "#### 1,234\n", "<answer> 7 </answer>", "", "is 42.", "\\boxed{", "x = -3.50",
    "1 1/2", "<think>3</think><answer>\\frac{1}{2}</answer>", "####", "\\boxed{\\frac12}", "9" * 40,
    f"\\boxed{{{'1' * 30}/{'3' * 29}}}",
]  # fmt: skip
GOLDS = [
    "42",
    "0.5",
    "1234",
    "7",
    "1",
    "42",
    "2",
    "-7/2",
    "3/2",
    "1/2",
    "",
    "1/2",
    "9" * 40,
    f"{'1' * 30}/{'3' * 29}",
]
BITS = [
    *"0123456789", "12", "000", "345", ".", ",", ", ", " ", "-", "−", "+", "/", "\\frac", "{", "}", "{1}",
    "\\text{", " cm", "^2", "%", " percent", "=", "x = ", " \\times ", "10^{", "e", "$", "**", "(", ")",
    " or ", " apples", "m", "\\,", "{,}", ",\\!", "\\boxed{", "\\pm", "^\\circ", "2/3", " 1/2", "２", "\n",
    "²", "n", " million", "!", ":", "####", "<answer>", "</answer>",
]  # fmt: skip


def rows(vocab: Vocab | PieceVocab, texts: list[str]) -> list[list[int]]:
    if isinstance(vocab, Vocab):
        return [vocab.encode(text) for text in texts]
    rng = random.Random(0)
    return [[vocab.ids[piece] for piece in split(text.encode(), rng) if piece in vocab.ids] for text in texts]


def vocabularies() -> list[Vocab | PieceVocab]:
    rng = random.Random(0)
    return [CHARACTERS, PieceVocab([piece for text in TEXTS for piece in split(text.encode(), rng)])]


def judge(
    vocab: Vocab | PieceVocab, style: str, ids: list[list[int]], golds: list[str], width: int = 0
) -> list[int]:
    verifier = MathVerifier(vocab, style)
    tokens, start = batch(ids, vocab.pad_id)
    if width > tokens.shape[1]:
        tokens = torch.nn.functional.pad(tokens, (0, width - tokens.shape[1]), value=vocab.pad_id)
    end = torch.tensor([len(row) for row in ids])
    return verifier(tokens, start, verifier.encode_answers(golds), end=end).tolist()


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("vocab", vocabularies(), ids=["characters", "pieces"])
def test_a_row_does_not_depend_on_its_batch(style: str, vocab: Vocab | PieceVocab) -> None:
    ids = rows(vocab, TEXTS)
    together = judge(vocab, style, ids, GOLDS)
    assert together == [judge(vocab, style, [row], [gold])[0] for row, gold in zip(ids, GOLDS, strict=True)]
    assert together == judge(vocab, style, ids, GOLDS, width=700)
    assert together == judge(vocab, style, ids[::-1], GOLDS[::-1])[::-1]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int16])
def test_nor_on_the_dtype_of_ids(style: str, dtype: torch.dtype) -> None:
    verifier = MathVerifier(CHARACTERS, style)
    tokens, start = batch(rows(CHARACTERS, TEXTS), CHARACTERS.eos_id)
    answers = verifier.encode_answers(GOLDS)
    expected = verifier(tokens, start, answers)
    assert expected.dtype == torch.int8
    assert torch.equal(
        verifier(tokens.to(dtype), start.to(dtype), answers, end=start.to(dtype) + 99), expected
    )


@pytest.mark.parametrize("vocab", vocabularies(), ids=["characters", "pieces"])
def test_span_of_a_response(vocab: Vocab | PieceVocab) -> None:
    """From `start`, to the first end of sequence behind it or to `end`; special tokens have no bytes."""
    one, two, end, pad = *(rows(vocab, ["1"])[0] + rows(vocab, ["2"])[0]), vocab.eos_id, vocab.pad_id
    tokens = torch.tensor(
        [
            [one, two, end, one, one],  # 12
            [one, end, one, two, end],  # prompt with an end of its own, then 12
            [one, two, one, one, one],  # 12 by `end`
            [one, pad, two, end, pad],  # 12 with a token without content inside
            [end, one, two, one, one],  # nothing
        ]
    )
    verifier = MathVerifier(vocab, "plain")
    verdicts = verifier(
        tokens,
        torch.tensor([0, 2, 0, 0, 0]),
        verifier.encode_answers(["12"] * 5),
        end=torch.tensor([5, 5, 2, 5, 5]),
    )
    assert verdicts.tolist() == [Verdict.CORRECT] * 4 + [Verdict.MISSING]


@pytest.mark.parametrize("vocab", vocabularies(), ids=["characters", "pieces"])
def test_special_tokens_inside_a_marker(vocab: Vocab | PieceVocab) -> None:
    ids = [i for row in rows(vocab, list("#### 42")) for i in (*row, vocab.pad_id)]
    assert judge(vocab, "gsm8k_hash", [ids], ["42"]) == [Verdict.CORRECT]


@pytest.mark.parametrize("vocab", vocabularies(), ids=["characters", "pieces"])
@pytest.mark.parametrize("style", STYLES)
def test_any_ids_are_judged(style: str, vocab: Vocab | PieceVocab) -> None:
    generator = torch.Generator().manual_seed(0)
    verifier = MathVerifier(vocab, style)
    tokens = torch.randint(-5, 400, (200, 30), generator=generator)
    start = torch.randint(-2, 33, (200,), generator=generator)
    verdicts = verifier(tokens, start, verifier.encode_answers(["123456789012"] * 200), end=start + 20)
    assert not (verdicts == Verdict.CORRECT).any()
    assert verifier(tokens[:0], start[:0], verifier.encode_answers([])).shape == (0,)
    assert verifier(tokens[:, :0], start.clamp(max=0), verifier.encode_answers(["1"] * 200)).shape == (200,)


def read_value(text: str) -> Fraction | None:
    gold = encode_gold(text, answer_machine())
    if gold.kind == INVALID or abs(gold.exponent) > 1000:
        return None
    size = (
        Fraction(int(gold.digits or "0")) * Fraction(10) ** gold.exponent
        if gold.terminates
        else Fraction(gold.top, gold.bottom)
    )
    return -size if gold.negative else size


@settings(max_examples=1500, deadline=None)
@given(st.lists(st.sampled_from(BITS), min_size=1, max_size=8).map("".join))
def test_what_the_rules_read_has_that_value(text: str) -> None:
    value = read_value(text)
    if value is not None:
        assert value == value_in(text), text


@FAST
@given(
    st.lists(st.lists(st.sampled_from(BITS), max_size=9).map("".join), min_size=1, max_size=20),
    st.integers(0, 99),
)
def test_nothing_is_paid_without_the_value(texts: list[str], seed: int) -> None:
    rng = random.Random(seed)
    golds = [rng.choice(["1", "2", "12", "0", "1/2", "345", "-1", "10", "1000", "3/2", "2/3"]) for _ in texts]
    for style in ("plain", "boxed", "gsm8k_hash", "answer_tag"):
        shown = {
            "plain": "{}",
            "boxed": "\\boxed{{{}}}",
            "gsm8k_hash": "#### {}",
            "answer_tag": "<answer>{}</answer>",
        }[style]
        verdicts = verify_texts([shown.format(text) for text in texts], golds, style=style)
        for text, gold, verdict in zip(texts, golds, verdicts, strict=True):
            if verdict == Verdict.CORRECT and not any(
                mark in text for mark in ("####", "answer>", "boxed", "\n")
            ):
                assert value_in(text) == value_in(gold), (style, text, gold)


@FAST
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=20))
def test_random_bytes(raw: list[bytes]) -> None:
    vocab = PieceVocab()
    ids = [[vocab.ids[bytes([byte])] for byte in row] for row in raw]
    for style in STYLES:
        assert Verdict.CORRECT not in judge(vocab, style, ids, ["31415926535"] * len(ids))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("vocab", vocabularies(), ids=["characters", "pieces"])
def test_without_data(style: str, vocab: Vocab | PieceVocab) -> None:
    """Under FakeTensorMode there are shapes and no values: whatever looked at a value would raise."""
    verifier = MathVerifier(vocab, style)
    answers = verifier.encode_answers(["42", "1/2"])
    with FakeTensorMode(allow_non_fake_inputs=True):
        tokens = torch.zeros(2, 600, dtype=torch.int64)
        start = torch.zeros(2, dtype=torch.int64)
        verdicts = verifier(tokens, start, answers, end=start + 600)
    assert isinstance(verdicts, FakeTensor)
    assert verdicts.shape == (2,)
    assert verdicts.dtype == torch.int8


def example(vocab: Vocab | PieceVocab, style: str) -> tuple[MathVerifier, Tensor, Tensor, TensorDict]:
    verifier = MathVerifier(vocab, style)
    tokens, start = batch(rows(vocab, TEXTS), vocab.eos_id)
    return verifier, tokens, start, verifier.encode_answers(GOLDS)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("vocab", vocabularies(), ids=["characters", "pieces"])
def test_as_one_graph(style: str, vocab: Vocab | PieceVocab) -> None:
    verifier, tokens, start, answers = example(vocab, style)
    torch._dynamo.reset()
    compiled = torch.compile(verifier.__call__, fullgraph=True, backend="eager")
    assert torch.equal(compiled(tokens, start, answers), verifier(tokens, start, answers))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_compiled_to_native_code() -> None:
    verifier, tokens, start, answers = example(CHARACTERS, "plain")
    tokens = tokens[:, :16].contiguous()
    torch._dynamo.reset()
    compiled = torch.compile(verifier.__call__, fullgraph=True)
    assert torch.equal(compiled(tokens, start, answers), verifier(tokens, start, answers))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("style", STYLES)
def test_without_waiting_for_a_gpu(style: str) -> None:
    verifier, tokens, start, answers = example(CHARACTERS, style)
    assert_never_waits(verifier, tokens, start, answers)


def test_the_host_looks_in_one_place_only() -> None:
    """Values are read back in `peek.py`, which declines on accelerators, in what it alone lets be called, and where
    strings are returned.
    """
    free = {"texts.py", "peek.py", "host_patterns.py"}
    for path in Path(atrl_envs.verify.__file__).parent.glob("*.py"):
        names = {
            node.attr
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Attribute)
        }
        if path.name not in free:
            assert not names & {"item", "tolist", "nonzero", "numpy", "cpu"}, path.name


@pytest.mark.parametrize("style", STYLES)
def test_looking_changes_nothing(style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU leaves out what would change nothing; without that, as on an accelerator, verdicts are the same."""
    places = [importlib.import_module(f"atrl_envs.verify.{name}") for name in PEEKING]
    for vocab in vocabularies():
        ids = rows(vocab, [*TEXTS, "\\boxed{" + "1" * 300 + "}", "#### 7" + " " * 90 + "5", "1 " * 80])
        golds = [*GOLDS, "1" * 300, "75", "1"]
        seen = judge(vocab, style, ids, golds, width=600)
        with monkeypatch.context() as patch:
            for place in places:
                patch.setattr(place, "may_look", lambda tensor: False)
            assert judge(vocab, style, ids, golds, width=600) == seen


def test_a_verifier_travels() -> None:
    verifier, tokens, start, answers = example(CHARACTERS, "boxed")
    again = pickle.loads(pickle.dumps(verifier))
    assert torch.equal(again(tokens, start, answers), verifier(tokens, start, answers))
    assert torch.equal(verifier.to("cpu")(tokens, start, answers), verifier(tokens, start, answers))


def test_answers_are_indexed_by_problem() -> None:
    verifier, tokens, start, answers = example(CHARACTERS, "plain")
    order = torch.tensor([3, 0, 7, 7])
    assert torch.equal(
        verifier(tokens[order], start[order], answers[order]), verifier(tokens, start, answers)[order]
    )


def test_shapes_are_checked() -> None:
    verifier, tokens, start, answers = example(CHARACTERS, "plain")
    with pytest.raises(ValueError, match=r"want tokens \[B, S\]"):
        verifier(tokens, start.unsqueeze(1), answers)
