"""Ranges of operands, shared by the arithmetic tasks: drawn at random, or all listed where they are few."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy

LISTED_AT_MOST = 20_000  # spaces up to this size are listed, so that a bank holds every problem of its split


def check_range(low: int, high: int) -> None:
    """ValueError for an empty range, and for a limit that does not fit in 64 bits."""
    for name, limit in (("low", low), ("high", high)):
        if not -(2**63) <= limit < 2**63:
            raise ValueError(f"operands want 64-bit limits (-2**63 <= {name} < 2**63), got {name}={limit}")
    if low > high:
        raise ValueError(f"operands want low <= high, got low={low}, high={high}")


def draw(rng: numpy.random.Generator, low: int, high: int, count: int) -> tuple[int, ...]:
    """`count` independent integers in low..high, both included."""
    return tuple(int(value) for value in rng.integers(low, high + 1, size=count))


def all_tuples(low: int, high: int, count: int) -> Iterator[tuple[int, ...]] | None:
    """Every tuple of `count` integers in low..high in ascending order; None where they are too many to list."""
    size = high - low + 1
    many = size > 1 and count >= LISTED_AT_MOST.bit_length()  # then the power is never worked out
    if many or size**count > LISTED_AT_MOST:
        return None
    return itertools.product(range(low, high + 1), repeat=count)
