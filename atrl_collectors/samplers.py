"""Training batches of complete groups, fresh enough, used at most so often, oldest first; it waits for them.

    policy = StalenessPolicy(prompts_per_batch=8, samples_per_prompt=4, max_staleness=1)
    buffer = torchrl.data.TensorDictReplayBuffer(
        storage=LazyTensorStorage(1000), sampler=GroupStalenessSampler(policy), batch_size=32
    )
    buffer.sampler.consumer_version = 7      # after every update of the weights
    batch = buffer.sample()                  # [32], ordered by (group, member), with the key "staleness"

Works in any TorchRL replay buffer with a one-dimensional TensorDict storage of finished episodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.data.replay_buffers.samplers import Sampler
from torchrl.data.replay_buffers.storages import Storage

from atrl_collectors.rows import GroupRows
from atrl_collectors.staleness import EMPTIED, Books, StalenessPolicy
from atrl_collectors.telemetry import Waits

STALENESS = "staleness"
WAIT = "trainer waits for episodes"


class WaitTimeout(TimeoutError):
    """A wait reached its limit; the message says who waited for whom and what was missing."""


class GroupStalenessSampler(Sampler):
    """Selects by a StalenessPolicy and keeps the Books of what it trained and dropped.

    Args:
        policy: the rules. The number of groups in a batch follows from the batch size asked for.
        timeout: seconds that one call may wait before it raises WaitTimeout.
        waits: where the time spent waiting is noted (its own Waits by default).

    Hooks, all optional, called while it waits (the buffer's locks are released, so that writers can write):
        collect_more() -> bool: get more episodes into the buffer, in the calling thread; whether some came.
            It may sleep for a moment when there are none. Without it, the sampler looks every millisecond.
        check_alive(): raises when those who should write are dead.
        explain() -> str: what the writers are doing, for the message of a timeout.
    """

    def __init__(
        self, policy: StalenessPolicy, *, timeout: float = 600.0, waits: Waits | None = None
    ) -> None:
        self.policy = policy
        self.timeout = timeout
        self.waits = Waits() if waits is None else waits
        self.books = Books()
        self.rows = GroupRows(policy, self.books)
        self.collect_more: Callable[[], bool] | None = None
        self.check_alive: Callable[[], None] | None = None
        self.explain: Callable[[], str] | None = None
        self._consumer_version = 0
        self._retired = 0  # groups trained max_uses times, as of the current version
        self._retiring = 0  # those that count as finished from the next version on

    # --- the consumer -------------------------------------------------------------------------------

    @property
    def consumer_version(self) -> int:
        """The version of the weights that the next batch trains."""
        return self._consumer_version

    @consumer_version.setter
    def consumer_version(self, version: int) -> None:
        if version < self._consumer_version:
            raise ValueError(f"versions only grow: got {version} after {self._consumer_version}")
        if version > self._consumer_version:
            # Only now, so that whoever starts a group on the strength of it gets the new weights.
            self._retired += self._retiring
            self._retiring = 0
        self._consumer_version = version

    @property
    def finished(self) -> int:
        """Groups that are done with: trained max_uses times (and the version moved on), or dropped."""
        return self._retired + self.rows.given_up

    @property
    def admitted(self) -> int:
        """Groups of the global stream that may be started by now."""
        return self.policy.admitted(self.finished)

    @property
    def resident_tokens(self) -> int:
        """Response tokens in the buffer that were not trained yet (as of the last look at the storage)."""
        return self.rows.resident_tokens

    def start_from(self, group: int, consumer_version: int) -> None:
        """Go on with an earlier run: every group before `group` is finished."""
        self._retired, self._consumer_version = group, consumer_version

    def look(self, storage: Storage) -> None:
        """Take note of what was written. `sample` does it, too; between two looks a row is written once."""
        count = len(storage)
        if count:
            data = getattr(storage, "_storage", None)
            if not isinstance(data, TensorDictBase):
                data = storage[:count]
            self.rows.look(data, count, int(storage.max_size))

    # --- TorchRL's interface ------------------------------------------------------------------------

    def sample(self, storage: Storage, batch_size: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Row indices [batch_size] ordered by (group, member), and {"staleness": [batch_size] int64}.

        Waits until there are enough groups. WaitTimeout after `timeout` seconds; what `check_alive` raises.
        """
        count = self._groups_in(batch_size)
        groups = self._ready(storage)
        if groups.numel() < count:
            groups = self._wait(storage, groups, count)
        index, staleness, retiring = self.rows.take(groups[:count], self._consumer_version)
        self._retiring += retiring
        return index, {STALENESS: staleness}

    def _sampleable_count(self, storage: Storage, batch_size: int) -> int:
        return batch_size if self._ready(storage).numel() >= self._groups_in(batch_size) else 0

    def _empty(self) -> None:
        # The consumer's version stays: what is written later is judged by it, too.
        rows = self.rows
        self.books.drop(EMPTIED, rows.resident_tokens, int(rows.untrained.sum()))
        self._retired += int(rows.group[rows.live].unique().numel())
        rows.forget()

    def state_dict(self) -> dict[str, Any]:
        counts = {name: getattr(self, f"_{name}") for name in ("consumer_version", "retired", "retiring")}
        return {**counts, "books": self.books.state_dict(), "rows": self.rows.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name in ("consumer_version", "retired", "retiring"):
            setattr(self, f"_{name}", int(state_dict[name]))
        self.books.load_state_dict(state_dict["books"])
        self.rows.load_state_dict(state_dict["rows"])

    def dumps(self, path: str | Path) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)
        torch.save(self.state_dict(), Path(path) / "sampler.pt")

    def loads(self, path: str | Path) -> None:
        self.load_state_dict(torch.load(Path(path) / "sampler.pt", weights_only=True))

    def __getstate__(self) -> dict[str, Any]:
        # The hooks belong to this process.
        return {**super().__getstate__(), "collect_more": None, "check_alive": None, "explain": None}

    def __repr__(self) -> str:
        return f"GroupStalenessSampler({self.policy}, consumer_version={self._consumer_version})"

    # --- waiting ------------------------------------------------------------------------------------

    def _groups_in(self, batch_size: int) -> int:
        count, rest = divmod(batch_size, self.policy.samples_per_prompt)
        if rest or count < 1:
            raise ValueError(
                f"a batch of {batch_size} episodes does not hold complete groups of "
                f"samples_per_prompt={self.policy.samples_per_prompt}; give a multiple of it"
            )
        return count

    def _ready(self, storage: Storage) -> Tensor:
        self.look(storage)
        return self.rows.ready(self._consumer_version)

    def _wait(self, storage: Storage, groups: Tensor, count: int) -> Tensor:
        began = time.monotonic()
        with self.waits(WAIT):
            while True:
                with _unlocked(storage):
                    came = self._let_others_work()
                groups = self._ready(storage) if came else groups
                if groups.numel() >= count:
                    return groups
                if time.monotonic() - began > self.timeout:
                    raise WaitTimeout(self._missing(groups.numel(), count, time.monotonic() - began))

    def _let_others_work(self) -> bool:
        """Whether there may be new rows afterwards."""
        if self.check_alive is not None:
            self.check_alive()
        if self.collect_more is not None:
            return self.collect_more()
        time.sleep(0.001)
        return True

    def _missing(self, ready: int, count: int, seconds: float) -> str:
        partial = self.rows.group[self.rows.live].unique().numel() - ready
        writers = "Nobody told the sampler who writes the episodes."
        if self.explain is not None:
            writers = self.explain()
        return (
            f"the trainer waited {seconds:.1f} s for {count} complete groups of "
            f"{self.policy.samples_per_prompt} episodes at version {self._consumer_version} "
            f"(max_staleness={self.policy.max_staleness}), and {ready} came. "
            f"{partial} groups are incomplete; groups below {self.admitted} may start; "
            f"episodes dropped so far: {dict(self.books.episodes) or 'none'}.\n{writers}\n"
            "Look at those who write, or give a longer timeout if they are only slow."
        )


@contextmanager
def _unlocked(storage: Storage) -> Iterator[None]:
    """Let the writers in: a TorchRL buffer calls its sampler with its own locks held."""
    with ExitStack() as stack:
        for buffer in storage._attached_entities:
            try:
                buffer._replay_lock.release()
            except (AttributeError, RuntimeError):  # not held by us: the sampler was called without it
                continue
            if hasattr(buffer._write_lock, "release"):  # a shared buffer's, between processes
                buffer._write_lock.release()
                stack.callback(buffer._write_lock.acquire)
            stack.callback(buffer._replay_lock.acquire)  # runs first: the order in which it takes them
        yield
