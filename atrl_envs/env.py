"""The environment: slots that write responses block by block, judged when they end. A TorchRL EnvBase.

    env = atrl_envs.make("atrl/Addition-v0", num_envs=64, group_size=8, block_size=4)
    data = env.rollout(100, policy, break_when_any_done=False)      # finished slots go on with new problems

An action is a block of K tokens, cut at its first EOS (inclusive) or at the length limit; what stands after the
cut is ignored. Episodes, rewards and verdicts do not depend on K. Reward is 0 until the end, then 1.0 if CORRECT.
A slot that may get no problem (see `admission`) is idle: group -1, no tokens, and every step reports it done.
"""

from __future__ import annotations

import math
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
from atrl_envs.cases import NO_TICKET
from atrl_envs.curriculum import Curriculum
from atrl_envs.groups import GroupStream, Levels
from atrl_envs.judge import Fallback, Judge, which_fallback
from atrl_envs.options import EnvOptions
from atrl_envs.registry import TaskSpec
from atrl_envs.rewards import Rewards, compose
from atrl_envs.task import Task
from atrl_envs.vocab import Vocab


class VerifiableEnv(EnvBase):
    """B slots over a bank of problems; batch size [B], blocks of K tokens, S = max_prompt_length + max_new_tokens.

    Observations (see `keys`): tokens [B, S], prompt_length, length, problem, group, member [B, 1] int64; verdict
    [B, 1] int8, -1 until the episode ends. Action [B, K] int64. Reward [B, 1] float32. EOS terminates an episode,
    the length limit truncates it. Tokens and lengths are read from the tensordict that `step` gets.

    reward_parts [B, R] float32: its components; scored [B, 1] bool: the episode ended and its reward counts; ticket
    [B, 1] int64: -1, or under which number `settled` will give the reward.

    Attributes: `bank`, `vocab`, `verifier`, `task`, `rewards`, `curriculum`, the options, and three that may be set at
    any time:
    admission: () -> int, the number of groups that may be started, asked once a reset; None: no limit.
    idle_wait: seconds to wait for an admission when all slots are idle, before idle slots are returned anyway.
    defer: False: a step waits for the host where it must judge. True: it gives a ticket and goes on; `settled` has the
        rewards when they are there.
    """

    def __init__(
        self,
        bank: ProblemBank,
        options: EnvOptions,
        task: Task | None = None,
        device: torch.device | str = "cpu",
        *,
        rewards: Rewards | None = None,
        fallback: Fallback = "auto",
        curriculum: Any = None,
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
        self.defer = False
        self.rewards, self.curriculum = compose(rewards), curriculum
        self._fallback = fallback
        self._judge: Judge | None = None
        self._largest_verdict = max(int(verdict) for verdict in Verdict)
        self._place(bank, options.seed, place=0)
        self._make_specs()

    def __repr__(self) -> str:
        sizes = ", ".join(
            f"{n}={getattr(self, n)!r}" for n in ("num_envs", "group_size", "block_size", "split")
        )
        return f"VerifiableEnv({type(self.task).__name__}, {sizes}, device={str(self.device)!r})"

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
        """Cursor and curriculum. Restoring them continues the stream; episodes in flight are not part of it."""
        state: dict[str, Any] = {"cursor": self.cursor}
        if hasattr(self.curriculum, "state_dict"):
            state["curriculum"] = self.curriculum.state_dict()
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
        """Continue where `state_dict` was taken; the env must have the same bank and options."""
        cursor = state_dict["cursor"]
        self._stream.reseed(int(cursor["seed"]))
        self._stream.seek(int(cursor["place"]))
        if "curriculum" in state_dict and self.curriculum is not None:
            self.curriculum.load_state_dict(state_dict["curriculum"])

    def to(self, device: torch.device | str) -> VerifiableEnv:
        super().to(device)
        if self.bank.data.device != self.device:
            self._place(self.bank, self.seed, self._stream.place)
        return self

    def _place(self, bank: ProblemBank, seed: int, place: int) -> None:
        """Take the bank to the env's device and stand at `place` of the stream."""
        options, levels = self.options, None
        self.bank = bank.to(self.device)
        if self._judge is not None:
            self._judge.close()
        self._judge = Judge(
            self.bank,
            self.rewards,
            max_new_tokens=self.max_new_tokens,
            fallback=self._fallback,
            curriculum=self.curriculum,
        )
        if self.curriculum is not None:
            levels = Levels(self.bank.difficulty, self.curriculum.weights)
            self.curriculum.begin(levels.count.shape[0], self.device)
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
            levels=levels,
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
                keys.REWARD_PARTS: Unbounded(
                    shape=(self.num_envs, len(self.rewards.names)), dtype=torch.float32, device=self.device
                ),
                keys.SCORED: Categorical(2, shape=shape, dtype=torch.bool, device=self.device),
                keys.TICKET: Unbounded(shape=shape, dtype=torch.int64, device=self.device),
            },
            shape=[self.num_envs],
        )
        self.action_spec = Categorical(
            self.vocab.size, shape=(self.num_envs, self.block_size), dtype=torch.int64, device=self.device
        )
        low, high = self.rewards.bounds
        low, high = min(low, 0.0), max(high, 0.0)  # 0 until an episode ends
        if math.isfinite(low) and math.isfinite(high):
            self.reward_spec = Bounded(low, high, shape=shape, dtype=torch.float32, device=self.device)
        else:
            self.reward_spec = Unbounded(shape=shape, dtype=torch.float32, device=self.device)
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
                keys.REWARD_PARTS: torch.zeros(self.num_envs, len(self.rewards.names), device=self.device),
                keys.SCORED: torch.zeros_like(length, dtype=torch.bool),
                keys.TICKET: torch.full_like(length, NO_TICKET),
                keys.DONE: torch.zeros_like(length, dtype=torch.bool),
                keys.TERMINATED: torch.zeros_like(length, dtype=torch.bool),
                keys.TRUNCATED: torch.zeros_like(length, dtype=torch.bool),
            },
            batch_size=self.batch_size,
            device=self.device,
        )

    def _hand_out(self, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # While rewards are open the caller has something to ask for.
        deadline = time.monotonic() + (0.0 if self.pending else self.idle_wait)
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
        judged = self.judge.ended(
            tokens,
            start.squeeze(1),
            length.squeeze(1),
            problem.squeeze(1).clamp(min=0),
            (done & ~idle).squeeze(1),
            defer=self.defer,
        )
        return TensorDict(
            {
                keys.TOKENS: tokens,
                keys.PROMPT_LENGTH: start,
                keys.LENGTH: length,
                keys.PROBLEM: problem,
                keys.GROUP: group,
                keys.MEMBER: tensordict[keys.MEMBER],
                keys.VERDICT: judged.verdict.unsqueeze(1),
                keys.REWARD: judged.reward.unsqueeze(1),
                keys.REWARD_PARTS: judged.parts,
                keys.SCORED: judged.scored.unsqueeze(1),
                keys.TICKET: judged.ticket.unsqueeze(1),
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

    # -- judging ---------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Episodes that ended with a ticket and are not settled."""
        return self.judge.cases.pending

    @property
    def judge(self) -> Judge:
        """What turns responses into verdicts and rewards."""
        assert self._judge is not None
        return self._judge

    def settled(self, wait: float = 0.0) -> TensorDict | None:
        """Rewards that the host has computed since the last call (see `defer`), or None: a TensorDict [m] of ticket,
        verdict, reward, reward_parts and scored. wait: seconds to wait for a first one while any is open.
        """
        return self.judge.settled(wait)

    def close(self, *args: Any, **kwargs: Any) -> None:
        self.judge.close()
        super().close(*args, **kwargs)


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
    fallback: Any = "auto",
    rewards: Any = None,
    allow_outscoring: bool = False,
    curriculum: Any = None,
    chat: bool = False,
    system: str = "",
    **options: Any,
) -> VerifiableEnv:
    """Build the bank, unless one is given, and the env over it; the options are those of `atrl_envs.make`."""
    composed, fallback = compose(rewards, allow_outscoring=allow_outscoring), which_fallback(fallback)
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
            fallback=fallback != "never",
            chat=chat,
            system=system,
        )
    elif vocab is not None and vocab != bank.vocab:
        raise ValueError(
            f"the given bank was made with {bank.vocab!r}, not with {vocab!r}; pass one of the two"
        )
    longest = max_new_tokens or spec.max_new_tokens or bank.longest_response()
    return VerifiableEnv(
        bank,
        EnvOptions(max_new_tokens=longest, **options),
        task,
        device,
        rewards=composed,
        fallback=fallback,
        curriculum=Curriculum() if curriculum is True else curriculum or None,
    )
