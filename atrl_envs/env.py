"""The environment: slots that write responses block by block, judged when they end. A TorchRL EnvBase.

    env = atrl_envs.make("atrl/Addition-v0", num_envs=64, group_size=8, block_size=4)
    data = env.rollout(100, policy, break_when_any_done=False)      # finished slots go on with new problems

An action is a block of K tokens, cut at its first EOS (inclusive) or at the length limit; what stands after the
cut is ignored. Episodes, rewards and verdicts do not depend on K. Reward is 0 until the end, then 1.0 if CORRECT.
A slot that may get no problem (see `admission`) is idle: group -1, no tokens, and every step reports it done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import Bounded, Categorical, Composite, Unbounded
from torchrl.envs import EnvBase

from atrl_envs import keys
from atrl_envs.bank import TEST_FRACTION, ProblemBank
from atrl_envs.groups import GroupStream
from atrl_envs.options import EnvOptions
from atrl_envs.registry import TaskSpec
from atrl_envs.task import Task
from atrl_envs.vocab import Vocab


class VerifiableEnv(EnvBase):
    """B slots over a bank of problems; batch size [B], blocks of K tokens, S = max_prompt_length + max_new_tokens.

    Observations (see `keys`): tokens [B, S], prompt_length, length, problem, group, member [B, 1] int64; verdict
    [B, 1] int8, -1 until the episode ends. Action [B, K] int64. Reward [B, 1] float32. EOS terminates an episode,
    the length limit truncates it. Tokens and lengths are read from the tensordict that `step` gets.

    Attributes: `bank`, `vocab`, `verifier`, `task`, the options, and two that may be set at any time:
    admission: () -> int, the number of groups that may be started, asked once a reset; None: no limit.
    idle_wait: seconds to wait for an admission when all slots are idle, before idle slots are returned anyway.
    """

    def __init__(
        self,
        bank: ProblemBank,
        options: EnvOptions,
        task: Task | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        from atrl_envs.verify import Verdict

        super().__init__(device=torch.device(device), batch_size=[options.num_envs])
        self.options, self.task = options, task
        self.num_envs, self.group_size, self.block_size = (
            options.num_envs,
            options.group_size,
            options.block_size,
        )
        self.max_new_tokens, self.split = options.max_new_tokens, options.split
        self.vocab, self.max_prompt_length = bank.vocab, bank.max_prompt_length
        self.sequence_length = self.max_prompt_length + self.max_new_tokens
        self.admission: Callable[[], int] | None = None
        self.idle_wait = 0.2
        self._correct = int(Verdict.CORRECT)
        self._largest_verdict = max(int(verdict) for verdict in Verdict)
        self._place(bank, options.seed, place=0)
        self._make_specs()

    @property
    def verifier(self) -> Any:
        """The judge: (tokens [B, S], start [B], answers [B], end [B]) -> verdicts [B] int8."""
        return self.bank.verifier

    @property
    def seed(self) -> int:
        return self._stream.seed

    @property
    def cursor(self) -> dict[str, int]:
        """What is handed out next: seed and place say it exactly, group and member are for people."""
        place, stream = self._stream.place, self._stream
        group = stream.first + place // self.group_size * stream.stride
        return {
            "seed": stream.seed,
            "place": place,
            keys.GROUP: group,
            keys.MEMBER: place % self.group_size,
        }

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The cursor. Restoring it continues the stream; episodes in flight are not part of it."""
        return {"cursor": self.cursor}

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
        """Continue where `state_dict` was taken; the env must have the same bank and options."""
        cursor = state_dict["cursor"]
        self._stream.reseed(int(cursor["seed"]))
        self._stream.seek(int(cursor["place"]))

    def to(self, device: torch.device | str) -> VerifiableEnv:
        super().to(device)
        if self.bank.data.device != self.device:
            self._place(self.bank, self.seed, self._stream.place)
        return self

    def _place(self, bank: ProblemBank, seed: int, place: int) -> None:
        """Take the bank to the env's device and stand at `place` of the stream."""
        options = self.options
        self.bank = bank.to(self.device)
        self._stream = GroupStream(
            size=len(bank),
            group_size=options.group_size,
            seed=seed,
            split=options.split,
            device=self.device,
            worker=options.worker,
            num_workers=options.num_workers,
            start_group=options.start_group,
            shuffle=options.shuffle,
        )
        self._stream.seek(place)
        self._offsets = torch.arange(self.block_size, device=self.device).unsqueeze(0)

    def _make_specs(self) -> None:
        shape, width = (self.num_envs, 1), self.sequence_length

        def integers(low: int, high: int, size: tuple[int, ...] = shape, dtype: Any = torch.int64) -> Bounded:
            return Bounded(low, high, shape=size, dtype=dtype, device=self.device)

        self.observation_spec = Composite(
            {
                keys.TOKENS: integers(0, self.vocab.size - 1, (self.num_envs, width)),
                keys.PROMPT_LENGTH: integers(0, self.max_prompt_length),
                keys.LENGTH: integers(0, width),
                keys.PROBLEM: integers(-1, len(self.bank) - 1),
                keys.GROUP: Unbounded(shape=shape, dtype=torch.int64, device=self.device),
                keys.MEMBER: integers(-1, self.group_size - 1),
                keys.VERDICT: integers(-1, self._largest_verdict, dtype=torch.int8),
            },
            shape=[self.num_envs],
        )
        self.action_spec = Categorical(
            self.vocab.size, shape=(self.num_envs, self.block_size), dtype=torch.int64, device=self.device
        )
        self.reward_spec = Bounded(0.0, 1.0, shape=shape, dtype=torch.float32, device=self.device)
        flag = Categorical(2, shape=shape, dtype=torch.bool, device=self.device)
        self.done_spec = Composite(
            {keys.DONE: flag, keys.TERMINATED: flag.clone(), keys.TRUNCATED: flag.clone()},
            shape=[self.num_envs],
        )

    def _set_seed(self, seed: int | None) -> None:
        """Start the stream of groups over, shuffled by this seed; the bank stays."""
        if seed is not None:
            self._stream.reseed(int(seed))

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        mask = None if tensordict is None else tensordict.get("_reset", None)
        if mask is None:
            mask = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
        problem, group, member = self._hand_out(mask.reshape(self.num_envs))
        idle = group < 0
        row = problem.clamp(min=0)
        length = self.bank.prompt_length[row].masked_fill(idle, 0).unsqueeze(1)
        tokens = torch.full(
            (self.num_envs, self.sequence_length), self.vocab.pad_id, dtype=torch.int64, device=self.device
        )
        prompts = self.bank.prompts[row].masked_fill(idle.unsqueeze(1), self.vocab.pad_id)
        tokens[:, : self.max_prompt_length] = prompts
        return TensorDict(
            {
                keys.TOKENS: tokens,
                keys.PROMPT_LENGTH: length,
                keys.LENGTH: length.clone(),
                keys.PROBLEM: problem.unsqueeze(1),
                keys.GROUP: group.unsqueeze(1),
                keys.MEMBER: member.unsqueeze(1),
                keys.VERDICT: torch.full_like(length, -1, dtype=torch.int8),
                keys.DONE: torch.zeros_like(length, dtype=torch.bool),
                keys.TERMINATED: torch.zeros_like(length, dtype=torch.bool),
                keys.TRUNCATED: torch.zeros_like(length, dtype=torch.bool),
            },
            batch_size=self.batch_size,
            device=self.device,
        )

    def _hand_out(self, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        deadline = time.monotonic() + self.idle_wait
        while True:
            slots = self._stream.assign(mask, None if self.admission is None else self.admission())
            if not slots.nothing or time.monotonic() >= deadline:
                return slots.problem, slots.group, slots.member
            time.sleep(0.001)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        action, tokens = tensordict[keys.ACTION], tensordict[keys.TOKENS]
        start, length = tensordict[keys.PROMPT_LENGTH], tensordict[keys.LENGTH]
        problem, group = tensordict[keys.PROBLEM], tensordict[keys.GROUP]
        idle = group < 0
        limit = start + self.max_new_tokens

        ends = action == self.vocab.eos_id
        real = (ends.cumsum(1) == ends) & (length + self._offsets < limit) & ~idle  # up to the first EOS
        taken = real.sum(1, keepdim=True)
        tokens = self._write(tokens, length, action, taken)
        length = length + taken

        terminated = (ends & real).any(1, keepdim=True) | idle
        truncated = ~terminated & (length >= limit)
        done = terminated | truncated
        verdict = self._judge(tokens, start, length, problem, done & ~idle)
        return TensorDict(
            {
                keys.TOKENS: tokens,
                keys.PROMPT_LENGTH: start,
                keys.LENGTH: length,
                keys.PROBLEM: problem,
                keys.GROUP: group,
                keys.MEMBER: tensordict[keys.MEMBER],
                keys.VERDICT: verdict,
                keys.REWARD: (verdict == self._correct).to(torch.float32),
                keys.DONE: done,
                keys.TERMINATED: terminated,
                keys.TRUNCATED: truncated,
            },
            batch_size=self.batch_size,
            device=self.device,
        )

    def _write(self, tokens: Tensor, length: Tensor, action: Tensor, taken: Tensor) -> Tensor:
        """A copy of tokens [B, S] with the first `taken` [B, 1] of each block at `length` [B, 1]."""
        # Columns beyond the cut repeat the last real one: they write the same value to the same place.
        column = torch.minimum(self._offsets, (taken - 1).clamp(min=0))
        place = (length + column).clamp(max=self.sequence_length - 1)
        value = torch.where(taken > 0, action.gather(1, column), tokens.gather(1, place))
        return tokens.scatter(1, place, value)

    def _judge(self, tokens: Tensor, start: Tensor, length: Tensor, problem: Tensor, ended: Tensor) -> Tensor:
        """Verdicts [B, 1] int8 of the rows that ended, -1 elsewhere."""
        verdict = torch.full(ended.shape, -1, dtype=torch.int8, device=self.device)
        start, length, problem = start.squeeze(1), length.squeeze(1), problem.squeeze(1).clamp(min=0)
        if self.device.type == "cpu":  # here looking is free, so only what ended is judged
            rows = ended.squeeze(1).nonzero().squeeze(1)
            if rows.numel():
                answers = self.bank.answers[problem[rows]]
                judged = self.verifier(tokens[rows], start[rows], answers, end=length[rows])
                verdict[rows, 0] = judged.to(torch.int8)
            return verdict
        judged = self.verifier(tokens, start, self.bank.answers[problem], end=length)
        return torch.where(ended, judged.to(torch.int8).unsqueeze(1), verdict)


def make_env(
    spec: TaskSpec,
    task: Task,
    *,
    vocab: Vocab | None = None,
    device: torch.device | str = "cpu",
    max_new_tokens: int | None = None,
    max_prompt_length: int | None = None,
    style: str | None = None,
    bank: ProblemBank | None = None,
    bank_size: int | None = None,
    test_fraction: float = TEST_FRACTION,
    **options: Any,
) -> VerifiableEnv:
    """Build the bank, unless one is given, and the env over it; the options are those of `atrl_envs.make`."""
    if bank is None:
        bank = ProblemBank.build(
            task,
            Vocab.characters() if vocab is None else vocab,
            split=options.get("split", "train"),
            seed=options.get("seed", 0),
            style=style or spec.style,
            size=bank_size,
            test_fraction=test_fraction,
            max_prompt_length=max_prompt_length or spec.max_prompt_length,
        )
    elif vocab is not None and vocab != bank.vocab:
        raise ValueError(
            f"the given bank was made with {bank.vocab!r}, not with {vocab!r}; pass one of the two"
        )
    longest = max_new_tokens or spec.max_new_tokens or bank.longest_response()
    return VerifiableEnv(bank, EnvOptions(max_new_tokens=longest, **options), task, device)
