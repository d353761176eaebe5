"""From responses that ended to verdicts and rewards: tensor programs first, the host for what is left.

    judge = Judge(bank, compose({"correctness": 1.0}), max_new_tokens=64)
    judged = judge.ended(tokens, start, length, problem, ended, defer=False)     # Judgement, all fields [B]
    judge.settled(wait=0.0)                                  # with defer=True: what the host decided since, by ticket

Only what the tensor program calls UNDECIDED, and rewards on texts, go to the host.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

import torch
from tensordict import TensorDict
from torch import Tensor

from atrl_envs import keys
from atrl_envs.bank import ProblemBank
from atrl_envs.cases import NO_TICKET, OpenCases
from atrl_envs.rewards import Responses, Rewards, view_of
from atrl_envs.verify.text import Spelling
from atrl_envs.verify.verdict import Verdict

Fallback = Literal["auto", "always", "never"]


def which_fallback(given: Any) -> Fallback:
    """True is "always", False is "never"; ValueError for anything else than the three words."""
    word: Any = ("always" if given else "never") if isinstance(given, bool) else given
    if word not in get_args(Fallback):
        raise ValueError(f"fallback must be auto, always or never, got {given!r}")
    return word


@dataclass(frozen=True)
class Judgement:
    """verdict [B] int8, reward [B] float32, parts [B, R] float32, scored [B] bool, ticket [B] int64."""

    verdict: Tensor
    reward: Tensor
    parts: Tensor
    scored: Tensor
    ticket: Tensor

    @classmethod
    def nothing(cls, rows: int, parts: int, device: torch.device) -> Judgement:
        """Rows that did not end: verdict -1, nothing earned, not scored."""
        zero = torch.zeros(rows, device=device)
        return cls(
            verdict=torch.full_like(zero, -1, dtype=torch.int8),
            reward=zero,
            parts=torch.zeros(rows, parts, device=device),
            scored=torch.zeros_like(zero, dtype=torch.bool),
            ticket=torch.full_like(zero, NO_TICKET, dtype=torch.int64),
        )

    def where(self, ended: Tensor, other: Judgement) -> Judgement:
        """This one where `ended` [B], the other elsewhere."""
        chosen = {}
        for f in fields(self):
            mine, theirs = getattr(self, f.name), getattr(other, f.name)
            chosen[f.name] = torch.where(ended if mine.ndim == 1 else ended.unsqueeze(1), mine, theirs)
        return Judgement(**chosen)


class Judge:
    """Judges for one environment.

    fallback: what of the UNDECIDED goes to the host, if the verifier has a `host_job`; what does not, earns 0.
        "auto": golds that only the host can compare (`asks_host` of the verifier; all, where it has none). "always":
        all; the host computes, so the question 12+34 is then a right answer to itself. "never": nothing.
    curriculum: told of every scored episode; see `Curriculum`. host: keyword arguments of HostPool.
    """

    def __init__(
        self,
        bank: ProblemBank,
        rewards: Rewards,
        *,
        max_new_tokens: int,
        fallback: Fallback = "auto",
        curriculum: Any = None,
        host: dict[str, Any] | None = None,
    ) -> None:
        self.bank, self.rewards, self.max_new_tokens = bank, rewards, max_new_tokens
        self.curriculum = curriculum
        self.fallback: Fallback = fallback if hasattr(bank.verifier, "host_job") else "never"
        self.cases = OpenCases(bank, rewards, fallback=self.fallback != "never", host=host)
        # An accelerator is waited for once a step, but only where the host has a part.
        self.uses_host = self.fallback != "never" or bool(rewards.on_texts)
        self._spelling = Spelling.of(bank.vocab)
        self._begun = bank.begun_reasoning()
        # Where the whole response is the answer there is no reasoning to leave out.
        self._reasons = getattr(bank.verifier, "style", "plain") != "plain"

    def __call__(
        self, tokens: Tensor, start: Tensor, length: Tensor, problem: Tensor, ended: Tensor
    ) -> Judgement:
        """tokens [B, S]; start, length, problem [B] int64; ended [B] bool: the rows that may go to the host."""
        bank = self.bank
        answers = bank.answers[problem]
        begun = torch.zeros_like(start) if self._begun is None else self._begun.to(start.device)[problem]
        judged_from = start - begun if self._reasons else start
        verdict = bank.verifier(tokens, judged_from, answers, end=length).to(torch.int8)
        view = view_of(problem, bank.difficulty[problem], start, length, verdict)
        spelling = self._spelling_on(tokens.device)
        responses = Responses(tokens, start, length, verdict, view, spelling, self.max_new_tokens, begun)
        scored = verdict != int(Verdict.INVALID_GOLD)
        parts = torch.where(scored.unsqueeze(1), self.rewards.parts(responses), 0.0)
        ticket = torch.full_like(start, NO_TICKET)
        if self.uses_host:
            judged_there = self._judged_there(verdict, answers)
            asked = ended & scored
            asked = asked if self.rewards.on_texts else asked & judged_there
            for row in asked.nonzero().squeeze(1).tolist():
                ids = tokens[row, int(start[row]) : int(length[row])].tolist()
                case = int(problem[row]), ids, int(verdict[row]), parts[row].tolist()
                ticket[row] = self.cases.open(*case, by_host=bool(judged_there[row]))
        return Judgement(verdict, self.rewards.total(parts), parts, scored, ticket)

    def ended(
        self,
        tokens: Tensor,
        start: Tensor,
        length: Tensor,
        problem: Tensor,
        ended: Tensor,
        *,
        defer: bool,
    ) -> Judgement:
        """Judge the rows that ended; defer: leave what the host decides to `settled` instead of waiting for it."""
        nothing = Judgement.nothing(ended.shape[0], len(self.rewards.names), tokens.device)
        if tokens.device.type == "cpu":  # here looking is free, so only what ended is judged
            rows = ended.nonzero().squeeze(1)
            if not rows.numel():
                return nothing
            judged = self(tokens[rows], start[rows], length[rows], problem[rows], ended[rows])
            self.rewards.check(judged.parts)
        else:
            judged = self(tokens, start, length, problem, ended)
            self._finish(judged, problem, ended, defer)
            return judged.where(ended, nothing)
        self._finish(judged, problem[rows], ended[rows], defer)
        for f in fields(nothing):
            getattr(nothing, f.name)[rows] = getattr(judged, f.name)
        return nothing

    def _finish(self, judged: Judgement, problem: Tensor, ended: Tensor, defer: bool) -> None:
        """Wait for the host unless that is deferred, and tell the curriculum what is known by now."""
        if not defer:
            self._settle(judged)
        if self.curriculum is not None:
            self._teach(problem, judged.verdict, judged.scored & (judged.ticket < 0) & ended)

    def _judged_there(self, verdict: Tensor, answers: Any) -> Tensor:
        """The rows [B] whose verdict is the host's to give."""
        undecided = verdict == int(Verdict.UNDECIDED)
        if self.fallback == "never":
            return torch.zeros_like(undecided)
        if self.fallback == "auto" and hasattr(self.bank.verifier, "asks_host"):
            return undecided & self.bank.verifier.asks_host(answers)
        return undecided

    def settled(self, wait: float = 0.0) -> TensorDict | None:
        """See OpenCases.settled."""
        settled = self.cases.settled(wait)
        if settled is not None and self.curriculum is not None:
            self._teach(settled[keys.PROBLEM], settled[keys.VERDICT], settled[keys.SCORED])
        return settled

    def rehearse(self, rows: int = 8) -> None:
        """Judge the first problems' gold responses and forget them, so that a reward that cannot work fails now.

        Whatever a reward function raises, RuntimeError from one on texts, ValueError for a wrong shape or number.
        """
        chosen, device = range(min(rows, len(self.bank))), self.bank.data.device
        tokens, start, length = (t.to(device) for t in self.bank.gold_sequences(chosen))
        problem = torch.tensor(chosen, device=device)
        try:
            judged = self(tokens, start, length, problem, torch.ones_like(problem, dtype=torch.bool))
            self.rewards.check(judged.parts)
            self._settle(judged)
        finally:
            self.close()

    def close(self) -> None:
        """End the host's processes; open responses are forgotten."""
        self.cases.close()

    def _settle(self, judged: Judgement) -> None:
        """Wait until no row has an open ticket; every job has its limits, so this ends."""
        while self.uses_host and bool((judged.ticket >= 0).any()):
            settled = self.cases.settled(wait=1.0)
            if settled is None:
                continue
            rows, place = (judged.ticket.unsqueeze(1) == settled[keys.TICKET]).nonzero(as_tuple=True)
            judged.verdict[rows] = settled[keys.VERDICT][place]
            judged.reward[rows] = settled[keys.REWARD][place]
            judged.parts[rows] = settled[keys.REWARD_PARTS][place]
            judged.scored[rows] = settled[keys.SCORED][place]
            judged.ticket[rows] = NO_TICKET

    def _teach(self, problem: Tensor, verdict: Tensor, known: Tensor) -> None:
        correct = verdict == int(Verdict.CORRECT)
        self.curriculum.update(self.bank.difficulty[problem], correct, known)

    def _spelling_on(self, device: torch.device) -> Spelling:
        spelling = self._spelling
        if spelling.table.device != device:
            values: dict[str, Any] = {f.name: getattr(spelling, f.name) for f in fields(spelling)}
            tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
            self._spelling = replace(spelling, **{n: t.to(device) for n, t in tensors.items()})  # type: ignore[arg-type]
        return self._spelling
