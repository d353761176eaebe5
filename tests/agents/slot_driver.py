"""Drive a policy over slots by hand, as an env would, with full control over what is in each slot."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from tensordict import TensorDict
from torch import Tensor

from atrl_envs import keys


@dataclass
class SlotDriver:
    """B slots of S columns; `start` puts an episode in a slot, `step` lets the policy add one block to each."""

    slots: int
    size: int
    pad_id: int
    eos_id: int
    max_new_tokens: int
    state: TensorDict = field(init=False)
    done: Tensor = field(init=False)

    def __post_init__(self) -> None:
        scalar = torch.full((self.slots, 1), -1, dtype=torch.int64)
        self.state = TensorDict(
            {
                keys.TOKENS: torch.full((self.slots, self.size), self.pad_id),
                keys.LENGTH: torch.zeros(self.slots, 1, dtype=torch.int64),
                keys.PROMPT_LENGTH: torch.zeros(self.slots, 1, dtype=torch.int64),
                **{key: scalar.clone() for key in (keys.PROBLEM, keys.GROUP, keys.MEMBER)},
            },
            batch_size=[self.slots],
        )
        self.done = torch.ones(self.slots, dtype=torch.bool)
        self.log_probs: dict[tuple[int, int], list[float]] = {}
        self.versions: dict[tuple[int, int], list[int]] = {}
        self.responses: dict[tuple[int, int], list[int]] = {}

    def start(self, slot: int, prompt: list[int], *, problem: int, group: int, member: int = 0) -> None:
        s = self.state
        s[keys.TOKENS][slot] = self.pad_id
        s[keys.TOKENS][slot, : len(prompt)] = torch.tensor(prompt)
        for key, value in (
            (keys.LENGTH, len(prompt)), (keys.PROMPT_LENGTH, len(prompt)),
            (keys.PROBLEM, problem), (keys.GROUP, group), (keys.MEMBER, member),
        ):  # fmt: skip
            s[key][slot] = value
        self.done[slot] = False
        for book in (self.log_probs, self.versions, self.responses):
            book[(group, member)] = []

    def idle(self, slot: int) -> None:
        s = self.state
        s[keys.TOKENS][slot] = self.pad_id
        for key in (keys.PROBLEM, keys.GROUP, keys.MEMBER):
            s[key][slot] = -1
        s[keys.LENGTH][slot] = s[keys.PROMPT_LENGTH][slot] = 0
        self.done[slot] = True

    def step(self, policy) -> list[int]:
        """One block; returns the slots whose episode ended in it."""
        out = policy(self.state.clone())
        ended = []
        for slot in range(self.slots):
            if self.done[slot]:
                continue
            episode = (int(self.state[keys.GROUP][slot]), int(self.state[keys.MEMBER][slot]))
            limit = int(self.state[keys.PROMPT_LENGTH][slot]) + self.max_new_tokens
            for k in range(out[keys.ACTION].shape[1]):
                length = int(self.state[keys.LENGTH][slot])
                token = int(out[keys.ACTION][slot, k])
                self.state[keys.TOKENS][slot, length] = token
                self.state[keys.LENGTH][slot] = length + 1
                self.responses[episode].append(token)
                self.log_probs[episode].append(float(out[keys.LOG_PROB][slot, k]))
                self.versions[episode].append(int(out[keys.VERSION][slot, k]))
                if token == self.eos_id or length + 1 == limit:
                    self.done[slot] = True
                    ended.append(slot)
                    break
        return ended
