"""Collection in the trainer's own process: the environment is stepped whenever the buffer lacks groups.

collector = DirectCollector(env_fn, policy_fn, buffer, mailbox=None)
batch = buffer.sample()                  # steps block after block until a batch of groups is complete
"""

from __future__ import annotations

from typing import Any

import torch
from torchrl.envs import EnvBase

from atrl_collectors.blocks import BlockCollector, admit, base_env
from atrl_collectors.buffer import EpisodeBuffer
from atrl_collectors.collector import EpisodeCollector
from atrl_collectors.delivery import Delivery
from atrl_collectors.telemetry import WorkerRecord, WorkerStatus
from atrl_collectors.weights import WeightMailbox
from atrl_collectors.workers import EnvFn, PolicyFn

IDLE_BLOCKS = 3  # blocks without work, one after the other, that mean a dead end


class DirectCollector(EpisodeCollector):
    """Steps the environment in the trainer's process, one block at a time, when the buffer lacks groups."""

    def __init__(
        self,
        env_fn: EnvFn | EnvBase,
        policy_fn: PolicyFn | torch.nn.Module,
        buffer: EpisodeBuffer,
        mailbox: WeightMailbox | None,
    ) -> None:
        env = env_fn if isinstance(env_fn, EnvBase) else env_fn(worker=0, num_workers=1)
        policy = policy_fn if isinstance(policy_fn, torch.nn.Module) else policy_fn()
        admit(env, (lambda: buffer.admitted) if mailbox is None else (lambda: mailbox.admitted))
        base_env(env).idle_wait = 0.0  # nobody could admit anything while it waits
        self._record = WorkerRecord.private()
        self.collector = BlockCollector(
            env,
            policy,
            replay_buffer=Delivery(self._record, put=buffer.extend),
            frames_per_batch=env.batch_size.numel(),
            auto_register_policy_transforms=False,
        )
        self._idle = 0
        super().__init__(buffer, mailbox)
        self.status()

    @property
    def env(self) -> Any:
        """The environment that is stepped."""
        return base_env(self.collector.env)

    def collect_more(self) -> bool:
        delivered = self._record["episodes_delivered"]
        self._admit()
        busy = self.collector.block()
        self._idle = 0 if busy else self._idle + 1
        if self._idle > IDLE_BLOCKS:
            raise RuntimeError(
                "no more episodes can come: every slot of the environment is idle, groups below "
                f"{self.buffer.admitted} may start, and the buffer still lacks complete groups. The "
                "environment's group_size must be samples_per_prompt, its start_group the buffer's "
                "next_group, and weights must have been published and advanced to"
            )
        self.status()
        return self._record["episodes_delivered"] > delivered

    def check(self) -> None:
        return

    def _look(self) -> list[WorkerStatus]:
        return [self._record.read()]

    def _close(self) -> None:
        self.status()
        self.collector.shutdown()
