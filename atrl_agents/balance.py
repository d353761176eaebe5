"""Share work out evenly: Karmarkar and Karp's differencing, for micro-batches and for ranks.

karmarkar_karp([8, 7, 6, 5, 4], 2)          # [[1, 3], [0, 2, 4]] or so: indices, sums as equal as it gets them
within_budget([8, 7, 6, 5, 4], 16)          # the fewest such parts of at most 16 each
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def karmarkar_karp(sizes: Sequence[float], parts: int) -> list[list[int]]:
    """Indices of `sizes` in `parts` parts whose sums differ little (largest differencing method, 1982).

    Parts come with the largest sum first, indices in order; some are empty where there are fewer sizes than parts.
    The same sizes always give the same parts.
    """
    if parts < 1:
        raise ValueError(f"parts must be at least 1, got {parts}")
    # Each entry is a partition of some indices into `parts` parts, as (sum, indices), largest sum first; the two
    # entries that differ most within themselves are joined, the largest part of one with the smallest of the other.
    empty: list[tuple[float, list[int]]] = [(0.0, [])] * (parts - 1)
    heap = [(-float(size), index, [(float(size), [index]), *empty]) for index, size in enumerate(sizes)]
    heapq.heapify(heap)
    number = len(heap)
    while len(heap) > 1:
        one, two = heapq.heappop(heap)[2], heapq.heappop(heap)[2]
        joined = [(a + b, i + j) for (a, i), (b, j) in zip(one, reversed(two), strict=True)]
        joined.sort(key=lambda part: (-part[0], part[1]))
        heapq.heappush(heap, (joined[-1][0] - joined[0][0], number, joined))
        number += 1
    return [sorted(indices) for _, indices in heap[0][2]] if heap else [[] for _ in range(parts)]


def within_budget(sizes: Sequence[float], budget: float) -> list[list[int]]:
    """The fewest balanced parts whose sums are at most `budget`; a size above it is a part of its own."""
    large = [index for index, size in enumerate(sizes) if size > budget]
    rest = [index for index, size in enumerate(sizes) if size <= budget]
    total = sum(sizes[index] for index in rest)
    parts = max(1, -int(-total // budget)) if rest else 0
    while parts:
        found = karmarkar_karp([sizes[index] for index in rest], parts)
        if all(sum(sizes[rest[i]] for i in part) <= budget for part in found):
            return [[index] for index in large] + [[rest[i] for i in part] for part in found if part]
        parts += 1
    return [[index] for index in large]
