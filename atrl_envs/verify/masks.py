"""Masks, look-ups and sums over whole batches, the same for tensors and for NumPy arrays.

    equals(letters, 48)              # [B, W] bool
    below(letters - 48, 10)          # [B, W] bool: digits, as bytes wrap around
    span(width, begin, stop)         # [B, W] bool: columns in [begin, stop) of each row
    take(table, index)               # table[index], [...] as index

In a small batch an operation costs what it takes to start it, and NumPy starts one in a third of the time torch takes.
So on the CPU answers are found and judged as arrays, over the tensors' own memory, and on an accelerator as tensors,
by one program: what differs is here.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy
import torch
from torch import Tensor

Array = Any  # a tensor or a NumPy array
_WIDE = 256


def equals(data: Array, value: int) -> Array:
    """Where data is this value."""
    # On the CPU torch compares with a number fifteen times as slowly as with a whole array.
    return data == (torch.full_like(data, value) if isinstance(data, Tensor) else value)


def below(data: Array, bound: int) -> Array:
    """Where data is less than `bound`."""
    return data < (torch.full_like(data, bound) if isinstance(data, Tensor) else bound)


def steps(first: int, stop: int, like: Array) -> Array:
    """The numbers from `first` to before `stop`, int32, beside `like`."""
    if isinstance(like, Tensor):
        return torch.arange(first, stop, dtype=torch.int32, device=like.device)
    return numpy.arange(first, stop, dtype=numpy.int32)


def span(width: int, begin: Array, stop: Array) -> Array:
    """Columns from `begin` [B] on and before `stop` [B]."""
    return before(width, stop) & ~before(width, begin)


def before(width: int, stop: Array) -> Array:
    """Columns before `stop` [B]: [B, W] bool."""
    stop = stop.int() if isinstance(stop, Tensor) else stop.astype(numpy.int32)
    return steps(0, width, stop) < stop[:, None]


def take(table: Array, index: Array) -> Array:
    """Entries of a table [N] at an index of any shape and integer type."""
    if isinstance(table, Tensor):
        return table.index_select(0, index.reshape(-1).int()).view(index.shape)
    return table.take(index)


def pick(data: Array, column: Array) -> Array:
    """One entry of each row: data [B, W], column [B] to [B]."""
    if isinstance(data, Tensor):
        return data.gather(1, column.long().unsqueeze(1)).squeeze(1)
    return data[numpy.arange(data.shape[0]), column]


def pick_down(data: Array, row: Array) -> Array:
    """One entry of each column: data [T, B], row [B] to [B]."""
    return along(data, row[None])[0]


def along(data: Array, index: Array) -> Array:
    """Entries of each column: data [T, B], index [S, B] to [S, B]."""
    if isinstance(data, Tensor):
        return data.gather(0, index.long())
    return data.reshape(-1).take(index * data.shape[1] + numpy.arange(data.shape[1]))


def where(condition: Array, this: Any, other: Any) -> Array:
    """`this` where the condition holds, else `other`."""
    return (
        torch.where(condition, this, other)
        if isinstance(condition, Tensor)
        else numpy.where(condition, this, other)
    )


def first_set(flags: Array) -> Array:
    """The first column of each row that is set, the width where none is: [B]. flags: [B, W], W at least 1."""
    width = flags.shape[1]
    if isinstance(flags, Tensor):
        return width - (flags.view(torch.uint8) * (width - steps(0, width, flags))).amax(1)
    column = flags.argmax(1)
    return numpy.where(pick(flags, column), column, width)


def last_set(flags: Array) -> Array:
    """The last column of each row that is set, -1 where none is: [B]. flags: [B, W], W at least 1."""
    width = flags.shape[1]
    if isinstance(flags, Tensor):
        return (flags.view(torch.uint8) * steps(1, width + 1, flags)).amax(1) - 1
    column = width - 1 - flags[:, ::-1].argmax(1)
    return numpy.where(pick(flags, column), column, -1)


def highest(data: Array) -> Array:
    """The largest of each column: [T, B] to [B]."""
    return data.amax(0) if isinstance(data, Tensor) else numpy.maximum.reduce(data)


def lowest(data: Array) -> Array:
    """The smallest of each column: [T, B] to [B]."""
    return data.amin(0) if isinstance(data, Tensor) else numpy.minimum.reduce(data)


def running(data: Array) -> Array:
    """Sums down the columns, [T, B]; int32 for flags, else the type as of data."""
    if isinstance(data, Tensor):
        return data.cumsum(0, dtype=torch.int32 if data.dtype == torch.bool else data.dtype)
    total = data.astype(numpy.int32) if data.dtype == numpy.bool_ else data
    if total.shape[1] < _WIDE:
        return total.cumsum(0, dtype=total.dtype)
    # NumPy goes column by column, which is slow where these are far apart in memory.
    total = total.copy() if total is data else total
    for above, row in itertools.pairwise(total):
        row += above
    return total


def upright(data: Array) -> Array:
    """[B, T] to [T, B], side by side in memory."""
    return data.t().contiguous() if isinstance(data, Tensor) else numpy.ascontiguousarray(data.T)


def at_most(data: Array, bound: Any) -> Array:
    """Entries above the bound are the bound."""
    return data.clamp(max=bound) if isinstance(data, Tensor) else numpy.minimum(data, bound)


def at_least(data: Array, bound: Any) -> Array:
    """Entries below the bound are the bound."""
    return data.clamp(min=bound) if isinstance(data, Tensor) else numpy.maximum(data, bound)


def filled(like: Array, shape: tuple[int, ...], value: int) -> Array:
    """An array of this value, beside `like` and of its type."""
    if isinstance(like, Tensor):
        return torch.full(shape, value, dtype=like.dtype, device=like.device)
    return numpy.full(shape, value, dtype=like.dtype)


def shifted(data: Array, by: int) -> Array:
    """Columns [T, B] moved down, zeros above; T is at least `by`."""
    if isinstance(data, Tensor):
        return torch.nn.functional.pad(data[: data.shape[0] - by], (0, 0, by, 0))
    moved = numpy.zeros_like(data)
    moved[by:] = data[: data.shape[0] - by]
    return moved


def scattered(home: Array, data: Array, count: int) -> Array:
    """Entries of [T, B] in the rows `home` [T, B], zeros elsewhere: [count, B]."""
    if isinstance(data, Tensor):
        empty = torch.zeros(count, data.shape[1], dtype=data.dtype, device=data.device)
        return empty.scatter_(0, home.long(), data)
    moved = numpy.zeros((count, data.shape[1]), dtype=data.dtype)
    moved[home, numpy.arange(data.shape[1])] = data
    return moved


def to_floats(data: Array) -> Array:
    """float64."""
    return data.double() if isinstance(data, Tensor) else data.astype(numpy.float64)


def to_integers(data: Array) -> Array:
    """int64."""
    return data.long() if isinstance(data, Tensor) else data.astype(numpy.int64)


def bits(flags: Array) -> Array:
    """The same memory as uint8, 0 or 1."""
    return flags.view(torch.uint8 if isinstance(flags, Tensor) else numpy.uint8)


def depth(opening: Array, closing: Array) -> Array:
    """How many more of `opening` than of `closing` are set up to each column: [B, W]."""
    if isinstance(opening, Tensor):
        return (opening.view(torch.int8) - closing.view(torch.int8)).cumsum(1, dtype=torch.int32)
    return (opening.view(numpy.int8) - closing.view(numpy.int8)).cumsum(1, dtype=numpy.int32)


def to_bytes(data: Array) -> Array:
    """uint8."""
    return data.to(torch.uint8) if isinstance(data, Tensor) else data.astype(numpy.uint8)
