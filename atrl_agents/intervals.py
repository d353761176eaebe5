"""How sure a measured share is: Wilson's interval, and pass@k from n samples."""

from __future__ import annotations

import math


def wilson(successes: float, total: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's score interval for a binomial share (Wilson 1927); z = 1.96 for 95 %. (0, 1) for no trials."""
    if total == 0:
        return 0.0, 1.0
    share = successes / total
    denominator = 1 + z * z / total
    centre = (share + z * z / (2 * total)) / denominator
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / denominator
    return max(0.0, centre - half), min(1.0, centre + half)


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Unbiased chance that one of k samples at least is correct (arXiv 2107.03374, eq. 1).

    Args:
        samples: how many were drawn; correct: how many of them were right.
        k: at most `samples`.
    """
    if k > samples:
        raise ValueError(
            f"pass@{k} needs at least {k} samples a problem, got {samples}; sample more or lower k."
        )
    if samples - correct < k:
        return 1.0
    return 1.0 - math.prod((samples - correct - i) / (samples - i) for i in range(k))


def mean_interval(values: list[float], z: float = 1.96) -> tuple[float, float]:
    """Normal interval of the mean of per-problem values; (0, 1) for fewer than two."""
    if len(values) < 2:
        return 0.0, 1.0
    mean = sum(values) / len(values)
    variance = sum((v - mean) ** 2 for v in values) / (len(values) - 1)
    half = z * math.sqrt(variance / len(values))
    return max(0.0, mean - half), min(1.0, mean + half)
