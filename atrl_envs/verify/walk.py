"""Walk an automaton down a batch of texts: every byte gets its label, every text its code.

tables = machine_tables(answer_machine)
found, code = read(letters, tables)          # [B, T] uint8 -> labels [B, T] uint8, codes [B] uint8
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
from atrl_envs.verify.peek import may_look
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


def balanced(found: Tensor, tables: Tables) -> Tensor:
    """`_sound` for every row of labels [B, T]."""
    return _sound(tables.weights.index_select(0, found.view(-1).int()).view(found.shape).sum(1))


_FIELDS = (L.WHOLE, L.OVER, L.UNDER, L.POWER, L.DECIMALS, L.MINUS, L.POWER_MINUS, L.PERCENT)
_RICH = frozenset(LETTERS + LETTERS.upper() + "\\^!{}_")


@dataclass(frozen=True)
class Tables:
    """A machine as tensors on one device, and the constants of `read` and `compare`."""

    classes: Tensor
    step: Tensor
    emit: Tensor
    accept: Tensor
    weights: Tensor
    tens: Tensor
    fields: Tensor
    moduli: Tensor
    powers: Tensor
    verdicts: Tensor  # [8 * 8] verdict on a response by kind of the gold and verdict on the answer
    rich: Tensor  # [256] bytes that may make an expression out of figures and marks
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
            tens=torch.tensor([10**i for i in range(FIGURES)], dtype=torch.int64),
            fields=torch.tensor(_FIELDS, dtype=torch.uint8),
            moduli=torch.tensor(moduli()),
            powers=torch.tensor(powers(), dtype=torch.float64),
            verdicts=torch.tensor(_verdicts(), dtype=torch.int8),
            rich=torch.tensor([128 <= b < SKIP or chr(b) in _RICH for b in range(256)]),
            width=machine.width,
        )


def read(letters: Tensor, tables: Tables, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Walk the machine down all rows at once.

    letters: [B, T] uint8; state: [B] int32, where to begin. Returns the label of each byte [B, T] uint8 and
    the code of each text [B] uint8. One step of the machine is two small operations.
    """
    rows, size = letters.shape
    if state is None:
        state = torch.zeros(rows, dtype=torch.int32, device=letters.device)
    columns = letters.t().reshape(-1).int()
    cells = tables.classes.index_select(0, columns).view(size, rows)
    if may_look(letters):  # the same with less to allocate
        state = state.clone()
        for index in cells.unbind(0):
            torch.index_select(tables.step, 0, index.add_(state), out=state)
    else:
        trail = []
        for classes in cells.unbind(0):
            trail.append(state + classes)
            state = tables.step.index_select(0, trail[-1])
        cells = torch.cat(trail)
    found = tables.emit.index_select(0, cells.view(-1)).view(size, rows).t().contiguous()
    return found, tables.accept.index_select(0, state // tables.width)


@lru_cache(maxsize=8)
def machine_tables(machine_of: Callable[[], Machine]) -> Tables:
    """Tables of a machine, made once a process: pass the cached function that builds the machine."""
    return Tables.of(machine_of())
