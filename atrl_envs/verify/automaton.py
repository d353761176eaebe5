"""Regular expressions with labels, compiled to tables that a tensor program can walk.

    sign = text("-", label=MINUS)
    number = seq(opt(sign), plus(one("0123456789", label=WHOLE)))
    machine = compile_rules({NUMBER: number})
    labels, code = machine.read(b"-12")          # [MINUS, WHOLE, WHOLE], NUMBER

An expression is a function that adds itself to a nondeterministic automaton behind a given state and
returns the state after it. `compile_rules` determinises. Where two readings of a byte are alive and
name different labels, the rules are ambiguous and compilation fails: so a text has one reading, and
that is checked once, here, rather than hoped for on every row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

LETTERS = "abcdefghijklmnopqrstuvwxyz"
END = 0xFF  # fills a window behind the text; no byte of UTF-8
SKIP = 0xFE  # stands for a token without content; no byte of UTF-8
STRANGE = 0xFD  # stands for any other byte that cannot be in UTF-8


@dataclass
class Nfa:
    """States with labelled byte edges and free moves."""

    edges: list[list[tuple[frozenset[int], int, int]]] = field(default_factory=list)
    free: list[list[int]] = field(default_factory=list)

    def state(self) -> int:
        self.edges.append([])
        self.free.append([])
        return len(self.edges) - 1

    def closure(self, states: Iterable[int]) -> frozenset[int]:
        seen, todo = set(states), list(states)
        while todo:
            for target in self.free[todo.pop()]:
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        return frozenset(seen)


Expression = Callable[[Nfa, int], int]
State = TypeVar("State")


def one(bytes_: str | Iterable[int], label: int = 0) -> Expression:
    """One byte out of a set (a string of ASCII characters, or byte values)."""
    wanted = frozenset(bytes_.encode("ascii") if isinstance(bytes_, str) else bytes_)

    def add(nfa: Nfa, start: int) -> int:
        end = nfa.state()
        nfa.edges[start].append((wanted, end, label))
        return end

    return add


def text(string: str, label: int = 0) -> Expression:
    """This string in UTF-8, ASCII letters in any case; its last byte carries the label."""
    raw = string.lower().encode("utf-8")
    sets = [_either(chr(byte)) if chr(byte) in LETTERS else frozenset([byte]) for byte in raw]

    def add(nfa: Nfa, start: int) -> int:
        for i, wanted in enumerate(sets):
            end = nfa.state()
            nfa.edges[start].append((wanted, end, label if i == len(sets) - 1 else 0))
            start = end
        return start

    return add


def seq(*parts: Expression) -> Expression:
    """One part after the other."""

    def add(nfa: Nfa, start: int) -> int:
        for part in parts:
            start = part(nfa, start)
        return start

    return add


def alt(*parts: Expression) -> Expression:
    """Any one of the parts."""

    def add(nfa: Nfa, start: int) -> int:
        begin, end = nfa.state(), nfa.state()  # loops must not lead back before `start`
        nfa.free[start].append(begin)
        for part in parts:
            nfa.free[part(nfa, begin)].append(end)
        return end

    return add


def texts(*strings: str, label: int = 0) -> Expression:
    """Any one of the strings."""
    return alt(*(text(string, label) for string in strings))


def opt(part: Expression) -> Expression:
    """The part or nothing."""
    return alt(part, seq())


def star(part: Expression) -> Expression:
    """The part any number of times."""

    def add(nfa: Nfa, start: int) -> int:
        loop = nfa.state()
        nfa.free[start].append(loop)
        nfa.free[part(nfa, loop)].append(loop)
        end = nfa.state()
        nfa.free[loop].append(end)
        return end

    return add


def plus(part: Expression) -> Expression:
    """The part at least once."""
    return seq(part, star(part))


def words(refuse: Collection[str], allow: Collection[str] = (), least: int = 3, label: int = 0) -> Expression:
    """A word of ASCII letters, any case: at least `least` long and not refused, or allowed by name.

    `least=0` takes the allowed words and no other. The first letter carries the label. What follows in the
    rules must not begin with a letter.
    """
    named = dict.fromkeys(refuse, False) | dict.fromkeys(allow, True)
    prefixes = {word[:i] for word in named for i in range(1, len(word) + 1)}

    def add(nfa: Nfa, start: int) -> int:
        end = nfa.state()
        nodes = {prefix: nfa.state() for prefix in prefixes}
        other = [nfa.state() for _ in range(least + 1)]  # off the named words, by length
        nodes[""] = start
        for prefix, node in nodes.items():
            if prefix and named.get(prefix, 0 < least <= len(prefix)):
                nfa.free[node].append(end)
            for letter in LETTERS:
                target = nodes.get(prefix + letter)
                if target is None and least:
                    target = other[min(len(prefix) + 1, least)]
                if target is not None:
                    nfa.edges[node].append((_either(letter), target, 0 if prefix else label))
        for length in range(1, least + 1):
            nfa.edges[other[length]].append((_either(LETTERS), other[min(length + 1, least)], 0))
        if least:
            nfa.free[other[least]].append(end)
        return end

    return add


@functools.cache
def _either(letters: str) -> frozenset[int]:
    return frozenset((letters + letters.upper()).encode())


@dataclass(frozen=True)
class Machine:
    """A deterministic automaton that labels every byte it reads; state 0 is the start.

    classes: [256] class of a byte. step: [Q * C] next state times C, at index state * C + class.
    emit: [Q * C] label of the byte at the same index. accept: [Q] what a text is that ends there.
    END and SKIP change nothing.
    """

    classes: list[int]
    step: list[int]
    emit: list[int]
    accept: list[int]
    width: int

    def read(self, raw: bytes) -> tuple[list[int], int]:
        """Labels of the bytes and the code of the whole, on the host."""
        state, labels = 0, []
        for byte in raw:
            index = state + self.classes[byte]
            labels.append(self.emit[index])
            state = self.step[index]
        return labels, self.accept[state // self.width]


def compile_rules(rules: Mapping[int, Expression]) -> Machine:
    """One machine for all rules; where several accept a text, the smallest code wins.

    Raises ValueError where two rules label the same byte differently.
    """
    nfa = Nfa()
    root = nfa.state()
    finals: dict[int, int] = {}
    for code, rule in rules.items():
        begin = nfa.state()
        nfa.free[root].append(begin)
        finals[rule(nfa, begin)] = code
    classes, width = _byte_classes(nfa)
    members: dict[int, int] = {}
    for byte, cls in enumerate(classes):
        members.setdefault(cls, byte)
    classes_of = {
        wanted: sorted({classes[byte] for byte in wanted})
        for wanted in {w for out in nfa.edges for w, _, _ in out}
    }
    moves = [
        [(cls, to, label) for wanted, to, label in out for cls in classes_of[wanted]] for out in nfa.edges
    ]
    closures = [nfa.closure([state]) for state in range(len(nfa.edges))]
    useful = frozenset(s for s in range(len(nfa.edges)) if nfa.edges[s] or s in finals)

    def settle(targets: frozenset[int]) -> frozenset[int]:
        return frozenset().union(*(closures[t] for t in targets)) & useful

    start = settle(frozenset([root]))
    numbers = {start: 0}
    order = [start]
    settled: dict[frozenset[int], frozenset[int]] = {}
    rows: list[tuple[list[int], list[int]]] = []
    dead = -1
    for states in order:
        targets: dict[int, set[int]] = {}
        labels: dict[int, int] = {}
        for state in states:
            for cls, to, label in moves[state]:
                targets.setdefault(cls, set()).add(to)
                if label:
                    if labels.setdefault(cls, label) != label:
                        raise ValueError(
                            f"ambiguous rules: byte {chr(members[cls])!r} read as {labels[cls]} and as {label}"
                        )
        row, emit = [dead] * width, [0] * width
        for cls, found in targets.items():
            key = frozenset(found)
            if key not in settled:
                settled[key] = settle(key)
            after = settled[key]
            if after not in numbers:
                numbers[after] = len(order)
                order.append(after)
            row[cls] = numbers[after]
            emit[cls] = labels.get(cls, 0)
        rows.append((row, emit))
    number = len(order)  # the dead state: nothing is read any more, nothing accepted
    rows.append(([number] * width, [0] * width))
    quiet = {classes[END], classes[SKIP]}
    step, emits = [], []
    for own, (row, emit) in enumerate(rows):
        row = [own if cls in quiet else (number if to == dead else to) for cls, to in enumerate(row)]
        step += [to * width for to in row]
        emits += emit
    accept = [min((finals[s] for s in states if s in finals), default=0) for states in order] + [0]
    return Machine(classes, step, emits, accept, width)


def _byte_classes(nfa: Nfa) -> tuple[list[int], int]:
    """Bytes that no edge tells apart share a class; END and SKIP have one of their own."""
    sets = {wanted for out in nfa.edges for wanted, _, _ in out}
    known: dict[tuple[bool, ...], int] = {}
    classes = []
    ordered = list(sets)
    for byte in range(256):
        signature = (byte in (END, SKIP), *(byte in wanted for wanted in ordered))
        classes.append(known.setdefault(signature, len(known)))
    return classes, len(known)


def explore(
    start: State, row_of: Callable[[State], Sequence[tuple[State, int]]], accept: Callable[[State], int],
    also: Iterable[State] = (),
) -> tuple[Machine, dict[State, int]]:  # fmt: skip
    """A machine from the (next state, label) of each of the 256 bytes in a state, and the number of each state."""
    order = [start, *also]
    numbers = {state: i for i, state in enumerate(order)}
    rows: list[Sequence[tuple[State, int]]] = []
    numbered: dict[int, tuple[int, int]] = {}  # by the identity of a pair: rows share most of theirs
    table: list[list[tuple[int, int]]] = []
    for own, state in enumerate(order):
        rows.append(row := row_of(state))
        for pair in row:
            if id(pair) not in numbered:
                after, label = pair
                if after not in numbers:
                    numbers[after] = len(order)
                    order.append(after)
                numbered[id(pair)] = numbers[after], label
        table.append([numbered[id(pair)] for pair in row])
        table[own][SKIP] = table[own][END] = (own, 0)
    known: dict[tuple[tuple[int, int], ...], int] = {}
    classes = [known.setdefault(column, len(known)) for column in zip(*table, strict=True)]
    width = len(known)
    first = {cls: byte for byte, cls in reversed(list(enumerate(classes)))}
    cells = [row[first[cls]] for row in table for cls in range(width)]
    machine = Machine(
        classes,
        [to * width for to, _ in cells],
        [label for _, label in cells],
        [accept(s) for s in order],
        width,
    )
    return machine, numbers
