"""The short way to an answer gives what reading the whole response gives, and what a slow search finds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import atrl_envs.verify.finder as finder_module
from atrl_envs.verify import MathVerifier, Verdict
from atrl_envs.verify.extract import STYLES, Answer
from atrl_envs.verify.finder import Finder
from tests.envs.verify.slow_extraction import answer_in
from tests.envs.verify.spellings import PieceVocab, batch, split

FAST = settings(max_examples=40, deadline=None)
MARKED = [style for style in STYLES if style != "last_number"]
BITS = [
    "<think>", "</think>", "<think", "think>", "</", "<", "<!--", "-->", "####", "###", "#", "\\boxed{",
    "\\boxed ", "\\boxed", "\\fbox{", "\\", "boxed{", "fbox", "}", "{", "\\}", "\\{", "<answer>",
    "</answer>", "<answer", "\n", " ", "  ", "1", "23", "456", ",", ".", "-", "/", "½", "５", "９", "’", "é",
    " or ", "x", "word ", "\\frac{1}{2}", "1 1/2", "$", "7" * 70, "0000000", " " * 20, "a" * 40,
    "the price of 12 apples and 3 pears is not known. " * 3,
]  # fmt: skip
texts = st.lists(st.sampled_from(BITS), max_size=40).map("".join)


@contextmanager
def way(short: bool) -> Iterator[None]:
    """Every batch the short way, or every response as a whole."""
    before = finder_module.SHORT
    finder_module.SHORT = 0 if short else 1 << 60
    try:
        yield
    finally:
        finder_module.SHORT = before


class Cut:
    """Texts in the tokens of a vocabulary that was made for them: prompts, ends, padding and gaps at random."""

    def __init__(self, written: list[str], rng: random.Random) -> None:
        longest = rng.choice([1, 2, 3, 5, 12])
        raw = [text.encode() for text in written]
        pieces = [split(text, rng, longest) for text in raw]
        self.vocab = PieceVocab([piece for row in pieces for piece in row] if longest > 1 else [])
        self.vocab.pad_id = rng.choice([self.vocab.pad_id, self.vocab.eos_id])
        seven = self.vocab.ids[b"7"]
        rows, prompts, self.texts = [], [], []
        for row in pieces:
            ids = [self.vocab.ids[piece] for piece in row]
            if ids and rng.random() < 0.1:
                ids.insert(rng.randrange(len(ids)), 0)  # a special token: no bytes
            if ids and rng.random() < 0.05:
                ids[rng.randrange(len(ids))] = rng.choice([-3, 10**6])  # no token at all
            self.texts.append(b"".join(self.vocab.pieces[i] if 0 <= i < 10**6 else b"\xff" for i in ids))
            rows.append([*ids, self.vocab.eos_id, seven] if rng.random() < 0.5 else ids)
            prompts.append([self.vocab.eos_id, seven, self.vocab.ids[b"<"]] * rng.randrange(3))
        self.tokens, self.start = batch(rows, self.vocab.pad_id, prompts)
        self.end = self.start + torch.tensor([len(row) for row in rows])


def verdicts(cut: Cut, style: str, golds: list[str], short: bool) -> Tensor:
    verifier = MathVerifier(cut.vocab, style)
    with way(short):
        return verifier(cut.tokens, cut.start, verifier.encode_answers(golds), end=cut.end)


@pytest.mark.parametrize("style", STYLES)
@FAST
@given(written=st.lists(texts, min_size=1, max_size=12), seed=st.integers(0, 10**6))
def test_both_ways_agree(style: str, written: list[str], seed: int) -> None:
    rng = random.Random(seed)
    cut = Cut(written, rng)
    golds = [rng.choice(["1", "23", "456", "0.5", "5", "59", "1.5", "7" * 70]) for _ in written]
    assert torch.equal(verdicts(cut, style, golds, short=True), verdicts(cut, style, golds, short=False))


@pytest.mark.parametrize("style", STYLES)
@FAST
@given(written=st.lists(texts, min_size=2, max_size=8), seed=st.integers(0, 10**6))
def test_alone_padded_and_in_other_integers(style: str, written: list[str], seed: int) -> None:
    rng = random.Random(seed)
    cut = Cut(written, rng)
    verifier = MathVerifier(cut.vocab, style)
    golds = verifier.encode_answers([rng.choice(["1", "23", "0.5"]) for _ in written])
    with way(short=True):
        together = verifier(cut.tokens, cut.start, golds, end=cut.end)
        wide = torch.nn.functional.pad(cut.tokens, (0, rng.randrange(300)), value=cut.vocab.ids[b"7"])
        assert torch.equal(verifier(wide.int(), cut.start.int(), golds, end=cut.end.int()), together)
        some = torch.randperm(len(written), generator=torch.Generator().manual_seed(seed))[:-1]
        assert torch.equal(
            verifier(cut.tokens[some], cut.start[some], golds[some], end=cut.end[some]), together[some]
        )
        for row in range(len(written)):
            alone = slice(row, row + 1)
            size = int(cut.end[row])
            found = verifier(cut.tokens[alone, :size], cut.start[alone], golds[alone])
            assert found.tolist() == together[alone].tolist()


@pytest.mark.parametrize("style", MARKED)
@pytest.mark.parametrize("short", [True, False])
@FAST
@given(written=st.lists(texts, min_size=1, max_size=12), seed=st.integers(0, 10**6))
def test_as_a_slow_search_finds_it(style: str, short: bool, written: list[str], seed: int) -> None:
    cut = Cut(written, random.Random(seed))
    seen: dict[int, tuple[bool, bytes, int, bool]] = {}

    def note(answer: Answer, rows: Tensor | None) -> Tensor:
        rows = torch.arange(len(written)) if rows is None else rows
        for i, row in enumerate(rows.tolist()):
            extent = int(answer.extent[i])
            shown = bytes(answer.letters[i, :extent].tolist())
            seen[row] = bool(answer.spot.found[i]), shown, extent, bool(answer.spot.doubt[i])
        return torch.zeros(len(rows))

    with way(short):
        Finder.of(cut.vocab, style).judge(cut.tokens, cut.start, cut.end, note)
    assert len(seen) == len(written)
    for row, text in enumerate(cut.texts):
        found, shown, extent, doubt = seen[row]
        wanted = answer_in(text, style)
        assert found == (wanted is not None), text
        if wanted is not None:
            assert doubt == wanted.hidden, text
            longer = len(wanted.answer) > 512
            assert extent > 512 if longer else shown == wanted.answer.replace(b"\xff", b"\xfd"), text


LONG = "So 3 + 4 < 8, and \\frac{1}{2} of it is 4. Let me see. " * 700
ENDS = {
    "boxed": [("\\boxed{42}", True), ("\\boxed{41}", False), ("", False), ("\\boxed{42} and 3 more.", True)],
    "gsm8k_hash": [("\n#### 42", True), ("\n### 42", False), ("#### 42\n" + LONG, True)],
    "answer_tag": [
        ("<answer>42</answer>", True), ("</answer>42<answer>", False), ("<answer> 42 </answer>" + LONG, True),
    ],
    "last_number": [("is 42", True), ("is 42 million", False), ("is 42. " + "word " * 5000, True)],
}  # fmt: skip


@pytest.mark.parametrize("style", sorted(ENDS))
@pytest.mark.parametrize("longest", [1, 6])
def test_long_responses(style: str, longest: int) -> None:
    """Thirty thousand bytes and more: with thoughts, without, and with thoughts that do not end."""
    rng = random.Random(0)
    fronts = [("", True), ("<think>", False), ("<think>9</think>", True), ("<think></think><think>", False)]
    made = [(front + LONG + end, open_ and right) for front, open_ in fronts for end, right in ENDS[style]]
    rows = [split(text.encode(), rng, longest) for text, _ in made]
    vocab = PieceVocab(sorted({piece for row in rows for piece in row}))
    tokens, start = batch([[*(vocab.ids[p] for p in row), vocab.eos_id] for row in rows], vocab.pad_id)
    verifier = MathVerifier(vocab, style)
    found = verifier(tokens, start, verifier.encode_answers(["42"] * len(made)))
    assert (found == Verdict.CORRECT).tolist() == [right for _, right in made]
    # Longer than what is written out of one response: thoughts that are open are still seen.
    again = verifier(tokens.repeat(1, 5), start, verifier.encode_answers(["42"] * len(made)))
    assert torch.equal(again, found)


def test_beyond_what_is_written_out() -> None:
    """A response of which only the end is looked at: unfinished thoughts out of sight are not paid."""
    vocab = PieceVocab(["abcd", "efgh"])
    filler = [vocab.ids[b"abcd"], vocab.ids[b"efgh"]] * 20000
    ids = {
        text: [vocab.ids[bytes([byte])] for byte in text.encode()]
        for text in ("<think>", "</think>", "\\boxed{4}")
    }
    answer = ids["\\boxed{4}"]
    rows = [[*filler, *answer], [*ids["<think>"], *filler, *answer], [*filler, *ids["</think>"], *answer]]
    tokens, start = batch(rows, vocab.eos_id)
    verifier = MathVerifier(vocab, "boxed")
    golds = verifier.encode_answers(["4"] * 3)
    with way(short=False):
        assert verifier(tokens, start, golds).tolist() == [
            Verdict.UNDECIDED,
            Verdict.UNDECIDED,
            Verdict.CORRECT,
        ]
    with way(short=True):
        assert verifier(tokens, start, golds).tolist() == [Verdict.CORRECT, Verdict.MISSING, Verdict.CORRECT]


@pytest.mark.parametrize("style", STYLES)
def test_parts_of_a_batch(style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows are looked at together, or written out at once, verdicts are the same."""
    rng = random.Random(1)
    written = ["".join(rng.choices(BITS, k=rng.randint(0, 30))) for _ in range(40)]
    cut = Cut(written, rng)
    golds = [rng.choice(["1", "23", "0.5"]) for _ in written]
    expected = verdicts(cut, style, golds, short=True)
    monkeypatch.setattr(finder_module, "ROWS", 7)
    assert torch.equal(verdicts(cut, style, golds, short=True), expected)
    monkeypatch.setattr(finder_module, "CELLS", 5000)
    assert torch.equal(verdicts(cut, style, golds, short=False), expected)
