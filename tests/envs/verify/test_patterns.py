"""Token patterns: equal to a plain loop over rows on every input."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from atrl_envs.verify import PatternVerifier, Verdict
from atrl_envs.vocab import Vocab
from tests.envs.verify.on_gpu import assert_never_waits

C, W, G = Verdict.CORRECT, Verdict.WRONG, Verdict.INVALID_GOLD
EOS = 9
VERIFIER = PatternVerifier(SimpleNamespace(eos_id=EOS))


def by_a_loop(row: Sequence[int], start: int, pattern: Sequence[int], end: int) -> Verdict:
    """The reward's algorithm for one row: cut at the first EOS, then compare every window with the pattern."""
    response = list(row[start:end])
    valid = response.index(EOS) if EOS in response else len(response)
    size = len(pattern)
    if size == 0:
        return G
    windows = (response[i : i + size] for i in range(valid - size + 1))
    return C if any(window == list(pattern) for window in windows) else W


def judge(
    tokens: Tensor, start: Tensor, patterns: Sequence[Sequence[int]], end: Tensor | None = None
) -> list[int]:
    """Verdicts, which must be the same whether or not the host may look at the data."""
    answers = VERIFIER.encode_answers(patterns)
    seen = VERIFIER(tokens, start, answers, end=end)
    assert seen.dtype == torch.int8
    with patch("atrl_envs.verify.patterns.may_look", lambda tensor: False):
        assert torch.equal(VERIFIER(tokens, start, answers, end=end), seen)
    return seen.tolist()


CASES = [
    ([1, 2, 3, 4, EOS, 0], 0, [2, 3], C),
    ([1, 2, 3, 4, EOS, 0], 0, [1, 2, 3, 4], C),  # the whole response
    ([1, 2, 3, 4, EOS, 0], 0, [4], C),  # at the very end
    ([1, 2, 3, 4], 0, [3, 4], C),  # at the very end, without an EOS
    ([1, 2, 3, 4, EOS, 0], 0, [4, EOS], W),  # across the EOS
    ([1, 2, EOS, 3, 4, 0], 0, [3, 4], W),  # behind it
    ([1, 2, EOS, 2, 3, 0], 0, [2, 3], W),  # half before, half behind
    ([EOS, 1, 2, 3, 0, 0], 0, [1, 2], W),  # the EOS comes first
    ([1, 2, 3, 0, 0, 0], 3, [1, 2], W),  # in the prompt only
    ([1, 2, 3, 0, 0, 0], 1, [1, 2], W),  # half in the prompt
    ([1, EOS, 1, 2, EOS, 0], 2, [1, 2], C),  # an EOS in the prompt
    ([1, 1, 1, 2, 0, 0], 0, [1, 1, 2], C),  # a start that overlaps the match
    ([1, 2, 1, 2, 1, 3], 0, [1, 2, 1, 3], C),
    ([1, 1, 1, 1, 1, 1], 0, [1, 1, 1], C),
    ([1, 1, 1, 1, 1, 1], 4, [1, 1, 1], W),
    ([1, 2, 3, 4, 5, 6], 0, [1, 2, 3, 4, 5, 6, 7], W),  # longer than the response
    ([1, 2, 3, 4, 5, 6], 0, [1, 3], W),
    ([1, 2, 3, 4, 5, 6], 0, [], G),
    ([0, 0, 0, 0, 0, 0], 0, [0], C),
    ([0, 0, 0, EOS, 0, 0], 6, [0], W),  # nothing was answered
]  # fmt: skip


def test_cases_alone_and_together() -> None:
    for row, start, pattern, verdict in CASES:
        assert judge(torch.tensor([row]), torch.tensor([start]), [pattern]) == [verdict], (row, pattern)
    rows = [row + [EOS] * (6 - len(row)) for row, *_ in CASES]
    tokens, start = torch.tensor(rows), torch.tensor([start for _, start, _, _ in CASES])
    assert judge(tokens, start, [pattern for _, _, pattern, _ in CASES]) == [verdict for *_, verdict in CASES]


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[list[int]], list[int], list[int], list[list[int]]]:
    """Tokens, starts, ends and patterns over few ids, so that patterns repeat and overlap themselves."""
    rows, size = draw(st.integers(0, 6)), draw(st.integers(0, 14))
    ids = st.sampled_from(draw(st.sampled_from([[1, 2], [1, 2, 3, EOS], [0, 1], [1, 2**40, -1, EOS], [1]])))
    tokens = [draw(st.lists(ids, min_size=size, max_size=size)) for _ in range(rows)]
    starts = [draw(st.integers(0, size)) for _ in range(rows)]
    ends = [draw(st.integers(0, size)) for _ in range(rows)]
    patterns = []
    for row in tokens:
        begin, length = draw(st.integers(0, size)), draw(st.integers(0, 7))
        patterns.append(
            row[begin : begin + length] if draw(st.booleans()) else draw(st.lists(ids, max_size=7))
        )
    return tokens, starts, ends, patterns


@settings(max_examples=400, deadline=None)
@given(batches(), st.booleans(), st.booleans())
def test_equal_to_a_loop(data: tuple, narrow: bool, ended: bool) -> None:
    rows, starts, ends, patterns = data
    size = len(rows[0]) if rows else 3
    narrow = narrow and all(abs(token) < 2**31 for row in [*rows, *patterns] for token in row)
    dtype = torch.int32 if narrow else torch.int64
    tokens = torch.tensor(rows, dtype=dtype).view(len(rows), size)
    start, end = torch.tensor(starts, dtype=dtype), torch.tensor(ends, dtype=dtype)
    wanted = [
        by_a_loop(row, start, pattern, end if ended else size)
        for row, start, end, pattern in zip(rows, starts, ends, patterns, strict=True)
    ]
    assert judge(tokens, start, patterns, end if ended else None) == wanted


def test_long_rows_and_ragged_patterns() -> None:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 8, (64, 256), generator=generator)
    tokens[::3, 200:] = EOS
    start = torch.randint(0, 120, (64,), generator=generator)
    rows = tokens.tolist()
    patterns = [row[at : at + at % 13] for row, at in zip(rows, range(100, 228, 2), strict=True)]
    wanted = [by_a_loop(r, s, p, 256) for r, s, p in zip(rows, start.tolist(), patterns, strict=True)]
    assert {C, W, G} == set(wanted)
    assert judge(tokens, start, patterns) == wanted


def test_frequent_first_tokens() -> None:
    """Where the first token of a pattern stands everywhere, the search goes on token by token."""
    tokens = torch.ones(4, 50, dtype=torch.int64)
    start = torch.zeros(4, dtype=torch.int64)
    assert judge(tokens, start, [[1] * 9, [1] * 50, [1] * 51, [1, 2]]) == [C, C, W, W]
    assert judge(tokens.t().contiguous().t(), start, [[1], [1, 1], [], [1] * 8 + [2]]) == [C, C, G, W]


def test_texts_are_encoded_by_the_vocabulary() -> None:
    vocab = Vocab.characters()
    verifier = PatternVerifier(vocab)
    answers = verifier.encode_answers(["42", ""])
    assert answers.batch_size == (2,)
    assert answers["ids"].tolist()[0] == vocab.encode("42")
    tokens = torch.tensor([[*vocab.encode("142="), vocab.eos_id], [*vocab.encode("4 2="), vocab.eos_id]])
    start = torch.zeros(2, dtype=torch.int64)
    assert verifier(tokens, start, answers[torch.tensor([0, 0])]).tolist() == [C, W]
    assert verifier(tokens, start, answers).tolist() == [C, G]
    again = pickle.loads(pickle.dumps(verifier)).to("cpu")
    assert again(tokens, start, answers).tolist() == [C, G]
    assert verifier.encode_answers([])["ids"].shape == (0, 1)


def example() -> tuple[Tensor, Tensor, object]:
    tokens = torch.tensor([row + [EOS] * (6 - len(row)) for row, *_ in CASES])
    start = torch.tensor([start for _, start, _, _ in CASES])
    return tokens, start, VERIFIER.encode_answers([pattern for _, _, pattern, _ in CASES])


def test_without_data() -> None:
    tokens, start, answers = example()
    with FakeTensorMode(allow_non_fake_inputs=True):
        verdicts = VERIFIER(torch.zeros_like(tokens), torch.zeros_like(start), answers)
    assert isinstance(verdicts, FakeTensor)
    assert (verdicts.shape, verdicts.dtype) == (start.shape, torch.int8)


def test_as_one_graph() -> None:
    tokens, start, answers = example()
    torch._dynamo.reset()
    compiled = torch.compile(VERIFIER.__call__, fullgraph=True, backend="eager")
    assert torch.equal(compiled(tokens, start, answers), VERIFIER(tokens, start, answers))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_without_waiting_for_a_gpu() -> None:
    tokens, start, answers = example()
    assert_never_waits(VERIFIER, tokens, start, answers)


def test_shapes_are_checked() -> None:
    tokens, start, answers = example()
    with pytest.raises(ValueError, match=r"want tokens \[B, S\]"):
        VERIFIER(tokens, start.unsqueeze(1), answers)
