"""Walk an automaton down a batch of texts, one a column: every byte gets its label, every text its code.

tables = machine_tables(answer_machine)
found, code = read(letters, tables)          # [T, B] uint8 -> labels [T, B] uint8, codes [B] uint8
sound = balanced(found, tables)              # [B]: brackets in pairs, few words
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from atrl_envs.verify import labels as L
from atrl_envs.verify.automaton import LETTERS, SKIP, Machine
from atrl_envs.verify.masks import Array, filled, take
from atrl_envs.verify.peek import as_arrays
from atrl_envs.verify.remainders import FIGURES, moduli, powers
from atrl_envs.verify.verdict import Verdict

MOST_WORDS = 4  # words behind a number that may still be its unit

_PAIRS = (
    (L.BRACE_OPEN, 1), (L.BRACE_CLOSE, -1), (L.PAREN_OPEN, 1 << 10), (L.PAREN_CLOSE, -(1 << 10)),
    (L.MATH_OPEN, 1 << 20), (L.MATH_CLOSE, -(1 << 20)),
)  # fmt: skip


def _weights() -> list[int]:
    """One number a label. Their sum over a text tells whether brackets are in balance, see `_sound`."""
    weights = [0] * L.COUNT
    for label, weight in _PAIRS:
        weights[label] = weight
    weights[L.BOLD] = 1 << 42
    weights[L.WORD] = 1 << 52
    return weights


def _verdicts() -> list[int]:
    """The last word on a response, at index kind of its gold * 8 + verdict so far."""
    final = [list(Verdict)] * 8
    final[L.INVALID] = [Verdict.INVALID_GOLD] * len(Verdict)
    # What is no number cannot be compared here: whatever answer there is, the host decides.
    final[L.HOST] = [Verdict.UNDECIDED, Verdict.UNDECIDED, *list(Verdict)[2:]]
    return [verdict for row in final for verdict in (*row, *[Verdict.UNDECIDED] * (8 - len(row)))]


def balanced_on_host(found: list[int]) -> bool:
    """`balanced` for one list of labels."""
    weights = _weights()
    return bool(_sound(torch.tensor(sum(weights[label] for label in found))))


def _sound(total: Tensor) -> Tensor:
    """Brackets balanced, bold marks in pairs, few words: from the sum of `_weights` of a text."""
    brackets_and_pairs = (total & ((1 << 43) - 1)) == 0
    return brackets_and_pairs & (total < (MOST_WORDS + 1) << 52)


def balanced(found: Array, tables: Tables) -> Array:
    """`_sound` for every column of labels [T, B]."""
    return _sound(take(tables.weights, found).sum(0))


# Fields of a sum of `_counts`, ten bits each, as no text has 1024 bytes: digits of a decimal, of each part, and signs.
FIGURE, *PARTS, MINUSES, POWER_MINUSES = range(0, 70, 10)
_PART_OF = dict(zip((L.WHOLE, L.OVER, L.UNDER, L.POWER), PARTS, strict=True))


def _counts() -> list[int]:
    """One number a label. Their sum over a text holds how often each counts, in fields of its bits."""
    counts = [0] * L.COUNT
    fields = {**_PART_OF, L.MINUS: MINUSES, L.POWER_MINUS: POWER_MINUSES}
    for label, shift in fields.items():
        counts[label] = 1 << shift
    for label in (L.WHOLE, L.OVER, L.DECIMALS):
        counts[label] += 1 << FIGURE
    return counts


_RICH = frozenset(LETTERS + LETTERS.upper() + "\\^!{}_")


@dataclass(frozen=True)
class Tables:
    """A machine as tensors on one device, and the constants of `read` and `compare`."""

    classes: Array
    step: Array
    emit: Array
    accept: Array
    weights: Array
    counts: Array
    shifts: Array  # [COUNT] where the count of a label's part is in a sum of `counts`
    tens: Array  # powers of ten, and a zero behind them
    moduli: Array
    powers: Array
    verdicts: Array  # [8 * 8] verdict on a response by kind of the gold and verdict on the answer
    rich: Array  # [256] bytes that may make an expression out of figures and marks
    width: int

    @classmethod
    def of(cls, machine: Machine) -> Tables:
        """On the CPU."""
        return cls(
            classes=torch.tensor(machine.classes, dtype=torch.int32),
            step=torch.tensor(machine.step, dtype=torch.int32),
            emit=torch.tensor(machine.emit, dtype=torch.uint8),
            accept=torch.tensor(machine.accept, dtype=torch.uint8),
            weights=torch.tensor(_weights(), dtype=torch.int64),
            counts=torch.tensor(_counts(), dtype=torch.int64),
            shifts=torch.tensor([_PART_OF.get(label, 0) for label in range(L.COUNT)], dtype=torch.int64),
            tens=torch.tensor([*(10**i for i in range(FIGURES)), 0], dtype=torch.int64),
            moduli=torch.tensor(moduli()),
            powers=torch.tensor(powers(), dtype=torch.float64),
            verdicts=torch.tensor(_verdicts(), dtype=torch.int8),
            rich=torch.tensor([128 <= b < SKIP or chr(b) in _RICH for b in range(256)]),
            width=machine.width,
        )


def read(letters: Array, tables: Tables, state: Array | None = None) -> tuple[Array, Array]:
    """Walk the machine down all columns at once.

    letters: [T, B] uint8; state: [B] int32, where to begin. Returns the label of each byte [T, B] uint8 and
    the code of each text [B] uint8. One step of the machine is two small operations.
    """
    cells = take(tables.classes, letters)
    if state is None:
        state = filled(cells, cells.shape[1:], 0)
    if isinstance(cells, Tensor):
        state, trail = state.int(), []
        for classes in cells.unbind(0):
            trail.append(state + classes)
            state = tables.step.index_select(0, trail[-1])
        cells = torch.stack(trail)
    else:
        for index in cells:
            index += state
            state = tables.step.take(index)
    return take(tables.emit, cells), take(tables.accept, state // tables.width)


@lru_cache(maxsize=8)
def machine_tables(machine_of: Callable[[], Machine]) -> Tables:
    """Tables of a machine, made once a process: pass the cached function that builds the machine."""
    return Tables.of(machine_of())


@lru_cache(maxsize=8)
def machine_arrays(machine_of: Callable[[], Machine]) -> Tables:
    """The same as arrays of their own."""
    return as_arrays(machine_tables(machine_of))
