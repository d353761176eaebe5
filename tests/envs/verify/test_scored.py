"""ScoredVerifier: a tensor program that knows one right answer, and says which answers the host must see."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from atrl_envs import Verdict, Vocab
from atrl_envs.verify.scored import ScoredVerifier

GOLDS = ["3*(4+1)", "", "1 2\n3 4", "yes"]
RESPONSES = ["3*(4+1)", "15", "1 2\n3 4", "yes"]


def batch(vocab: Vocab, texts: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """A prompt of one token and each text, ended and padded; [B, S] and [B]."""
    rows = [[*vocab.encode("?" + text), vocab.eos_id] for text in texts]
    width = max(map(len, rows))
    tokens = torch.tensor([row + [vocab.pad_id] * (width - len(row)) for row in rows])
    return tokens, torch.ones(len(texts), dtype=torch.int64)


def judge(golds: list[str], texts: list[str], style: str = "plain") -> list[Verdict]:
    vocab = Vocab.characters()
    verifier = ScoredVerifier(vocab, style, "module:function")
    tokens, start = batch(vocab, texts)
    return [Verdict(v) for v in verifier(tokens, start, verifier.encode_answers(golds)).tolist()]


def test_the_gold_is_right_and_anything_else_is_open() -> None:
    assert judge(GOLDS, RESPONSES) == [
        Verdict.CORRECT,
        Verdict.UNDECIDED,  # without a gold the scorer decides
        Verdict.UNDECIDED,  # a line break may matter to it
        Verdict.CORRECT,
    ]
    assert judge(["7"] * 4, ["8", "7 ", " ", "07"]) == [
        Verdict.UNDECIDED,
        Verdict.CORRECT,
        Verdict.MISSING,
        Verdict.UNDECIDED,
    ]
    assert judge(["", "1\n2"], ["", " \n"]) == [Verdict.MISSING] * 2


@pytest.mark.parametrize(
    ("style", "right", "other", "none"),
    [
        ("answer_tag", "so <answer> a b </answer>.", "<answer>a b c</answer>", "a b"),
        ("boxed", "so \\boxed{a b}", "\\boxed{\nab}", "a b"),
        ("gsm8k_hash", "so\n#### a b\nend", "#### ab", "a b"),
    ],
)
def test_styles(style: str, right: str, other: str, none: str) -> None:
    verdicts = judge(["a b"] * 3, [right, other, none], style)
    assert verdicts == [Verdict.CORRECT, Verdict.UNDECIDED, Verdict.MISSING]


@pytest.mark.parametrize(
    ("style", "completion", "answer"),
    [
        ("plain", " 1 2\n3 4 \n", "1 2\n3 4"),
        ("answer_tag", "<answer>no</answer> <answer>\na b\n</answer>", "a b"),
        ("answer_tag", "<!-- <answer>a b</answer> -->", ""),
        ("boxed", "\\boxed{1}, no, \\boxed{{a} b}", "{a} b"),
    ],
)
def test_the_host_gets_the_answer_and_the_data(style: str, completion: str, answer: str) -> None:
    verifier = ScoredVerifier(Vocab.characters(), style, "module:function", ("maze", {"size": 3}))
    data: Any = {"board": [1, 2]}
    assert verifier.host_job(completion, "gold", data) == (
        "module:function",
        ("maze", {"size": 3}, answer, data),
    )


def test_a_gold_in_a_comment_is_left_to_the_host_which_gets_nothing() -> None:
    assert judge(["a"], ["<!-- <answer>a</answer> -->"], "answer_tag") == [Verdict.UNDECIDED]


def test_it_never_waits_for_a_device() -> None:
    vocab = Vocab.characters()
    verifier = ScoredVerifier(vocab, "plain", "module:function")
    answers = verifier.encode_answers(GOLDS)
    tokens, start = batch(vocab, RESPONSES)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = [mode.from_tensor(t) for t in (tokens, start)]
        verdict = verifier(*fake, answers)
    assert (verdict.shape, verdict.dtype) == (torch.Size([4]), torch.int8)
    assert verifier.to("cpu")(tokens, start, answers).tolist() == verifier(tokens, start, answers).tolist()
