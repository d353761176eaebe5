"""Episodes whose reward the host is still computing: held back until it is there, while the slots go on.

    late = LateRewards(env)                    # an environment that gives tickets; others cost nothing
    ready = late(episodes)                     # [n]: those that need no waiting, and those settled since
    late.tokens, late.count                    # what is held

An environment takes part by `defer` (set to True here), `pending`, and `settled() -> TensorDict | None` with the keys
ticket, reward, reward_parts, verdict and scored, [m] each.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict

from atrl_collectors.episodes import response_tokens
from atrl_envs import keys

SETTLED = (keys.REWARD, keys.REWARD_PARTS, keys.VERDICT, keys.SCORED)


class LateRewards:
    """Joins finished episodes with the rewards that come later, by ticket."""

    def __init__(self, env: Any) -> None:
        self._settled = getattr(env, "settled", None)
        if self._settled is not None:
            env.defer = True
        self._held: TensorDict | None = None
        self.count = 0  # episodes held
        self.tokens = 0  # their response tokens

    def __call__(self, episodes: TensorDict) -> TensorDict:
        """The episodes [n] that are complete by now; the others wait here."""
        ready = [self._keep(episodes)]
        if self.count:
            ready.append(self._take())
        return ready[0] if len(ready) == 1 or not len(ready[1]) else torch.cat(ready)  # type: ignore[call-overload]

    def _keep(self, episodes: TensorDict) -> TensorDict:
        ticket = episodes.get(keys.TICKET, None)
        if ticket is None:
            return episodes
        open_ = ticket >= 0
        if not bool(open_.any()):
            return episodes.exclude(keys.TICKET)
        late = episodes[open_].clone()
        self._hold(late if self._held is None else torch.cat([self._held, late]))  # type: ignore[call-overload]
        return episodes[~open_].exclude(keys.TICKET)

    def _take(self) -> TensorDict:
        held = self._held
        assert held is not None and self._settled is not None
        settled = self._settled()
        if settled is None or not len(settled):
            return held[:0].exclude(keys.TICKET)
        # Tickets of others (of episodes that were broken off) are dropped.
        order = settled[keys.TICKET].argsort()
        settled = settled[order]
        place = torch.searchsorted(settled[keys.TICKET], held[keys.TICKET]).clamp(max=len(settled) - 1)
        done = settled[keys.TICKET][place] == held[keys.TICKET]
        ready = held[done].exclude(keys.TICKET)
        for key in SETTLED:
            ready[key] = settled[key][place[done]]
        self._hold(held[~done])
        return ready

    def _hold(self, held: TensorDict) -> None:
        self._held = held
        self.count = len(held)
        self.tokens = int(response_tokens(held).sum())
