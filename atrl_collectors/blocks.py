"""A TorchRL collector whose step is one block of tokens in every slot, and that delivers only episodes.

    collector = BlockCollector(env, policy, replay_buffer=Delivery(record, put=buffer.extend))
    collector.block()                        # episodes that ended in it are delivered

TorchRL's process backend builds one in every worker (`collector_class=BlockCollector`). Episodes are
delivered from inside the step: nothing that was collected is thrown away between TorchRL's messages.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torchrl.collectors import Collector

from atrl_collectors import telemetry
from atrl_collectors.delivery import Delivery, Desk
from atrl_collectors.episodes import EpisodeAssembler, response_tokens
from atrl_collectors.late import LateRewards
from atrl_envs import keys

CONTROL_SECONDS = 0.05  # how often a worker looks for TorchRL's control messages, which costs a millisecond
STATUS_SECONDS = 0.05  # how often it says which weights it serves


class Admission:
    """Tells an environment how many groups may be started; notes how long it was asked again and again."""

    def __init__(self, source: Callable[[], int]) -> None:
        self._source = source
        self._first = self._last = 0

    def __call__(self) -> int:
        self._last = time.monotonic_ns()
        self._first = self._first or self._last
        return self._source()

    def waited(self) -> int:
        """Nanoseconds between the first and the last question since this was asked; forgets them."""
        waited = self._last - self._first
        self._first = self._last = 0
        return waited


class BlockCollector(Collector):
    """See above. Iterating yields None, now and then: a turn for whoever runs it."""

    def __init__(
        self,
        create_env_fn: Any,
        policy: Any = None,
        *,
        replay_buffer: Delivery | Desk,
        worker_idx: int | None = None,
        **options: Any,
    ) -> None:
        self.deliver = replay_buffer.for_worker(worker_idx or 0)
        self.record = self.deliver.record
        options.update(use_buffers=False, trust_policy=True, track_traj_ids=False)
        super().__init__(create_env_fn, policy, replay_buffer=replay_buffer, worker_idx=worker_idx, **options)
        # TorchRL then stacks a rollout lazily: nothing is copied before the assembler reads it.
        self._ignore_rb = False
        self.assembler = EpisodeAssembler()
        self.late = LateRewards(base_env(self.env))
        self.admission = getattr(base_env(self.env), "admission", None)
        self._said = 0.0
        self._time_policy()
        self.record["pid"] = os.getpid()
        self.record["slots"] = self.n_env
        self.record["started"] = self.record["heartbeat"] = time.monotonic_ns()
        self.record.commit()

    def iterator(self) -> Iterator[None]:
        """Blocks without end; every CONTROL_SECONDS a turn for TorchRL's runner to look for messages."""
        try:
            yield from self._turns()
        except Exception:
            self.deliver.fail()
            raise

    def _turns(self) -> Iterator[None]:
        turn = time.monotonic()
        while True:
            if self.deliver.closed():
                self.record["state"] = telemetry.CLOSED
                self.record.commit()
                time.sleep(0.002)
                yield
            else:
                self.block()
                if time.monotonic() - turn > CONTROL_SECONDS:
                    yield
                    turn = time.monotonic()

    def block(self) -> int:
        """One block in every slot: step, assemble, deliver, say so. Returns how many slots and rewards are open."""
        began = time.monotonic_ns()
        episodes = self.late(self.assembler(self.rollout()))
        busy = self.assembler.slots_busy
        record, ended = self.record, time.monotonic_ns()
        waited = self.admission.waited() if isinstance(self.admission, Admission) else 0
        if not busy:
            waited = ended - began  # there was nothing to do
        record["blocks"] += 1
        record["slots_busy"] += busy
        record["admission_ns"] += waited
        record["busy_ns"] += ended - began - waited
        record["state"] = telemetry.DECODING if busy else telemetry.WAITS_FOR_ADMISSION
        record["heartbeat"] = ended
        record["tokens_generated"] = self.assembler.generated
        record["tokens_abandoned"] = self.assembler.abandoned
        record["tokens_in_flight"] = self.assembler.in_flight + self.late.tokens
        if len(episodes):
            record["tokens_in_flight"] += int(response_tokens(episodes).sum())
        if ended - self._said > STATUS_SECONDS * 1e9:
            self._say_weights()
            self._said = ended
        if len(episodes):
            self.deliver(episodes)
        else:
            record.commit()
        if not busy:
            time.sleep(0.001)  # an environment that does not wait by itself
        return busy + self.late.count

    def shutdown(self, *args: Any, **options: Any) -> None:
        super().shutdown(*args, **options)
        if self.deliver.channel is not None and self.deliver.closed():
            # In a worker at the end of a run. Nothing is left to save, and taking the interpreter down in
            # order, with everything that torch has loaded, takes seconds of the trainer's patience.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    def _say_weights(self) -> None:
        for name in (keys.VERSION, "fingerprint"):
            value = getattr(self.policy, name, None)
            if value is not None:
                self.record[name] = int(value)

    def _time_policy(self) -> None:
        if not isinstance(self.policy, torch.nn.Module):
            return
        began = [0]

        def start(*_: Any) -> None:
            began[0] = time.monotonic_ns()

        def stop(*_: Any) -> None:
            if int(began[0]):
                self.record["decode_ns"] += time.monotonic_ns() - began[0]

        self.policy.register_forward_pre_hook(start)
        self.policy.register_forward_hook(stop)


def base_env(env: Any) -> Any:
    """The environment under TorchRL's transforms."""
    return getattr(env, "base_env", env)


def admit(env: Any, source: Callable[[], int]) -> Any:
    """Let `source` say how many groups the environment may start."""
    base_env(env).admission = Admission(source)
    return env
