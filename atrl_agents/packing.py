"""Lay out episodes so that a training forward computes each needed token once.

    plan = Packing.of(tokens, prompt_length, length, row)     # samples with equal `row` share a prompt
    hidden states of model(plan.ids, plan.mask, plan.position) at plan.source predict plan.target

Samples of one group begin with the same prompt. A packed row holds that prompt once and then the
responses one after another; a mask lets each response see the prompt and itself only, and positions
restart after the prompt, so every token gets exactly what it would get in a row of its own. The last
token of a response predicts nothing and is not fed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """Packed model input for N samples in R rows of at most L tokens.

    Attributes:
        ids: `[R, L]` token ids, right-padded with 0.
        position: `[R, L]` position ids.
        mask: `[R, 1, L, L]` bool, True where a query may look, or None for plain causal attention.
        source: `[M]` flat index into `[R * L]`: where the hidden state that predicts a response token is.
        target: `[M]` the response tokens, sample by sample.
        sample: `[M]` and column: `[M]`: where each belongs in `[N, S]`.
    """

    ids: Tensor
    position: Tensor
    mask: Tensor | None
    source: Tensor
    target: Tensor
    sample: Tensor
    column: Tensor

    @classmethod
    def of(cls, tokens: Tensor, prompt_length: Tensor, length: Tensor, row: Tensor) -> Packing:
        """Pack samples.

        Args:
            tokens: `[N, S]` prompt then response.
            prompt_length, length: `[N]`; every response has at least one token.
            row: `[N]` which packed row a sample goes to: 0, 0, .., 1, 1, .. in order, without gaps.
                Samples of a row must have equal prompts.
        """
        device = tokens.device
        count = tokens.shape[0]
        rows = int(row[-1]) + 1
        first = torch.searchsorted(row, torch.arange(rows, device=device))  # first sample of each row
        response = length - prompt_length
        fed = response - 1
        before = fed.cumsum(0) - fed  # fed response tokens of earlier samples
        start = prompt_length + before - before[first][row]  # column where a sample's response begins
        width = int((start + fed).max())

        prompt = _ragged(prompt_length[first])
        body = _ragged(fed)
        body_column = start[body.item] + body.offset
        body_token = prompt_length[body.item] + body.offset  # index in the sample's own tokens
        ids = tokens.new_zeros(rows, width)
        ids[prompt.item, prompt.offset] = tokens[first[prompt.item], prompt.offset]
        ids[row[body.item], body_column] = tokens[body.item, body_token]
        position = tokens.new_zeros(rows, width)
        position[prompt.item, prompt.offset] = prompt.offset
        position[row[body.item], body_column] = body_token

        mask = None
        if rows < count:
            segment = tokens.new_full((rows, width), -1)  # -1 padding, 0 prompt, then one number a response
            segment[prompt.item, prompt.offset] = 0
            segment[row[body.item], body_column] = 1 + body.item
            column = torch.arange(width, device=device)
            mask = (segment[:, None, :] == segment[:, :, None]) | (segment[:, None, :] == 0)
            mask = (mask & (column[None, :] <= column[:, None])).unsqueeze(1)

        out = _ragged(response)
        previous = torch.where(out.offset == 0, prompt_length[out.item] - 1, start[out.item] + out.offset - 1)
        column = prompt_length[out.item] + out.offset
        return cls(
            ids=ids,
            position=position,
            mask=mask,
            source=row[out.item] * width + previous,
            target=tokens[out.item, column],
            sample=out.item,
            column=column,
        )


@dataclass(frozen=True)
class _Ragged:
    item: Tensor
    offset: Tensor


def _ragged(count: Tensor) -> _Ragged:
    """For counts `[n]`: the item and the offset within it of each of the `sum(count)` elements."""
    item = torch.repeat_interleave(torch.arange(count.shape[0], device=count.device), count)
    begin = count.cumsum(0) - count
    return _Ragged(item, torch.arange(item.shape[0], device=count.device) - begin[item])


def rows_sharing_prompts(
    group: Tensor, prompt_length: Tensor, length: Tensor, *, linear_cost: float, attention_cost: float
) -> Tensor:
    """Choose whether the groups of a pass share their prompts' computation: `row` `[N]` for `Packing.of`.

    Sharing saves the repeated prompts but attends over whole packed rows and pads to the longest of them. Either
    all groups share or none: mixed, the single rows would be padded to the packed ones. Costs are floating-point
    operations per token (`linear_cost`) and per pair of query and key (`attention_cost`), padding included.
    Groups must be contiguous.
    """
    new = torch.ones_like(group, dtype=torch.bool)
    new[1:] = group[1:] != group[:-1]
    shared_row = new.long().cumsum(0) - 1
    fed = length - prompt_length - 1
    packed = prompt_length[new].index_add(0, shared_row, fed)  # tokens of each packed row

    def cost(rows: int, width: float) -> float:
        return rows * width * (linear_cost + width * attention_cost)

    apart = cost(group.shape[0], float((length - 1).max()))
    if cost(packed.shape[0], float(packed.max())) < apart:
        return shared_row
    return torch.arange(group.shape[0], device=group.device)
