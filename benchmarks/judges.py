"""The ways to judge a batch of tokens that are compared: ours, and what others do on the host.

    judge = JUDGES["decode, regex, Fraction"](vocab, "boxed", golds)
    right = judge(tokens, start)           # [B] of bool: paid or not

Each is made once with its gold answers, outside the time that is measured. The host's judges are written here from
what they are known to do: decode the batch, find the last box, normalise, compare.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from atrl_envs.verify import MathVerifier, Verdict

Judge = Callable[[Tensor, Tensor], Sequence[bool]]


def tensor_judge(vocab: Any, style: str, golds: list[str]) -> Judge:
    """MathVerifier."""
    verifier = MathVerifier(vocab, style)
    answers = verifier.encode_answers(golds)
    return lambda tokens, start: verifier(tokens, start, answers[: len(tokens)]) == Verdict.CORRECT


class HostJudge:
    """Texts out of the tokens, then one text after the other; on more than one core in as many processes."""

    def __init__(
        self, vocab: Any, golds: list[Any], judge_text: Callable[[str, Any], bool], cores: int
    ) -> None:
        self.vocab, self.golds, self.judge_text = vocab, golds, judge_text
        self.pool = ProcessPoolExecutor(cores) if cores > 1 else None
        self.cores = cores

    def __call__(self, tokens: Tensor, start: Tensor) -> list[bool]:
        texts = self.decode(tokens, start)
        if self.pool is None:
            return judge_texts(self.judge_text, texts, self.golds[: len(texts)])
        size = -(-len(texts) // self.cores)
        parts = [slice(at, at + size) for at in range(0, len(texts), size)]
        jobs = [self.pool.submit(judge_texts, self.judge_text, texts[p], self.golds[p]) for p in parts]
        return [right for job in jobs for right in job.result()]

    def decode(self, tokens: Tensor, start: Tensor) -> list[str]:
        """The responses as texts; special tokens, and what stands behind the first EOS, are left out."""
        eos, rows = self.vocab.eos_id, []
        for row, begin in zip(tokens.tolist(), start.tolist(), strict=True):
            row = row[begin:]
            rows.append(row[: row.index(eos)] if eos in row else row)
        return self.vocab.tokenizer.batch_decode(rows, skip_special_tokens=True)


def judge_texts(judge_text: Callable[[str, Any], bool], texts: list[str], golds: list[Any]) -> list[bool]:
    """One verdict a text."""
    return [judge_text(text, gold) for text, gold in zip(texts, golds, strict=True)]


_BOX = re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}")
_FRACTION = re.compile(r"\\[dt]?frac\{(-?\d+)\}\{(-?\d+)\}")


def by_regex(text: str, gold: Fraction) -> bool:
    """The last box that a regex finds, without separators, as a Fraction."""
    boxes = _BOX.findall(text)
    if not boxes:
        return False
    answer = _FRACTION.sub(r"\1/\2", boxes[-1].replace(",", "").replace("$", "").strip())
    try:
        return Fraction(answer) == gold
    except (ValueError, ZeroDivisionError):
        return False


def by_math_verify(text: str, gold: Any) -> bool:
    """math-verify as its README calls it, its alarms off (they work in the main thread only)."""
    from math_verify import parse, verify

    return bool(verify(gold, parse(text, parsing_timeout=None), timeout_seconds=None))


def decode_judge(vocab: Any, style: str, golds: list[str], cores: int = 1) -> Judge:
    """`batch_decode`, regex, `Fraction`."""
    assert style == "boxed", "the regex knows boxes only"
    return HostJudge(vocab, [Fraction(gold) for gold in golds], by_regex, cores)


def math_verify_judge(vocab: Any, style: str, golds: list[str], cores: int = 1) -> Judge:
    """`batch_decode`, math-verify."""
    from math_verify import parse

    parsed = [parse(gold, parsing_timeout=None) for gold in golds]
    return HostJudge(vocab, parsed, by_math_verify, cores)


def loop_over_rows(tokens: Tensor, patterns: list[Tensor], eos_id: int) -> Tensor:
    """The reward of one exact token pattern a row before the first EOS, [B] float32, as a loop over the rows."""
    size = tokens.shape[1]
    ended = tokens == eos_id
    first = torch.where(ended.any(1), ended.int().argmax(1), size)
    reward = torch.zeros(tokens.shape[0])
    for row, pattern in enumerate(patterns):
        valid = int(first[row])
        if 0 < len(pattern) <= valid:
            windows = tokens[row, :valid].unfold(0, len(pattern), 1)
            reward[row] = 1.0 if (windows == pattern).all(1).any() else 0.0
    return reward
