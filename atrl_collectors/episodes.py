"""Blocks of tokens come in, finished episodes go out: one flat row each, of one fixed layout.

    assemble = EpisodeAssembler()
    for rollout in torchrl_collector:        # [B, T] (or [B]), steps of the environment
        episodes = assemble(rollout)         # [n], n >= 0: the episodes that ended in it

The tokens of an episode come from the environment. What only the policy knows, log-probabilities and weight
versions, is gathered block by block in one row per slot and handed over when the slot is done.
"""

from __future__ import annotations

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from atrl_envs import keys

NO_VERSION = -1  # where no token of the response stands


def episode_layout(
    sequence_length: int, count: int = 1, device: torch.device | str = "cpu", reward_parts: int = 1
) -> TensorDict:
    """`count` empty episodes: the one layout in which episodes are delivered, stored and sampled.

    tokens, version [S] int64, response_mask [S] bool, log_prob [S] float32 (0 outside the response, where the
    version is -1); reward_parts [R] float32; reward float32, verdict int8, problem, group, member, prompt_length,
    length int64, truncated, scored bool, each [].
    """

    def column(dtype: torch.dtype, *shape: int) -> Tensor:
        return torch.zeros(count, *shape, dtype=dtype, device=device)

    scalars = (keys.PROBLEM, keys.GROUP, keys.MEMBER, keys.PROMPT_LENGTH, keys.LENGTH)
    return TensorDict(
        {
            keys.TOKENS: column(torch.int64, sequence_length),
            keys.RESPONSE_MASK: column(torch.bool, sequence_length),
            keys.LOG_PROB: column(torch.float32, sequence_length),
            keys.VERSION: column(torch.int64, sequence_length),
            keys.REWARD: column(torch.float32),
            keys.REWARD_PARTS: column(torch.float32, reward_parts),
            keys.SCORED: column(torch.bool),
            keys.VERDICT: column(torch.int8),
            **{key: column(torch.int64) for key in scalars},
            keys.TRUNCATED: column(torch.bool),
        },
        batch_size=[count],
        device=device,
    )


def oldest_version(episodes: TensorDictBase) -> Tensor:
    """[n] int64: the oldest weights among the response tokens of each episode."""
    newest = torch.iinfo(torch.int64).max
    return episodes[keys.VERSION].masked_fill(~episodes[keys.RESPONSE_MASK], newest).amin(-1)


def response_tokens(episodes: TensorDictBase) -> Tensor:
    """[n] int64: how many tokens the policy wrote in each episode."""
    return episodes[keys.LENGTH] - episodes[keys.PROMPT_LENGTH]


class EpisodeAssembler:
    """Keeps the unfinished episode of every slot of one environment and emits it when it ends.

    No loop over rows; idle slots (group < 0) never appear. `in_flight`, `generated` and `abandoned` count
    response tokens: those of unfinished episodes, all so far, and those whose episode the environment broke
    off. At any time generated = in_flight + abandoned + the tokens of all emitted episodes.
    """

    def __init__(self) -> None:
        self._log_prob: Tensor | None = None  # [B, S + 1]: the last column takes what is not real
        self._version: Tensor
        self._episode: Tensor  # [B, 2]: group and member of the episode that each slot is in
        self._partial: Tensor  # [B]: its response tokens so far
        self._offsets: Tensor  # 0, 1, 2, ...
        self._nothing: TensorDict | None = None
        self.slots_busy = 0  # in the last block
        self.generated = 0
        self.abandoned = 0

    @property
    def in_flight(self) -> int:
        """Response tokens of the episodes that have not ended."""
        return 0 if self._log_prob is None else int(self._partial.sum())

    def __call__(self, rollout: TensorDictBase) -> TensorDict:
        """A rollout [B] or [B, T] (time last, in order) -> the episodes [n] that ended in it, by time.

        ValueError: a block reports more tokens than it has, or a response with tokens that were never seen
        (the assembler was given only the end of an episode).
        """
        steps = rollout.unbind(-1) if rollout.ndim > 1 else (rollout,)
        finished = [episodes for step in steps if (episodes := self._step(step)) is not None]
        if not finished:
            return self._none(rollout)
        return finished[0] if len(finished) == 1 else torch.cat(finished)

    def _step(self, step: TensorDictBase) -> TensorDict | None:
        following = step.get(keys.NEXT)
        group, member, length = step.get(keys.GROUP), step.get(keys.MEMBER), step.get(keys.LENGTH)
        log_prob, version = step.get(keys.LOG_PROB), step.get(keys.VERSION)
        if self._log_prob is None:
            self._allocate(following.get(keys.TOKENS), log_prob.shape[-1])
        assert self._log_prob is not None
        fresh = (following.get(keys.LENGTH) - length).squeeze(-1)  # [B]: the real tokens of this block
        episode = torch.cat([group, member], dim=-1)
        changed = (episode != self._episode).any(-1)  # slots that have turned to another episode since
        at_work = (group >= 0).squeeze(-1)
        done = following.get(keys.DONE).squeeze(-1) & at_work
        # Everything that the host must know, in one transfer.
        facts = (fresh.sum(), fresh.amax(), fresh.amin(), at_work.sum(), changed.sum(), done.sum())
        written, most, least, self.slots_busy, changes, ends = torch.stack(facts).tolist()
        if most > log_prob.shape[-1] or least < 0:
            raise ValueError(
                f"in a block of {log_prob.shape[-1]} tokens an episode grew by {min(least, 0) or most}; "
                "the environment must add at most one block of tokens to `length` in a step"
            )
        if changes:
            self.abandoned += int(self._partial[changed].sum())
            self._clear(changed)
            self._episode = episode
        offset = self._offsets[: log_prob.shape[-1]]
        where = torch.where(offset < fresh.unsqueeze(-1), length + offset, self._log_prob.shape[-1] - 1)
        self._log_prob.scatter_(1, where, log_prob.to(torch.float32))
        self._version.scatter_(1, where, version)
        self._partial += fresh
        self.generated += written
        return self._emit(step, following, done) if ends else None

    def _emit(self, step: TensorDictBase, following: TensorDictBase, done: Tensor) -> TensorDict:
        assert self._log_prob is not None
        rows = done.nonzero().squeeze(-1)
        prompt_length, length = step.get(keys.PROMPT_LENGTH)[rows], following.get(keys.LENGTH)[rows]
        position = self._offsets[: self._log_prob.shape[-1] - 1]
        mask = (position >= prompt_length) & (position < length)
        version = self._version[rows, :-1]
        if bool(((version < 0) & mask).any()):
            raise ValueError(
                "an episode ended whose beginning was never seen, or its policy wrote a version below 0; "
                "give every block of an environment to the same assembler, in order"
            )

        def scalar(source: TensorDictBase, key: str) -> Tensor:
            return source.get(key)[rows].squeeze(-1)

        reward = scalar(following, keys.REWARD).to(torch.float32)
        parts, scored = following.get(keys.REWARD_PARTS, None), following.get(keys.SCORED, None)
        episodes = TensorDict(
            {
                keys.TOKENS: following.get(keys.TOKENS)[rows],
                keys.RESPONSE_MASK: mask,
                keys.LOG_PROB: self._log_prob[rows, :-1].masked_fill(~mask, 0.0),
                keys.VERSION: version.masked_fill(~mask, NO_VERSION),
                keys.REWARD: reward,
                # An environment without components has one, and its rewards always count.
                keys.REWARD_PARTS: reward.unsqueeze(-1) if parts is None else parts[rows],
                keys.SCORED: torch.ones_like(reward, dtype=torch.bool)
                if scored is None
                else scored[rows].squeeze(-1),
                keys.VERDICT: scalar(following, keys.VERDICT).to(torch.int8),
                keys.PROBLEM: scalar(step, keys.PROBLEM),
                keys.GROUP: scalar(step, keys.GROUP),
                keys.MEMBER: scalar(step, keys.MEMBER),
                keys.PROMPT_LENGTH: prompt_length.squeeze(-1),
                keys.LENGTH: length.squeeze(-1),
                keys.TRUNCATED: scalar(following, keys.TRUNCATED),
            },
            batch_size=[rows.numel()],
        )
        if (ticket := following.get(keys.TICKET, None)) is not None:
            episodes[keys.TICKET] = ticket[rows].squeeze(-1)
        self._clear(done)
        return episodes

    def _none(self, rollout: TensorDictBase) -> TensorDict:
        if self._nothing is None:
            tokens, parts = rollout.get(keys.TOKENS), rollout.get(keys.NEXT_REWARD_PARTS, None)
            count = 1 if parts is None else parts.shape[-1]
            self._nothing = episode_layout(tokens.shape[-1], 0, tokens.device, count)
        return self._nothing.copy()

    def _allocate(self, tokens: Tensor, block: int) -> None:
        slots, sequence_length = tokens.shape
        self._log_prob = torch.zeros(slots, sequence_length + 1, dtype=torch.float32, device=tokens.device)
        self._version = torch.full((slots, sequence_length + 1), NO_VERSION, device=tokens.device)
        self._episode = torch.full((slots, 2), -1, device=tokens.device)
        self._partial = torch.zeros(slots, dtype=torch.int64, device=tokens.device)
        self._offsets = torch.arange(max(sequence_length, block), device=tokens.device)

    def _clear(self, rows: Tensor) -> None:
        assert self._log_prob is not None
        self._log_prob[rows] = 0.0
        self._version[rows] = NO_VERSION
        self._episode[rows] = -1
        self._partial[rows] = 0
