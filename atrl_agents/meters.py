"""The numbers of a run beside the loss: success, staleness, throughput, and who waits for whom.

meters = Meters(buffer)
meters.start()
row = meters.step(batch, collector.status())       # one dict a step
meters.summary()                                   # totals for summary.json
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from tensordict import TensorDictBase

from atrl_collectors.samplers import STALENESS, WAIT
from atrl_envs import keys
from atrl_envs.verify import Verdict

_TOTALS = ("seconds", "episodes", "response_tokens", "staleness_sum", "staleness_max", "unscored")


class Meters:
    """Counts over the loop's own wall-clock, evaluations and logging included."""

    def __init__(
        self, buffer: Any, state: dict[str, float] | None = None, rewards: Sequence[str] = ("correctness",)
    ) -> None:
        self.buffer, self.rewards = buffer, tuple(rewards)
        self.totals: dict[str, float] = dict.fromkeys(_TOTALS, 0.0) | (state or {})
        self._last: float | None = None
        self._waited = 0.0
        self._worker = (0, 0)

    def start(self) -> None:
        """The clock runs from here."""
        self._last = time.monotonic()
        self._waited = self.buffer.waits.seconds[WAIT]

    def stop(self) -> None:
        """The clock stops; what passed since the last step counts."""
        self._tick()
        self._last = None

    def step(self, batch: TensorDictBase, workers: list[Any]) -> dict[str, float]:
        """Metrics of one step, throughput and waits since the step before."""
        seconds = self._tick()
        verdict, staleness = batch[keys.VERDICT], batch[STALENESS]
        length = batch[keys.LENGTH] - batch[keys.PROMPT_LENGTH]
        scored = batch[keys.SCORED]
        correct = (verdict == int(Verdict.CORRECT))[scored]
        episodes, tokens = batch.shape[0], int(length.sum())
        totals = self.totals
        totals["episodes"] += episodes
        totals["response_tokens"] += tokens
        totals["staleness_sum"] += float(staleness.sum())
        totals["unscored"] += float((~scored).sum())
        totals["staleness_max"] = max(totals["staleness_max"], float(staleness.max()))
        waited = self.buffer.waits.seconds[WAIT]
        row = {
            "seconds": totals["seconds"],
            "success_rate": float(correct.float().mean()) if correct.numel() else 0.0,
            "staleness_mean": float(staleness.float().mean()),
            "staleness_max": float(staleness.max()),
            "tokens_per_second": tokens / seconds,
            "completions_per_second": episodes / seconds,
            "trainer_wait_fraction": min(1.0, (waited - self._waited) / seconds),
            "worker_wait_fraction": self._worker_wait(workers),
            "response_length": float(length.float().mean()),
            "truncated_fraction": float(batch[keys.TRUNCATED].float().mean()),
            "undecided": float((verdict == int(Verdict.UNDECIDED)).sum()),
            "invalid_gold": float((verdict == int(Verdict.INVALID_GOLD)).sum()),
            "unscored": float((~scored).sum()),
            "episodes": totals["episodes"],
            "tokens_trained": float(self.buffer.books.trained),
            "tokens_dropped": float(sum(self.buffer.books.dropped.values())),
        }
        if self.rewards != ("correctness",) and correct.numel():
            row[keys.REWARD] = float(batch[keys.REWARD][scored].mean())
            parts = batch[keys.REWARD_PARTS][scored].mean(0).tolist()
            row |= {f"reward/{name}": value for name, value in zip(self.rewards, parts, strict=True)}
        self._waited = waited
        return row

    def summary(self) -> dict[str, Any]:
        """Totals of the run so far (resumed parts included)."""
        totals, books = self.totals, self.buffer.progress()["books"]
        seconds = max(totals["seconds"], 1e-9)
        return {
            "train_seconds": totals["seconds"],
            "completions_per_second": totals["episodes"] / seconds,
            "tokens_per_second": totals["response_tokens"] / seconds,
            "staleness_mean": totals["staleness_sum"] / max(1.0, totals["episodes"]),
            "staleness_max": totals["staleness_max"],
            "unscored": int(totals["unscored"]),
            "tokens_generated": books["generated"],
            "tokens_trained": books["trained"],
            "tokens_dropped": books["dropped"],
        }

    def state_dict(self) -> dict[str, float]:
        return dict(self.totals)

    def _tick(self) -> float:
        if self._last is None:
            return 1e-9
        now = time.monotonic()
        seconds, self._last = max(now - self._last, 1e-9), now
        self.totals["seconds"] += seconds
        return seconds

    def _worker_wait(self, workers: list[Any]) -> float:
        """Share of the workers' time since the last call that they spent waiting for the trainer."""
        waited = sum(w.admission_ns + w.room_ns for w in workers)
        spent = waited + sum(w.busy_ns for w in workers)
        before_waited, before_spent = self._worker
        self._worker = (waited, spent)
        return (waited - before_waited) / max(1, spent - before_spent)
