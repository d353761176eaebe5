"""Responses that the host still has to judge: one ticket each, however many jobs it takes.

    cases = OpenCases(bank, rewards, fallback=True)
    ticket = cases.open(problem, token_ids, verdict, parts)      # jobs go to processes that can be killed
    cases.settled(wait=0.0)                                      # TensorDict [m] of what is finished, or None

A job that timed out or crashed, retries included, leaves its response unscored: it earns nothing and teaches nothing. A
reward function that raises is a mistake of its author, and stops the environment.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict

from atrl_envs import keys
from atrl_envs.bank import THINK, ProblemBank
from atrl_envs.host.texts import TextReward
from atrl_envs.rewards import CORRECTNESS, Rewards
from atrl_envs.verify.verdict import Verdict

NO_TICKET = -1
_VERDICT = -1  # the place of the verdict among the components
# Reward functions of a user may import anything; they get more time and the memory that they want.
_FOR_TEXTS = {"cpu_seconds": 10.0, "wall_seconds": 30.0, "memory_mb": 0}


@dataclass
class _Case:
    """A response with open jobs."""

    problem: int
    verdict: int
    parts: list[float]
    open_jobs: int
    failed: bool = False


class OpenCases:
    """fallback: the verifier's `host_job` decides where the verdict is UNDECIDED. host: arguments of HostPool."""

    def __init__(
        self, bank: ProblemBank, rewards: Rewards, *, fallback: bool, host: dict[str, Any] | None = None
    ) -> None:
        self.bank, self.rewards, self.fallback = bank, rewards, fallback
        self.failures: Counter[str] = Counter()  # jobs given up, by kind: "timeout", "crash"
        self._settings = {"verdicts": host or {}, "texts": _FOR_TEXTS}
        self._pools: dict[str, Any] = {}  # they start with the first job
        self._cases: dict[int, _Case] = {}
        self._jobs: dict[
            tuple[str, int], tuple[int, int]
        ] = {}  # pool and job -> ticket, place of the component
        self._next = 0
        self._on_texts = {place: TextReward(rewards.components[place].function) for place in rewards.on_texts}
        names = rewards.names
        self._correctness = names.index(CORRECTNESS) if CORRECTNESS in names else None

    @property
    def pending(self) -> int:
        """Responses with open jobs."""
        return len(self._cases)

    def open(
        self, problem: int, ids: list[int], verdict: int, parts: list[float], *, by_host: bool = True
    ) -> int:
        """Send the jobs of one response (its token ids, from the first on): its ticket, NO_TICKET for no job.

        by_host: whether an open verdict is the host's to give.
        """
        bank = self.bank
        if bank.vocab.eos_id in ids:
            ids = ids[: ids.index(bank.vocab.eos_id)]
        completion, answer = bank.vocab.decode(ids), bank.answer_texts[problem]
        jobs: list[tuple[str, int, Any, tuple[Any, ...]]] = []
        if self.fallback and by_host and verdict == int(Verdict.UNDECIDED):
            begun = THINK if bank.begins_reasoning(problem) and bank.style != "plain" else ""
            function, args = bank.verifier.host_job(begun + completion, answer, bank.data_of(problem))
            jobs.append(("verdicts", _VERDICT, function, args))
        for place in self.rewards.on_texts:
            columns = {
                "prompts": bank.prompt_texts[problem],
                "completions": completion,
                "completion_ids": ids,
                "answer": answer,
            }
            jobs.append(("texts", place, self._on_texts[place], (columns,)))
        if not jobs:
            return NO_TICKET
        ticket, self._next = self._next, self._next + 1
        self._cases[ticket] = _Case(problem, verdict, parts, len(jobs))
        for pool, place, function, args in jobs:
            self._jobs[pool, self._pool(pool).submit(function, *args)] = (ticket, place)
        return ticket

    def settled(self, wait: float = 0.0) -> TensorDict | None:
        """What has been settled since the last call, [m]: ticket, problem, verdict, reward, reward_parts, scored.

        wait: seconds to wait for a first result while any case is open. RuntimeError: a job raised.
        """
        if not self._cases:
            return None
        done: dict[int, _Case] = {}
        share = wait / max(1, len(self._pools))
        for name, pool in self._pools.items():
            for outcome in pool.collect(wait=0.0 if done else share):
                ticket, place = self._jobs.pop((name, outcome.ticket))
                case = self._cases[ticket]
                self._enter(case, place, outcome)
                case.open_jobs -= 1
                if not case.open_jobs:
                    done[ticket] = self._cases.pop(ticket)
        return self._as_tensors(done) if done else None

    def close(self) -> None:
        """End the host's processes and forget what is open."""
        while self._pools:
            self._pools.popitem()[1].close()
        self._cases.clear()
        self._jobs.clear()

    def _pool(self, name: str) -> Any:
        if name not in self._pools:
            from atrl_envs.host import HostPool

            self._pools[name] = HostPool(**self._settings[name])
        return self._pools[name]

    def _enter(self, case: _Case, place: int, outcome: Any) -> None:
        """Write one job's result into its case."""
        if outcome.status == "error":
            what = "the verifier's host job" if place < 0 else f"reward {self.rewards.names[place]!r}"
            raise RuntimeError(f"{what} failed on a response: {outcome.error}")
        if outcome.status != "ok":
            self.failures[outcome.status] += 1
            case.failed = True
        elif place != _VERDICT:
            if not math.isfinite(value := float(outcome.value)):
                raise RuntimeError(
                    f"reward {self.rewards.names[place]!r} must return finite numbers, got {value}"
                )
            case.parts[place] = value
        else:
            case.verdict = int(outcome.value)
            if self._correctness is not None:
                case.parts[self._correctness] = float(case.verdict == int(Verdict.CORRECT))

    def _as_tensors(self, done: dict[int, _Case]) -> TensorDict:
        cases, device = done.values(), self.bank.data.device
        invalid = int(Verdict.INVALID_GOLD)
        scored = torch.tensor([not c.failed and c.verdict != invalid for c in cases], device=device)
        parts = torch.tensor([c.parts for c in cases], device=device)
        parts = torch.where(scored.unsqueeze(1), parts, 0.0)
        return TensorDict(
            {
                keys.TICKET: torch.tensor(list(done), device=device),
                keys.PROBLEM: torch.tensor([c.problem for c in cases], device=device),
                keys.VERDICT: torch.tensor([c.verdict for c in cases], dtype=torch.int8, device=device),
                keys.REWARD: self.rewards.total(parts),
                keys.REWARD_PARTS: parts,
                keys.SCORED: scored,
            },
            batch_size=[len(done)],
        )

    def __getstate__(self) -> dict[str, Any]:
        # Another process starts its own host processes and has its own open responses.
        return {**self.__dict__, "_pools": {}, "_cases": {}, "_jobs": {}}
