"""Expressions against numbers and a target: equal to an independent parser on everything, with the same verdict alone
and in a batch."""

from __future__ import annotations

import ast
import operator
import pickle
import random
import re
from collections import Counter
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from atrl_envs.verify import Verdict
from atrl_envs.verify.countdown import WINDOW, CountdownVerifier
from atrl_envs.vocab import Vocab
from tests.envs.verify.on_gpu import assert_never_waits
from tests.envs.verify.spellings import PieceVocab, batch, split

C, W, M, U, G = Verdict.CORRECT, Verdict.WRONG, Verdict.MISSING, Verdict.UNDECIDED, Verdict.INVALID_GOLD
CHARACTERS = Vocab.characters()
BYTES = PieceVocab()
FRAMES = {
    "plain": "{}",
    "gsm8k_hash": "so\n#### {}\n",
    "boxed": "\\boxed{{{}}} is it",
    "answer_tag": "a <answer>{}</answer>",
}
GOLD = "3,4,5,6=44"
FAST = settings(max_examples=100, deadline=None)


def judge(texts: list[str], golds: list[str], style: str = "plain", size: int = 0) -> list[int]:
    verifier = CountdownVerifier(BYTES, style)
    ids = [[BYTES.ids[bytes([byte])] for byte in text.encode()] for text in texts]
    tokens, start = batch([[*row, BYTES.eos_id] for row in ids], BYTES.pad_id)
    tokens = torch.nn.functional.pad(tokens, (0, max(0, size - tokens.shape[1])), value=BYTES.pad_id)
    return verifier(tokens, start, verifier.encode_answers(golds)).tolist()


def oracle(text: str, gold: str) -> Verdict:
    """The same rules by Python's own parser and Fraction."""
    listed, target = gold.split("=")
    if not text.strip(" \t\n\r\v\f"):
        return M
    for sign, plain in (("×", "*"), ("·", "*"), ("÷", "/"), ("−", "-")):
        text = text.replace(sign, plain)
    text, *claims = (part.strip(" \t\n\r\v\f") for part in text.split("="))
    if (
        claims not in ([], [target])
        or re.search(r"[^0-9+*/() \t\n\r\v\f-]", text)
        or re.search(r"\b0\d", text)
    ):
        return W
    used: list[int] = []
    try:
        tree = ast.parse(re.sub(r"[ \t\n\r\v\f]", " ", text).strip(), mode="eval")
        value = _evaluate(tree.body, used)
    except (SyntaxError, ZeroDivisionError, ValueError):
        return W
    available = Counter(int(number) for number in listed.split(","))
    return C if value == int(target) and not Counter(used) - available else W


_OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def _evaluate(node: ast.AST, used: list[int]) -> Fraction:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        used.append(node.value)
        return Fraction(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_evaluate(node.left, used), _evaluate(node.right, used))
    raise ValueError(ast.dump(node))


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("(5+6)*4", C), ("4*(6+5)", C), (" ( 5 + 6 )\n* 4 ", C), ("((5)+((6)))*4", C), ("5*4+6*4", W),
        ("(5+6)×4", C), ("(5+6)·4", C), ("4*(5+6)=44", C), ("(5+6)*4 = 44", C), ("(5+6)*4=45", W),
        ("44=(5+6)*4", W), ("(5+6)*4==44", W), ("(5+6)*4=44=44", W), ("(5+6)*4=4 4", W), ("(5+6)*4=", W),
        ("=44", W), ("(5+6)*4=(44)", W), ("(5+6)*4=40+4", W), ("(5+6)*4=-44", W), ("(5+6)*4=044", W),
        ("44", W), ("4*11", W), ("44/1", W), ("", M), (" \n", M), ("()", W), ("(", W), (")", W), (")(", W),
        ("-4*(-5-6)", W), ("+(5+6)*4", W), ("4*-(5+6)", W), ("4--5", W), ("(5+6)*4-", W), ("*(5+6)*4", W),
        ("(5+6)*4 is it", W), ("so (5+6)*4", W), ("(5+6)*4.", W), ("(5+6)*4)", W), ("((5+6)*4", W),
        ("(5+6)4", W), ("4(5+6)", W), ("(5+6)**4", W), ("4**(5+6)", W), ("4//(5+6)", W), ("(5+6)*4/(3-3)", W),
        ("(5+6)*04", W), ("(5+6)*4.0", W), ("(5+6)*4e0", W), ("(5+6)* 4 4", W), ("(5+6)*4,", W), ("11*4", W),
        ("(5+6)*4+3-3", W), ("(5+6)*(3+4-3)", W), ("0*3+(5+6)*4", W), ("9" * 40, W), ("(5+6)*4" + "0" * 30, W),
        ("5+6*4", W), ("[5+6]*4", W), ("(5+6)\\times4", W), ("\\frac{4}{1}*(5+6)", W), ("５+6", W),
    ],
)  # fmt: skip
def test_one_by_one(text: str, verdict: Verdict) -> None:
    assert judge([text], [GOLD]) == [verdict]
    assert oracle(text, GOLD) == verdict


@pytest.mark.parametrize(
    ("text", "gold", "verdict"),
    [
        ("8/(3-8/3)", "8,3,8,3=24", C),  # exact on the way, though no value there is whole
        ("8/(3-8/3)", "8,3,3=24", W), ("1/3*3", "1,3,3=1", C), ("1-1", "1,1=0", C), ("7-3-2", "2,3,7=2", C),
        ("7-(3-2)", "2,3,7=2", W), ("24/4/2", "2,4,24=3", C), ("24/4*2", "2,4,24=12", C), ("5-7", "5,7=2", W),
        ("3/2", "2,3=1", W), ("5/(2-2)", "2,2,5=0", W), ("5/(3/(2-2))", "2,2,3,5=0", W), ("0/5", "0,5=0", C),
        ("5/0", "0,5=0", W), ("00+5", "0,5=5", W), ("5", "5=5", C), ("(((5)))", "5=5", C), ("5+5", "5=10", W),
        ("12", "1,2=12", W), ("1 2", "12=12", W), ("999999999*999999999-999999999", "7=1", W),
        ("5", "", G), ("5", "5", G), ("5", "5=5=5", G), ("5", "x=5", G), ("5", "5=-5", G), ("", "5=", G),
        ("5", "5,=5", G), ("5", "1234567890=5", G), ("1+1", ",".join("1" * 13) + "=2", G),
    ],
)  # fmt: skip
def test_other_golds(text: str, gold: str, verdict: Verdict) -> None:
    assert judge([text], [gold]) == [verdict]


@st.composite
def expressions(draw: st.DrawFn, highest: int = 12) -> tuple[str, str]:
    """A well-formed expression and a gold that it may fit: mostly its own value and numbers."""
    numbers = draw(st.lists(st.integers(0, highest), min_size=1, max_size=6))
    terms = [str(number) for number in numbers]
    while len(terms) > 1:
        place = draw(st.integers(0, len(terms) - 2))
        sign = draw(st.sampled_from("+-*/" if highest > 99 else "+-*/×÷·−"))
        joined = f"{terms[place]}{sign}{terms[place + 1]}"
        terms[place : place + 2] = [f"({joined})" if draw(st.booleans()) else joined]
    text = "".join(
        draw(st.sampled_from(["", "", "", " ", "  "])) + part for part in re.split(r"(\d+)", terms[0])
    )
    given_numbers = [*numbers, *draw(st.lists(st.integers(0, highest), max_size=2))]
    if draw(st.booleans()) and len(given_numbers) > 1:
        given_numbers.pop(draw(st.integers(0, len(given_numbers) - 1)))
    try:
        plain = text.replace("×", "*").replace("·", "*").replace("÷", "/").replace("−", "-")
        value = _evaluate(ast.parse(plain.strip(), mode="eval").body, [])
    except ZeroDivisionError:
        value = Fraction(-1)
    fits = value.denominator == 1 and 0 <= value < 10**9 and draw(st.integers(0, 3))
    target = int(value) if fits else draw(st.integers(0, 30))
    if draw(st.integers(0, 4)) == 0:
        text += draw(st.sampled_from(["=", " = "])) + str(target)
    return text, f"{','.join(map(str, draw(st.permutations(given_numbers))))}={target}"


@settings(max_examples=150, deadline=None)
@given(st.lists(expressions(), min_size=1, max_size=12))
def test_well_formed_expressions(cases: list[tuple[str, str]]) -> None:
    texts, golds = map(list, zip(*cases, strict=True))
    assert judge(texts, golds) == [oracle(text, gold) for text, gold in cases]


def test_the_cases_hold_both_right_and_wrong() -> None:
    seen: Counter[int] = Counter()

    @settings(max_examples=100, deadline=None, database=None, derandomize=True)
    @given(expressions())
    def count(case: tuple[str, str]) -> None:
        seen[int(oracle(*case))] += 1

    count()
    assert min(seen[C], seen[W]) > 15


@st.composite
def slips(draw: st.DrawFn) -> tuple[str, str]:
    """An expression with a piece too much, too little, or another."""
    text, gold = draw(expressions())
    place = draw(st.integers(0, len(text)))
    piece = draw(st.sampled_from([*"0123456789+-*/() =.,x", "**", "--", ""]))
    return text[:place] + piece + text[place + draw(st.integers(0, 1)) :], gold


@settings(max_examples=150, deadline=None)
@given(st.lists(slips(), min_size=1, max_size=6))
def test_expressions_with_a_slip(cases: list[tuple[str, str]]) -> None:
    texts, golds = map(list, zip(*cases, strict=True))
    assert judge(texts, golds) == [oracle(text, gold) for text, gold in cases]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.text("1234+-*/() =", max_size=12), min_size=1, max_size=20),
    st.sampled_from(["1,2,3,4=24", "2,2=4"]),
)
def test_any_text_of_these_characters(texts: list[str], gold: str) -> None:
    assert judge(texts, [gold] * len(texts)) == [oracle(text, gold) for text in texts]


@FAST
@given(st.lists(expressions(highest=10**9 - 1), min_size=1, max_size=6))
def test_large_numbers_are_never_guessed(cases: list[tuple[str, str]]) -> None:
    texts, golds = map(list, zip(*cases, strict=True))
    for verdict, (text, gold) in zip(judge(texts, golds), cases, strict=True):
        assert verdict == U or verdict == oracle(text, gold)


def test_what_may_overflow_is_undecided() -> None:
    large = "999999999"
    gold = ",".join([large] * 8) + "=0"
    texts = ["-".join([large] * 2), "*".join([large] * 8), f"{large}*{large}*{large}-{large}*{large}*{large}"]
    assert judge(texts, [gold] * 3) == [C, U, U]
    # Nine digits times nine digits wrap around in 64 bits only behind the third factor.
    assert judge([f"{large}*{large}/{large}-{large}"], [gold]) == [U]
    assert judge(["*".join([large] * 9)], [gold]) == [W]  # a number too often


def test_long_expressions() -> None:
    """Up to the window they are read; behind it they are undecided, unless what is seen is wrong already."""
    pairs = (WINDOW - 7) // 2
    golds = [GOLD] * 7
    texts = [
        "(" * pairs + "(5+6)*4" + ")" * pairs,
        "(" * 500 + "(5+6)*4" + ")" * 500,
        " " * 2_000 + "(5+6)*4",
        "(5+6)*4" + " " * 2_000,
        "(5+6)*4 because " + "it is so " * 200,
        "5+" * 400 + "6",
        "0" * 3_000 + "4*(5+6)",
    ]
    assert judge(texts, golds) == [C, U, U, U, W, W, W]


@pytest.mark.parametrize("style", FRAMES)
def test_styles(style: str) -> None:
    frame = {
        "plain": "{}",
        "gsm8k_hash": "so\n#### {}\n",
        "boxed": "\\boxed{{{}}} is it",
        "answer_tag": "a <answer>{}</answer>",
    }
    texts = [frame[style].format(text) for text in ("(5+6)*4", "4*(5+6)=44", "(5+6)*3", "", "(5+6)*4 ok")]
    assert judge(texts, [GOLD] * 5, style) == [C, C, W, M, W]
    assert judge(["", "nothing here"], [GOLD] * 2, style) == ([M, W] if style == "plain" else [M, M])


def test_the_style_of_running_text_is_refused() -> None:
    with pytest.raises(ValueError, match="style 'last_number' does not hold an expression; use one of plain"):
        CountdownVerifier(CHARACTERS, "last_number")
    with pytest.raises(ValueError, match="style 'box'"):
        CountdownVerifier(CHARACTERS, "box")


TEXTS = [
    "(5+6)*4",
    "4*(5+6)=44",
    "8/(3-8/3)",
    "1+",
    "",
    "5/(2-2)",
    "(5+6)*4 so",
    "9" * 70,
    "1+2+3+4+5+6",
    "(" * 300,
]
GOLDS = [GOLD, GOLD, "3,3,8,8=24", "1=1", GOLD, "2,2,5=0", GOLD, GOLD, "1,2,3,4,5,6=21", GOLD]


def test_a_row_does_not_depend_on_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    together = judge(TEXTS, GOLDS)
    assert together == [C, C, C, W, M, W, W, W, C, U]
    assert together == judge(TEXTS[::-1], GOLDS[::-1])[::-1]
    assert together == [judge([text], [gold])[0] for text, gold in zip(TEXTS, GOLDS, strict=True)]
    assert together == judge(TEXTS, GOLDS, size=700)
    monkeypatch.setattr("atrl_envs.verify.peek.may_look", lambda tensor: False)
    assert together == judge(TEXTS, GOLDS)


def test_a_row_does_not_depend_on_its_tokenisation() -> None:
    rng = random.Random(1)
    pieces = [split(text.encode(), rng) for text in TEXTS for _ in range(3)]
    vocab = PieceVocab([piece for row in pieces for piece in row])
    verifier = CountdownVerifier(vocab)
    rows = [[*(vocab.ids[piece] for piece in row), vocab.eos_id, vocab.ids[b"5"]] for row in pieces]
    tokens, start = batch(rows, vocab.pad_id)
    answers = verifier.encode_answers([gold for gold in GOLDS for _ in range(3)])
    assert verifier(tokens, start, answers).tolist() == [v for v in judge(TEXTS, GOLDS) for _ in range(3)]


def test_special_tokens_have_no_bytes() -> None:
    texts = ["(5+6)*4", "12/3", "1+1 2"]
    verifier = CountdownVerifier(BYTES)
    rows = [[i for byte in text.encode() for i in (BYTES.pad_id, BYTES.ids[bytes([byte])])] for text in texts]
    tokens, start = batch([[*row, BYTES.eos_id] for row in rows], BYTES.pad_id)
    assert verifier(tokens, start, verifier.encode_answers([GOLD, "3,12=4", "1,12=13"])).tolist() == [C, C, W]


def example() -> tuple[CountdownVerifier, Tensor, Tensor, object]:
    verifier = CountdownVerifier(CHARACTERS)
    tokens, start = batch([CHARACTERS.encode(text) for text in TEXTS], CHARACTERS.eos_id)
    return verifier, tokens, start, verifier.encode_answers(GOLDS)


@pytest.mark.parametrize("style", FRAMES)
def test_without_data(style: str) -> None:
    """Under FakeTensorMode there are shapes and no values: whatever looked at a value would raise."""
    verifier = CountdownVerifier(CHARACTERS, style)
    answers = verifier.encode_answers([GOLD, "1,2=3"])
    with FakeTensorMode(allow_non_fake_inputs=True):
        tokens = torch.zeros(2, 600, dtype=torch.int64)
        start = torch.zeros(2, dtype=torch.int64)
        verdicts = verifier(tokens, start, answers, end=start + 600)
    assert isinstance(verdicts, FakeTensor)
    assert (verdicts.shape, verdicts.dtype) == ((2,), torch.int8)


def test_as_one_graph() -> None:
    verifier, tokens, start, answers = example()
    torch._dynamo.reset()
    compiled = torch.compile(verifier.__call__, fullgraph=True, backend="eager")
    assert torch.equal(compiled(tokens, start, answers), verifier(tokens, start, answers))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_without_waiting_for_a_gpu() -> None:
    verifier, tokens, start, answers = example()
    assert_never_waits(verifier, tokens, start, answers)


def test_a_verifier_travels() -> None:
    verifier, tokens, start, answers = example()
    expected = verifier(tokens, start, answers)
    again = pickle.loads(pickle.dumps(verifier))
    assert torch.equal(again(tokens, start, answers), expected)
    assert torch.equal(verifier.to("cpu")(tokens, start, answers), expected)
    order = torch.tensor([3, 0, 7, 7])
    assert torch.equal(verifier(tokens[order], start[order], answers[order]), expected[order])  # type: ignore[index]


def test_no_rows_and_wrong_shapes() -> None:
    verifier, tokens, start, answers = example()
    assert verifier(tokens[:0], start[:0], answers[:0]).shape == (0,)  # type: ignore[index]
    assert verifier(tokens[:, :0], start, answers).tolist() == [M] * len(TEXTS)
    with pytest.raises(ValueError, match=r"want tokens \[B, S\]"):
        verifier(tokens, start.unsqueeze(1), answers)
