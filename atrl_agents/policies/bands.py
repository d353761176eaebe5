"""Attention of one new token per row in bands of similar length, so that short rows do not read long rows' columns.

    bands = bands_of(length, step=0)                       # rows sorted by length
    with banded(model):
        model(ids, attention_mask=mask, past_key_values=cache, bands=bands)

A batch that is refilled row by row holds responses of every age, and decoding is bound by the memory that attention
reads. Each band is a plain SDPA call over its own columns; models that do not hand `bands` on attend in one piece.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "atrl_bands"
ROWS = 24  # of a band at least: below that, a call costs more than the columns it saves
MOST = 8  # bands

Band = tuple[int, int, int]  # rows from, rows to, columns in use


def bands_of(columns: Tensor) -> list[Band] | None:
    """Bands over rows sorted by the columns [n] they use (ascending); None where one piece is as good.

    On an accelerator always None: the kernel is not bound by the memory of a tiny batch, and looking would wait.
    """
    rows = columns.shape[0]
    count = min(MOST, rows // ROWS)
    if count < 2 or columns.device.type != "cpu":
        return None
    stops = [rows * (band + 1) // count for band in range(count)]
    ends = columns[torch.tensor(stops) - 1].tolist()
    return list(zip([0, *stops[:-1]], stops, ends, strict=True))


def banded_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    bands: list[Band] | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """SDPA, band by band: query [n, H, 1, D], key and value [n, h, end, D], mask [n, 1, 1, end]."""
    if bands is None or attention_mask is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    parts = [
        sdpa_attention_forward(
            module,
            query[start:stop],
            key[start:stop, :, :end],
            value[start:stop, :, :end],
            attention_mask[start:stop, :, :, :end],
            **options,
        )[0]
        for start, stop, end in bands
    ]
    return torch.cat(parts), None


AttentionInterface.register(NAME, banded_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)


@contextlib.contextmanager
def banded(model: Any) -> Iterator[None]:
    """The model attends by bands inside, and as it was configured afterwards."""
    config = model.config.get_text_config()
    before = config._attn_implementation
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before
