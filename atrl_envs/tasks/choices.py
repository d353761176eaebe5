"""Parameters that say what may be drawn, and the draws themselves; shared by the tasks.

check_between("Carries", "digits", digits, 1, 100)
check_operations("Carries", operations, "+-")
operation = pick(rng, operations)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy

Choice = TypeVar("Choice")


def check_between(owner: str, name: str, value: int, least: int, most: int) -> None:
    """ValueError where a parameter does not lie in least..most."""
    if not least <= value <= most:
        raise ValueError(f"{owner} wants {name} in {least}..{most}, got {name}={value}")


def check_operations(owner: str, operations: str, known: str) -> None:
    """ValueError where `operations` is empty, repeats a sign, or holds one that is not known."""
    if not operations or len(set(operations)) < len(operations) or not set(operations) <= set(known):
        raise ValueError(
            f"{owner} wants operations to be one or more of {' '.join(known)}, each at most once and without anything "
            f"between them, such as {known!r}; got {operations!r}"
        )


def whole_number(rng: numpy.random.Generator, low: int, high: int) -> int:
    """An integer in low..high, both included."""
    return int(rng.integers(low, high + 1))


def pick(rng: numpy.random.Generator, choices: Sequence[Choice]) -> Choice:
    """One of the choices, each as likely as another."""
    return choices[int(rng.integers(len(choices)))]
