"""Shorten long runs of digits and blanks, so that the automaton walks few steps down a long answer.

    short, home, crowded = squeeze(letters, steps=96)        # [96, B]; along(labels, home) undoes it

The rules never tell the fifth digit of a run from the fourth, nor the third blank from the second (a test
holds them to it), so a digit behind four digits and a blank behind two are left out of the walk, and take
the label of the last byte that was read. Texts are columns here: [T, B].
"""

from __future__ import annotations

from atrl_envs.verify.automaton import END
from atrl_envs.verify.masks import (
    Array,
    at_least,
    at_most,
    below,
    equals,
    highest,
    pick_down,
    running,
    scattered,
    shifted,
)


def squeeze(letters: Array, steps: int) -> tuple[Array, Array | None, Array | None]:
    """Columns [T, B] to at most `steps` bytes, where each byte went [T, B], and what did not fit [B]."""
    if letters.shape[0] <= steps:
        return letters, None, None
    keep = ~spare(letters)
    home = running(keep) - 1
    last = highest((keep & ~equals(letters, END)) * (home + 1))
    return _placed(letters, home, keep, steps), at_most(home, steps - 1), last > steps


def squeeze_before(letters: Array, last: Array, before: int, behind: int) -> tuple[Array, Array]:
    """The `before` bytes up to and with byte `last` [B] and the `behind` bytes behind it: [before + behind, B].

    Where each byte of `letters` went, [T, B]: below 0 for those before what is kept.
    """
    keep = ~(spare(letters) | equals(letters, END))
    kept = running(keep)
    home = kept - pick_down(kept, at_least(last, 0)) + (before - 1)
    steps = before + behind
    return _placed(letters, home, keep, steps), at_most(home, steps - 1)


def _placed(letters: Array, home: Array, keep: Array, steps: int) -> Array:
    """Bytes that are kept, each in row `home` if there is one: [steps, B], END elsewhere."""
    home = at_least(at_most(home + 1, steps + 1), 0) * keep
    return ~scattered(home, ~letters, steps + 2)[1:-1]  # END is the complement of zero


def spare(letters: Array) -> Array:
    """Digits behind four digits and blanks behind two, [T, B] bool."""
    digits, blanks = below(letters - 48, 10), equals(letters, 32)
    return _run(digits, 5) | _run(blanks, 3)


def _run(flags: Array, size: int) -> Array:
    """Where the last `size` flags are set, [T, B]."""
    long = flags
    for shift in range(1, size):
        long = long & shifted(flags, shift)
    return long
