"""The host's judge: kinds of answers, where they stand, how it is reached, and what it costs to be attacked."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from atrl_envs.host import HostPool
from atrl_envs.verify import MathVerifier, Verdict, verify_texts
from atrl_envs.verify.fallback import decide
from benchmarks import agreement
from tests.envs.host.processes import zombies
from tests.envs.verify.kinds import GROUPS, C, G, M, U, W
from tests.envs.verify.spellings import PieceVocab, batch, dressed, spellings

DECIDE = "atrl_envs.verify.fallback:decide"
MARKERS = {
    "answer_tag": "so <answer>{}</answer>",
    "boxed": "so \\boxed{{{}}}.",
    "gsm8k_hash": "so\n#### {}",
    "plain": "{}",
}


@pytest.fixture(scope="module")
def pool() -> Iterator[HostPool]:
    with HostPool() as made:
        yield made
    assert zombies() == []


@pytest.mark.parametrize("group", GROUPS)
def test_kinds(group: str) -> None:
    found = [
        (a, g, Verdict(decide(f"so <answer>{a}</answer>", g, "answer_tag")).name) for a, g, _ in GROUPS[group]
    ]
    assert found == [(answer, gold, verdict.name) for answer, gold, verdict in GROUPS[group]]


PLACES = [
    ("boxed", r"\boxed{\pi} or \boxed{2\pi}", r"\pi", W), ("boxed", r"\boxed{2\pi} \boxed{\pi", r"2\pi", C),
    ("boxed", r"\fbox{\pi}", r"\pi", C), ("boxed", r"\boxed \pi so", r"\pi", C),
    ("boxed", r"\boxed {\pi}", r"\pi", C), ("boxed", r"<think>\boxed{\pi}</think> done", r"\pi", M),
    ("boxed", r"\boxed{\pi}<think>\boxed{1}", r"\pi", C), ("boxed", r"<think>\boxed{\pi}<think>", r"\pi", M),
    ("boxed", r"<!-- \boxed{\pi} -->", r"\pi", M), ("boxed", r"\boxed{1<!--}--> \boxed{\pi}", r"\pi", C),
    ("boxed", r"\boxed{\{\pi\}}", r"\{\pi\}", C), ("boxed", "{" * 100_000, r"\pi", M),
    ("boxed", r"\boxed{\pi}" + "}" * 1000, r"\pi", C), ("gsm8k_hash", "#### \\pi\r\n7", r"\pi", C),
    ("gsm8k_hash", "####\n\\pi", r"\pi", M), ("gsm8k_hash", "### \\pi", r"\pi", M),
    ("answer_tag", r"<answer>1</answer><answer>\pi</answer><answer>", r"\pi", C),
    ("answer_tag", r"<answer>\pi", r"\pi", M), ("answer_tag", r"\pi</answer>", r"\pi", M),
    ("plain", "x+1", "1+x", C), ("plain", " \n", "1", M), ("last_number", "It is 10\\pi.", r"10\pi", C),
    ("last_number", "It is 10\\pi.", "10", W), ("last_number", "no figures", "1", M),
    ("last_number", "It is 42 or 43", "43", W), ("last_number", "at 7:32", "32", W),
    ("last_number", "at 7:32", "7:32", C), ("last_number", "It is $\\frac{1}{2}$, I think", "0.5", C),
    ("last_number", "of 3 million", "3", W), ("last_number", "B2B", "2", M),
    ("last_number", "first 3, then 10^{3}", "1000", C), ("last_number", "20 000", "20000", C),
    ("last_number", "5 ± 3", "3", W), ("last_number", "is minus 42", "42", W), ("last_number", "negative 42", "-42", C),
    ("last_number", r"is -\(42\)", "42", W), ("last_number", r"is -\(42\)", "-42", C),
    ("last_number", "- $42$", "42", C), ("last_number", "x-$42$", "42", W), ("last_number", "is - $42$", "-42", W),
    ("last_number", "is ln 42", "42", W), ("last_number", "is ln 42", r"\ln 42", C),
    ("plain", "the answer is 42", "42", W),
]  # fmt: skip


@pytest.mark.parametrize(("style", "completion", "gold", "verdict"), PLACES)
def test_places(style: str, completion: str, gold: str, verdict: Verdict) -> None:
    assert Verdict(decide(completion, gold, style)) == verdict


def test_what_is_out_of_sight_is_undecided() -> None:
    far = "x" * (1 << 17)
    assert decide(f"<think>{far} \\boxed{{\\pi}}", r"\pi", "boxed") == U
    assert decide(f"<think>{far}</think> \\boxed{{\\pi}}", r"\pi", "boxed") == C
    assert decide(f"{far} 42", "42", "plain") == U
    with pytest.raises(ValueError, match="unknown style"):
        decide("1", "1", "box")


RATIONALS = st.fractions(max_denominator=50).filter(lambda value: abs(value) < 10**6)


@settings(max_examples=60, deadline=None)
@given(value=RATIONALS, other=RATIONALS, seed=st.integers(0, 2**32), style=st.sampled_from(sorted(MARKERS)))
def test_numbers_in_every_spelling(value: Fraction, other: Fraction, seed: int, style: str) -> None:
    rng = random.Random(seed)
    written = rng.choice(spellings(value))
    written = written if style == "plain" else dressed(written, rng).removeprefix("6*7 = ")
    assert Verdict(decide(MARKERS[style].format(written), str(value), style)) == C, written
    if other != value:
        assert Verdict(decide(MARKERS[style].format(written), str(other), style)) == W, written


PIECES = r"""
\frac \sqrt \pi \cdot { } ( ) [ ] 1 2 10 0.5 x y + - * / ^ _ = < > , \pm \infty \text{cm} and or \leq \in \cup \{ \} | !
\sin \log \binom \sum_{i=1}^{3} \begin{pmatrix} \end{pmatrix} & \\ : \overline{3} % ^\circ e i word \boxed{ . $ 1,000
""".split()
SOUP = st.lists(st.sampled_from(PIECES), max_size=9).map("".join)
GOLDS = st.one_of(st.sampled_from(["5", "1/2", "x+1", "(1,2)"]), SOUP)


@settings(max_examples=150, deadline=None)
@given(
    answer=st.one_of(SOUP, st.text(max_size=20)),
    gold=st.one_of(st.sampled_from(["5", "1/2", "x+1", "(1,2)"]), SOUP),
)
def test_nothing_is_raised_and_the_gold_decides_on_itself(answer: str, gold: str) -> None:
    verdict = decide(f"<answer>{answer}</answer>", gold, "answer_tag")
    assert verdict in list(Verdict)
    invalid = decide("<answer>1</answer>", gold, "answer_tag") == G
    assert (verdict == G) == invalid
    if not invalid and verdict != M and gold.strip():
        assert decide(f"<answer>{gold}</answer>", gold, "answer_tag") in (C, U, M)


def test_the_handed_cases() -> None:
    alone, both = agreement.rows(["tensor program", "tensor program and fallback"])
    assert both["accuracy"] >= 0.97 and both["false_positives"] <= 2 and both["numeric_false_positives"] == 0
    assert alone["false_positives"] == 0 and alone["numeric_only"] >= 0.99 and both["cases"] == 250


def test_the_table_counts_what_it_says() -> None:
    some = [
        dict(id="a", correct=True, needs="integer"),
        dict(id="b", correct=False, needs="integer"),
        dict(id="c", correct=False, needs="latex"),
        dict(id="d", correct=True, needs="text"),
    ]
    row = agreement.row("x", some, [True, True, False, None])
    assert (
        row["accuracy"] == row["numeric_only"] == row["integer"] == 0.5
        and row["latex"] == 1.0
        and row["text"] == 0.0
    )
    assert (
        row["false_negatives"],
        row["false_positives"],
        row["numeric_false_positives"],
        row["timeouts"],
    ) == (1, 1, 1, 1)


def test_verify_texts_asks_the_host(pool: HostPool) -> None:
    boxed = [r"\boxed{\pi+\pi}", r"\boxed{1,2}", r"\boxed{7}", r"\boxed{2^{10}}", r"\boxed{1}"]
    texts = [*boxed, "no box", r"\boxed{2,1}<|im_end|>x"]
    golds = [r"2\pi", "1", "7", "1024", "", r"\pi", "1,2"]
    assert verify_texts(texts, golds, style="boxed") == [G, W, C, U, G, G, G]
    assert verify_texts(texts, golds, style="boxed", fallback=True, pool=pool) == [C, W, C, C, G, M, C]
    assert verify_texts(texts[:1], golds[:1], style="boxed", fallback=True) == [C]
    pool.submit(DECIDE, "1", "1", "plain")
    with pytest.raises(ValueError, match="1 jobs of others pending"):
        verify_texts(texts, golds, style="boxed", fallback=True, pool=pool)
    assert pool.collect(wait=30.0)[0].value == C


def test_golds_for_the_host_are_undecided() -> None:
    pieces = [b"\\boxed{", b"}", b"no box"]
    vocab = PieceVocab(pieces)
    rows = [[vocab.ids[p] for p in (b"\\boxed{", b"4", b"2", b"}")], [vocab.ids[b"no box"]]] * 4
    tokens, start = batch(rows, vocab.pad_id)
    golds = [gold for gold in ("42", "x+1", "1,2", " ") for _ in range(2)]
    verifier = MathVerifier(vocab, "boxed")
    assert verifier(tokens, start, verifier.encode_answers(golds)).tolist() == [C, M, G, G, G, G, G, G]
    for other in (verifier.with_fallback(), MathVerifier(vocab, "boxed", fallback=True)):
        found = other(tokens, start, other.encode_answers(golds))
        assert found.tolist() == [C, M, U, M, U, M, G, G] and found.dtype == torch.int8
        function, arguments = other.host_job("\\boxed{1+x}", "x+1")
        assert function == DECIDE and decide(*arguments) == C
    assert not verifier.fallback


ATTACKS = [
    ("9^{9^{9^{9}}}", "5"), ("99999999!", "5"), ("{" * 100_000 + "}" * 100_000, "5"), ("{" * 100_000, "5"),
    ("7" * 10_000_000, "5"), ("x" * 10_000_000, "x"), ("\\boxed{" * 100_000, "5"), ("<!--" * 100_000, "5"),
    ("(" * 50_000 + ")" * 50_000, "5"), (r"\binom{1000000000}{500000000}", "1"), ("1e999999999", "1"),
    ("-" * 100_000, "1"), ("," * 100_000, "1"), (" " * 1_000_000, "1"),
]  # fmt: skip


def test_attacks_are_refused_by_size(pool: HostPool) -> None:
    before = pool.counts
    tickets = [
        pool.submit(DECIDE, f"so <answer>{text}</answer>", gold, "answer_tag") for text, gold in ATTACKS
    ]
    found = {}
    while pool.pending:
        found.update({outcome.ticket: outcome for outcome in pool.collect(wait=30.0)})
    assert {found[ticket].status for ticket in tickets} == {"ok"}
    assert {Verdict(found[ticket].value) for ticket in tickets} <= {U, W, M}
    assert pool.counts["restarts"] == before["restarts"]


def test_what_passes_the_guards_and_hangs_is_killed() -> None:
    with HostPool(cpu_seconds=0.6) as pool:
        slow = [r"\prod_{i=1}^{2000} i^{i}", r"\int_0^1 e^{-x^2}\sin(x^3)\ln(1+x) dx"]
        tickets = [pool.submit(DECIDE, f"\\boxed{{{text}}}", "1", "boxed") for text in slow]
        good = [pool.submit(DECIDE, rf"\boxed{{{n}\pi}}", rf"{n - 1}\pi+\pi", "boxed") for n in range(2, 12)]
        found = {}
        killed = False
        while pool.pending:
            for outcome in pool.collect(wait=30.0):
                found[outcome.ticket] = outcome
            if not killed and len(found) >= 3 and pool.pids:
                os.kill(pool.pids[0], signal.SIGKILL)
                killed = True
        assert [found[ticket].status for ticket in tickets] == ["timeout", "timeout"]
        assert [found[ticket].value for ticket in good] == [C] * len(good)
        counts = pool.counts
        assert counts["done"] == len(good) and counts["timeouts"] == 2 and counts["retries"] >= 2
        assert zombies() == []
