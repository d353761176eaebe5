"""Answers judged by their text: equal to a plain reading of each response, whatever the tokens."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from atrl_envs.verify import ExactVerifier, Verdict
from atrl_envs.verify.exact import EXACT_STYLES
from atrl_envs.verify.extract import WINDOW
from atrl_envs.vocab import Vocab
from tests.envs.verify.on_gpu import assert_never_waits
from tests.envs.verify.slow_extraction import answer_in
from tests.envs.verify.spellings import PieceVocab, batch, split

C, W, M, U, G = Verdict.CORRECT, Verdict.WRONG, Verdict.MISSING, Verdict.UNDECIDED, Verdict.INVALID_GOLD
CHARACTERS = Vocab.characters()
FRAMES = {
    "plain": "{}",
    "gsm8k_hash": "it is\n#### {}\nso 7",
    "boxed": "is $\\boxed{{{}}}$ and 3",
    "answer_tag": "<think>a</think><answer>{}</answer>!",
}
# The gold, what is answered, the verdict in any style and, where it differs, with ignore_case.
ANSWERS = [
    ("0x2a", "0x2a", C, C), ("0x2a", " 0x2a\t", C, C), ("0x2a", "0x2A", W, C), ("0x2a", "0x2", W, W),
    ("0x2a", "0x2a0", W, W), ("0x2a", "0 x2a", W, W), ("0x2a", "", M, M), ("0x2a", " \t ", M, M),
    ("3 1 2", "3  1\t2", C, C), ("3 1 2", "3 1 2 ", C, C), ("3 1 2", "312", W, W), ("3 1 2", "3 1", W, W),
    ("[1, 2]", "[1,2]", W, W), (" a \v b\f", "a b", C, C), ("", "a", G, G), (" \t", "", G, G),
    ("Tuesday", "tuesday", W, C), ("Straße", "Straße", C, C), ("Straße", "STRAßE", W, C),
    ("É", "é", W, W), ("a\0b", "a\0b", C, C), ("a\0b", "a b", W, W), ("a", "a\0", W, W), ("a", "\0a", W, W),
    ("a", "a\u00a0", W, W), ("a\u00a0", "a", W, W), ("42", "４２", W, W), ("42", "42.0", W, W),
    ("abc", "x" * 600, W, W), ("abc", "abc" + "x" * 600, W, W), ("abc", "abc" + " " * 600, U, U),
    ("abc", " " * 600 + "abc", U, U), ("y" * 700, "y" * 700, C, C), ("y" * 700, "y" * 699, W, W),
    ("y" * 700, "y" * 699 + "z", W, W), ("y" * 700, "Y" * 700, W, C), ("?", "\ufffd", W, W),
]  # fmt: skip
WHOLE = [
    ("boxed", "\\boxed{a} no: \\boxed{b}", "b", C), ("boxed", "\\boxed{a} no: \\boxed{b}", "a", W),
    ("boxed", "\\boxed{f(\\{1\\})}", "f(\\{1\\})", C), ("boxed", "\\boxed{{a}}", "{a}", C),
    ("boxed", "\\boxed{a}, that is b", "b", W), ("boxed", "\\boxed a so", "a", C), ("boxed", "a", "a", M),
    ("boxed", "\\boxed{a", "a", M), ("boxed", "<think>\\boxed{a}</think> b", "a", M),
    ("boxed", "<think>\\boxed{a}", "a", M), ("boxed", "<!-- \\boxed{a} -->", "a", U),
    ("gsm8k_hash", "#### a\nb", "a", C), ("gsm8k_hash", "#### a\nb", "b", W), ("gsm8k_hash", "####\na", "a", M),
    ("gsm8k_hash", "<think>#### a</think>", "a", M), ("gsm8k_hash", "#### a\n#### b", "a", W),
    ("gsm8k_hash", "#### a #### b", "b", C), ("gsm8k_hash", "#### a\r\n", "a", C),
    ("answer_tag", "<answer>a</answer><answer>b</answer>", "b", C), ("answer_tag", "<answer>a", "a", M),
    ("answer_tag", "<think><answer>a</answer></think>", "a", M), ("answer_tag", "<answer> a\n b </answer>", "a b", C),
    ("plain", "<think>a</think>a", "a", W), ("plain", "a b", "a", W), ("plain", "a\n", "a", C),
]  # fmt: skip


def judge(
    texts: Sequence[str], golds: Sequence[str], style: str, *, ignore_case: bool = False, seed: int = 0
) -> list[int]:
    """Verdicts over random pieces, which must be those over single bytes (and over characters)."""
    rng = random.Random(seed)
    raw = [text.encode("utf-8", "surrogatepass") for text in texts]
    found = []
    for rows in ([split(row, rng) for row in raw], [[bytes([byte]) for byte in row] for row in raw]):
        vocab = PieceVocab([piece for row in rows for piece in row])
        ids = [[*(vocab.ids[piece] for piece in row), vocab.eos_id, vocab.ids[b"a"]] for row in rows]
        tokens, start = batch(ids, vocab.pad_id, [[vocab.ids[b"a"]] * rng.randint(0, 3) for _ in ids])
        verifier = ExactVerifier(vocab, style, ignore_case)
        found.append(verifier(tokens, start, verifier.encode_answers(golds)).tolist())
    plain = [i for i, text in enumerate(texts) if all(c == "\n" or " " <= c <= "~" for c in text)]
    ids = [CHARACTERS.encode(texts[i]) for i in plain]
    tokens, start = batch(ids, CHARACTERS.pad_id)
    verifier = ExactVerifier(CHARACTERS, style, ignore_case)
    answers = verifier.encode_answers([golds[i] for i in plain])
    end = torch.tensor([len(row) for row in ids], dtype=torch.int64)
    assert verifier(tokens, start, answers, end=end).tolist() == [found[0][i] for i in plain]
    assert found[0] == found[1]
    return found[0]


def expected(text: str, gold: str, style: str, ignore_case: bool) -> Verdict:
    """The verdict by the rules, for one response."""

    def normal(raw: bytes) -> bytes:
        joined = b" ".join(raw.split())
        return joined.lower() if ignore_case else joined

    wanted = normal(gold.encode())
    found = answer_in(text.encode(), style)
    if not wanted:
        return G
    if found is None:
        return M
    if found.hidden:
        return U
    limit = max(WINDOW, 2 * len(wanted))
    if len(found.answer) > limit:
        return U if wanted.startswith(normal(found.answer[:limit])) else W
    given_ = normal(found.answer)
    return M if not given_ else C if given_ == wanted else W


@pytest.mark.parametrize("style", EXACT_STYLES)
@pytest.mark.parametrize("ignore_case", [False, True])
def test_answers(style: str, ignore_case: bool) -> None:
    cases = [case for case in ANSWERS if style != "gsm8k_hash" or not set(case[1]) & set("\n\r")]
    texts = [FRAMES[style].format(answer) for _, answer, _, _ in cases]
    verdicts = judge(texts, [gold for gold, _, _, _ in cases], style, ignore_case=ignore_case)
    assert verdicts == [folded if ignore_case else strict for _, _, strict, folded in cases]


@pytest.mark.parametrize(("style", "text", "gold", "verdict"), WHOLE)
def test_whole_texts(style: str, text: str, gold: str, verdict: Verdict) -> None:
    assert judge([text], [gold], style) == [verdict]


BITS = [
    "a", "b", "ab", "B", "é", "\0", " ", "  ", "\n", "\t", "\\boxed{", "\\boxed ", "\\fbox{", "}", "{", "\\", "$",
    "####", "#", "<answer>", "</answer>", "<think>", "</think>", "<!--", "-->", "a b", " " * 300, "a" * 300,
]  # fmt: skip
texts_ = st.lists(st.sampled_from(BITS), max_size=12).map("".join)
golds_ = st.sampled_from(["a", "b", "a b", "ab", "é", "\0", "A", "", " ", "a" * 300, "a" * 600, "a b a b"])


@settings(max_examples=80, deadline=None)
@given(
    rows=st.lists(st.tuples(texts_, golds_), min_size=1, max_size=12),
    ignore_case=st.booleans(),
    seed=st.integers(0, 99),
)
def test_equal_to_the_slow_reading(rows: list[tuple[str, str]], ignore_case: bool, seed: int) -> None:
    texts, golds = [text for text, _ in rows], [gold for _, gold in rows]
    for style in EXACT_STYLES:
        wanted = [expected(text, gold, style, ignore_case) for text, gold in rows]
        assert judge(texts, golds, style, ignore_case=ignore_case, seed=seed) == wanted, style


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="ab \n\té{}\\\0", max_size=12), st.sampled_from(EXACT_STYLES))
def test_a_gold_pays_in_every_style(answer: str, style: str) -> None:
    shown = FRAMES[style].format(answer)
    found = answer_in(shown.encode(), style)
    if found is not None and found.answer == answer.encode() and answer.encode().split():
        assert judge([shown, shown], [answer, answer + "x"], style) == [C, W]


@pytest.mark.parametrize("style", EXACT_STYLES)
def test_a_row_does_not_depend_on_its_batch(style: str) -> None:
    texts = [FRAMES[style].format(answer) for _, answer, _, _ in ANSWERS]
    golds = [gold for gold, _, _, _ in ANSWERS]
    together = judge(texts, golds, style)
    assert together == [judge([text], [gold], style)[0] for text, gold in zip(texts, golds, strict=True)]
    blind = dict(new=lambda tensor: False)  # as on an accelerator
    with patch("atrl_envs.verify.peek.may_look", **blind), patch("atrl_envs.verify.finder.may_look", **blind):
        assert judge(texts, golds, style) == together


def example(style: str) -> tuple[ExactVerifier, torch.Tensor, torch.Tensor, object]:
    vocab = PieceVocab(["#### ", "\\boxed{", "ab"])
    cases = [FRAMES[style].format(answer) for answer in ("a b", "ab", "", "a" * 600)]
    tokens, start = batch(
        [[vocab.ids[bytes([byte])] for byte in case.encode()] for case in cases], vocab.pad_id
    )
    verifier = ExactVerifier(vocab, style, ignore_case=True)
    return verifier, tokens, start, verifier.encode_answers(["A B", "ab", "", "a" * 600])


@pytest.mark.parametrize("style", EXACT_STYLES)
def test_without_data(style: str) -> None:
    verifier, tokens, _, answers = example(style)
    with FakeTensorMode(allow_non_fake_inputs=True):
        verdicts = verifier(
            torch.zeros(tokens.shape, dtype=torch.int64), torch.zeros(4, dtype=torch.int64), answers
        )
    assert isinstance(verdicts, FakeTensor)
    assert (verdicts.shape, verdicts.dtype) == ((4,), torch.int8)


@pytest.mark.parametrize("style", EXACT_STYLES)
def test_as_one_graph(style: str) -> None:
    verifier, tokens, start, answers = example(style)
    torch._dynamo.reset()
    compiled = torch.compile(verifier.__call__, fullgraph=True, backend="eager")
    assert torch.equal(compiled(tokens, start, answers), verifier(tokens, start, answers))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("style", EXACT_STYLES)
def test_without_waiting_for_a_gpu(style: str) -> None:
    verifier, tokens, start, answers = example(style)
    assert_never_waits(verifier, tokens, start, answers)


def test_a_verifier_travels() -> None:
    verifier, tokens, start, answers = example("boxed")
    wanted = verifier(tokens, start, answers)
    assert torch.equal(pickle.loads(pickle.dumps(verifier))(tokens, start, answers), wanted)
    assert torch.equal(verifier.to("cpu")(tokens.int(), start.int(), answers), wanted)
    assert verifier(tokens[:0], start[:0], verifier.encode_answers([])).shape == (0,)
    assert verifier(tokens[:, :0], start, answers).tolist() == [M, M, G, M]


def test_arguments() -> None:
    verifier, tokens, start, answers = example("plain")
    with pytest.raises(ValueError, match=r"want tokens \[B, S\]"):
        verifier(tokens, start.unsqueeze(1), answers)
    with pytest.raises(ValueError, match="judged by MathVerifier"):
        ExactVerifier(CHARACTERS, "last_number")
    with pytest.raises(ValueError, match="none of plain"):
        ExactVerifier(CHARACTERS, "box")
