"""Is a response one `<think>..</think>` and then one `<answer>..</answer>`, and nothing else? As a tensor program.

score = well_formed(responses)           # [B] float32: 1 or 0

Each tag stands exactly once, in this order; between them, before and behind there are only blanks, and neither part is
empty. Repeated, nested, mismatched or unfinished tags score 0. A `<think>` that ends the prompt is the response's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from atrl_envs.rewards import Responses

_TAGS = (b"<think>", b"</think>", b"<answer>", b"</answer>")
_BLANKS = (32, 9, 10, 13)


def well_formed(responses: Responses) -> Tensor:
    """[B] float32."""
    start = responses.start if responses.begun is None else responses.start - responses.begun
    text = responses.spelling.text(responses.tokens, start, responses.length)
    data = text.data
    solid = torch.ones_like(data, dtype=torch.bool)
    for blank in _BLANKS:
        solid = solid & (data != blank)
    place = torch.arange(data.shape[1], device=data.device)
    inside = (place >= text.first.unsqueeze(1)) & (place < text.stop.unsqueeze(1))
    solid = (solid & inside).cumsum(1)  # solid bytes up to and with each place
    before = torch.nn.functional.pad(solid, (1, 0))  # and up to it without: column i counts bytes [0, i)

    def count(begin: Tensor, stop: Tensor) -> Tensor:
        """Solid bytes in [begin, stop), [B]."""
        return (before.gather(1, stop.unsqueeze(1)) - before.gather(1, begin.unsqueeze(1))).squeeze(1)

    good = ~text.lost
    ends: list[Tensor] = []
    for tag in _TAGS:
        hits = _starts(data, tag) & inside
        good = good & (hits.sum(1) == 1)
        ends.append((hits * place).sum(1).clamp(max=data.shape[1] - len(tag)))
    think, thought, answer, answered = ends
    first, stop = text.first.long(), text.stop.long()
    good = good & (think < thought) & (thought < answer) & (answer < answered)
    empty = (
        count(first, torch.maximum(think, first)),
        count(thought + len(_TAGS[1]), answer),
        count(answered + len(_TAGS[3]), torch.maximum(stop, answered + len(_TAGS[3]))),
    )
    full = (count(think + len(_TAGS[0]), thought), count(answer + len(_TAGS[2]), answered))
    for solids in empty:
        good = good & (solids == 0)
    for solids in full:
        good = good & (solids > 0)
    return good.to(torch.float32)


def _starts(data: Tensor, tag: bytes) -> Tensor:
    """Where a tag begins, [B, L] bool."""
    padded = torch.nn.functional.pad(data, (0, len(tag)))
    hits = torch.ones_like(data, dtype=torch.bool)
    for offset, byte in enumerate(tag):
        hits = hits & (padded[:, offset : offset + data.shape[1]] == byte)
    return hits
