"""A small environment and policy with the keys and rules of the real ones, whose every outcome is known.

A prompt is [group % 7, member]; the right response has `wanted(group, member)` tokens, the last one EOS, and
the policy always gives it. Tokens, lengths and rewards can therefore be recomputed from (group, member).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.data import Bounded, Categorical, Composite, Unbounded
from torchrl.envs import EnvBase

from atrl_collectors import WeightMailbox
from atrl_envs import keys

PAD, EOS = 0, 1
PROMPT = 2
LIMIT = 12  # of new tokens; some responses want more and are cut
S = PROMPT + LIMIT


def wanted(group: Tensor, member: Tensor) -> Tensor:
    """How many tokens the right response has: 1 to 14, so that some are cut at LIMIT."""
    return 1 + (group * 5 + member * 3) % 14


def true_length(group: Tensor, member: Tensor) -> Tensor:
    return wanted(group, member).clamp(max=LIMIT)


class ToyEnv(EnvBase):
    """Groups worker, worker + num_workers, ... of `group_size` members each, as far as `admission` allows."""

    def __init__(
        self,
        *,
        slots: int = 6,
        group_size: int = 2,
        block: int = 3,
        worker: int = 0,
        num_workers: int = 1,
        start_group: int = 0,
    ) -> None:
        super().__init__(device="cpu", batch_size=[slots])
        self.group_size, self.block = group_size, block
        self.group, self.member, self.stride = start_group + worker, 0, num_workers
        self.admission: Callable[[], int] | None = None
        self.idle_wait = 0.05
        whole = Unbounded(shape=(slots, 1), dtype=torch.int64)
        self.observation_spec = Composite(
            {
                keys.TOKENS: Unbounded(shape=(slots, S), dtype=torch.int64),
                **{key: whole.clone() for key in (keys.PROMPT_LENGTH, keys.LENGTH, keys.PROBLEM)},
                **{key: whole.clone() for key in (keys.GROUP, keys.MEMBER)},
                keys.VERDICT: Unbounded(shape=(slots, 1), dtype=torch.int8),
            },
            shape=[slots],
        )
        self.action_spec = Categorical(100, shape=(slots, block), dtype=torch.int64)
        self.reward_spec = Bounded(0.0, 1.0, shape=(slots, 1), dtype=torch.float32)
        flag = Categorical(2, shape=(slots, 1), dtype=torch.bool)
        names = (keys.DONE, keys.TERMINATED, keys.TRUNCATED)
        self.done_spec = Composite({name: flag.clone() for name in names}, shape=[slots])

    def _set_seed(self, seed: int | None) -> None: ...

    def _hand_out(self, mask: Tensor) -> Tensor:
        deadline = time.monotonic() + self.idle_wait
        while True:
            limit = self.admission() if self.admission is not None else 1 << 60
            out = torch.full((len(mask), 2), -1)
            for slot in mask.nonzero().squeeze(-1).tolist():
                if self.group < limit:
                    out[slot, 0], out[slot, 1] = self.group, self.member
                    self.member += 1
                    if self.member == self.group_size:
                        self.group, self.member = self.group + self.stride, 0
            if bool((out[:, 0] >= 0).any()) or not bool(mask.all()) or time.monotonic() > deadline:
                return out
            time.sleep(0.001)

    def _reset(self, tensordict: TensorDictBase | None = None, **_: Any) -> TensorDictBase:
        mask = torch.ones(self.batch_size, dtype=torch.bool)
        partial = None if tensordict is None else tensordict.get("_reset", None)
        if partial is not None:
            mask = partial.view(-1)
        out = self._hand_out(mask)
        group, member = out[:, :1], out[:, 1:]
        idle = group < 0
        tokens = torch.full((*self.batch_size, S), PAD)
        tokens[:, :PROMPT] = torch.cat([2 + group % 7, 2 + member], 1).masked_fill(idle, PAD)
        length = torch.full_like(group, PROMPT).masked_fill(idle, 0)
        no = torch.zeros_like(idle)
        return self._state(tokens, length, length.clone(), group, member, no, no.clone())

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        action, tokens = tensordict[keys.ACTION], tensordict[keys.TOKENS].clone()
        group, member = tensordict[keys.GROUP], tensordict[keys.MEMBER]
        prompt, length = tensordict[keys.PROMPT_LENGTH], tensordict[keys.LENGTH].clone()
        idle = group < 0
        ended = idle.clone()
        for k in range(self.block):
            open_ = ~ended & (length < prompt + LIMIT)
            here = (torch.arange(S) == length) & open_
            tokens = torch.where(here, action[:, k : k + 1], tokens)
            length = length + open_
            ended = ended | (open_ & (action[:, k : k + 1] == EOS))
        truncated = ~ended & (length >= prompt + LIMIT)
        out = self._state(tokens, prompt, length, group, member, ended, truncated)
        right = ended & ~idle
        out[keys.REWARD] = right.float()
        done = out[keys.DONE] & ~idle
        out[keys.VERDICT] = torch.where(done, torch.where(right, 0, 1), -1).to(torch.int8)
        return out

    def _state(self, *columns: Tensor) -> TensorDict:
        tokens, prompt, length, group, member, terminated, truncated = columns
        return TensorDict(
            {
                keys.TOKENS: tokens,
                keys.PROMPT_LENGTH: prompt,
                keys.LENGTH: length,
                keys.PROBLEM: torch.where(group < 0, -1, group % 7),
                keys.GROUP: group,
                keys.MEMBER: member,
                keys.VERDICT: torch.full_like(group, -1, dtype=torch.int8),
                keys.DONE: terminated | truncated,
                keys.TERMINATED: terminated,
                keys.TRUNCATED: truncated,
            },
            batch_size=self.batch_size,
        )


class ToyPolicy(TensorDictModuleBase):
    """Gives the right response; log_prob of a token is -(position + version / 100). Polls its mailbox."""

    def __init__(self, block: int = 3, mailbox: WeightMailbox | None = None, seconds: float = 0.0) -> None:
        super().__init__()
        self.in_keys = [keys.TOKENS, keys.LENGTH, keys.PROMPT_LENGTH, keys.GROUP, keys.MEMBER]
        self.out_keys = [keys.ACTION, keys.LOG_PROB, keys.VERSION]
        self.block, self.mailbox, self.seconds = block, mailbox, seconds
        self.blocks_at_work = 0
        self.register_buffer("version", torch.full((1,), -1, dtype=torch.int64))
        self.register_buffer("fingerprint", torch.zeros(1, dtype=torch.int64))

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        update = self.mailbox.poll(int(self.version)) if self.mailbox is not None else None
        if update is not None:
            self.version.fill_(update.version)
            self.fingerprint.fill_(update.fingerprint)
            assert all(bool((tensor == update.version).all()) for tensor in update.tensors.values())
        time.sleep(self.seconds)
        group, member = tensordict[keys.GROUP], tensordict[keys.MEMBER]
        position = tensordict[keys.LENGTH] - tensordict[keys.PROMPT_LENGTH] + torch.arange(self.block)
        last = position == wanted(group, member) - 1
        tensordict[keys.ACTION] = torch.where(last, EOS, 2 + position % 50)
        tensordict[keys.LOG_PROB] = -(position + self.version / 100).float()
        tensordict[keys.VERSION] = self.version.expand_as(position).clone()
        if bool((group >= 0).any()):
            self.blocks_at_work += 1
            self.on_block()
        return tensordict

    def on_block(self) -> None:
        """For policies that misbehave."""


class RaisingPolicy(ToyPolicy):
    def on_block(self) -> None:
        if self.blocks_at_work == 4:
            raise RuntimeError("the toy is broken")


def toy_weights(version: int) -> dict[str, Tensor]:
    return {"a": torch.full((300,), float(version)), "b": torch.full((5, 7), version, dtype=torch.bfloat16)}


class MakeEnv:
    """env_fn: picklable, with an optional accident while it is built."""

    def __init__(self, accident: str = "", **options: Any) -> None:
        self.accident, self.options = accident, options

    def __call__(self, worker: int = 0, num_workers: int = 1) -> ToyEnv:
        if worker == num_workers - 1 and self.accident == "raise":
            raise ValueError("no such toy")
        if worker == num_workers - 1 and self.accident == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.accident == "sleep":
            time.sleep(60)
        return ToyEnv(worker=worker, num_workers=num_workers, **self.options)


class MakePolicy:
    """policy_fn: picklable; the mailbox travels as its path."""

    def __init__(
        self, mailbox: WeightMailbox | None, kind: type[ToyPolicy] = ToyPolicy, **options: Any
    ) -> None:
        self.mailbox, self.kind, self.options = mailbox, kind, options

    def __call__(self) -> ToyPolicy:
        return self.kind(mailbox=self.mailbox, **self.options)
