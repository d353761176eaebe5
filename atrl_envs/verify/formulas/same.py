"""Whether an answer means what the gold means: layer by layer, and at the bottom as numbers or formulas.

same("\\\\{1,3\\\\} \\\\cup \\\\{2,4\\\\}", "\\\\{1,2,3,4\\\\}")      # True
same("n=3k", "3")                                      # False
same("5", "5 or 6")                                    # False: two candidates where one is asked

What is not seen to be the same is different (False), or not known (None).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from atrl_envs.verify import vocabulary
from atrl_envs.verify.formulas.equality import digits_for, same_value
from atrl_envs.verify.formulas.formula import Unreadable, evaluated
from atrl_envs.verify.formulas.guards import Refused
from atrl_envs.verify.formulas.notation import key
from atrl_envs.verify.formulas.rationals import read_number
from atrl_envs.verify.formulas.relations import same_relation
from atrl_envs.verify.formulas.sets import NAMED_SETS, as_set
from atrl_envs.verify.formulas.shapes import (
    FORMULA,
    LIST,
    MATRIX,
    PAIR,
    RATIO,
    RELATION,
    SET,
    UNION,
    WORDS,
    Malformed,
    Shape,
    assignments,
    is_words,
    shape,
    words,
)
from atrl_envs.verify.formulas.units import DEGREE, PERCENT, split_unit

MOST_ITEMS = 24
_SIGNS = {*NAMED_SETS, r"\ldots", r"\cdots", r"\dots", "..."}  # golds that say something without letters
_COMMAND = re.compile(r"\\[A-Za-z]+")
_CHOICE = re.compile(
    r"(?:\\text\{\s*)?\(?(?P<letter>[A-J])(?:\)|[.:](?!\d))(?![A-Za-z])\s*\}?(?P<rest>.*)", re.DOTALL
)
_OTHER_CHOICE = re.compile(r"(?<![A-Za-z\\])[A-J](?![A-Za-z])")
_NAMED_VALUE = re.compile(r"\s*(?P<name>[A-Za-z](?:_\{?\w\}?)?)\s*=(?P<value>[^=]*)")


def same(gold: str, answer: str) -> bool | None:
    """Compare two texts in tidy notation. Raises Refused where one is too large to be looked at."""
    if key(gold) == key(answer):
        return True
    if r"\pm" in gold + answer or r"\mp" in gold + answer:
        return _with_signs(gold, answer)
    if is_words(gold) and is_words(answer) and words(gold) == words(answer):
        return True
    if None not in (choices := (_choice(gold), _choice(answer))) and 1 in (len(gold), len(answer)):
        return choices[0] == choices[1]
    if gold.isalpha() and answer.isalpha() and min(len(gold), len(answer)) > 2:
        return _letters(gold, answer)
    bare_gold, gold_unit = split_unit(gold)
    bare_answer, answer_unit = split_unit(answer)
    if bare_gold != gold or bare_answer != answer:
        if (DEGREE in gold_unit) != (DEGREE in answer_unit) and r"\pi" in gold + answer:
            return None  # the other side may be in radians
        found = same(bare_gold, bare_answer)
        if PERCENT in gold_unit and PERCENT not in answer_unit:
            return None if found is not False or same(bare_gold, f"100({bare_answer})") else False
        return None if found and gold_unit and answer_unit and gold_unit != answer_unit else found
    numbers = _number(gold), _number(answer)
    if None not in numbers:
        return numbers[0] == numbers[1]
    try:
        gold_shape = shape(gold)
    except Malformed:
        return None
    try:
        return _by_shape(gold_shape, shape(answer), (gold, answer))
    except Malformed:
        return False


def sound(gold: str) -> bool:
    """Whether a gold answer in tidy notation says anything that could be compared."""
    if key(gold).casefold() in ("", "nan"):
        return False
    try:
        bare = split_unit(gold)[0]
        if read_number(bare) is not None:
            return True
        form = shape(bare)
        if form.kind in (WORDS, RELATION):
            return True
        if form.kind != FORMULA:
            return all(sound(part) for part in form.parts)
        evaluated(form.parts[0])
        return True
    except (Malformed, ZeroDivisionError):
        return False
    except Unreadable:
        return key(gold) in _SIGNS or bool(re.search(r"[^\W_]", _COMMAND.sub("", gold)))
    except Refused:
        return True


def _by_shape(gold: Shape, answer: Shape, texts: tuple[str, str]) -> bool | None:
    kinds = {gold.kind, answer.kind}
    pairs = _as_pairs(gold), _as_pairs(answer)
    if LIST in kinds and pairs.count(None) == 1:
        other = answer if pairs[1] is None else gold
        if other.kind == PAIR or {shape(part).kind for part in other.parts} == {PAIR}:
            return same(pairs[0] or texts[0], pairs[1] or texts[1])
    if LIST in kinds and RELATION not in kinds and kinds <= {LIST, SET}:
        return _unordered(gold.parts, answer.parts, once=SET in kinds)
    if RELATION in kinds and kinds <= {RELATION, LIST}:
        gold, answer = (
            assignments(form) or form if form.kind == RELATION else form for form in (gold, answer)
        )
        if gold.kind == answer.kind == LIST:
            return _unordered(gold.parts, answer.parts)
    if RELATION in kinds:
        return same_relation(gold, answer, texts, same)
    if WORDS in kinds:
        return words(texts[0]) == words(texts[1])
    if kinds == {SET}:
        return _unordered(gold.parts, answer.parts, once=True)
    if kinds == {PAIR} and len(gold.parts) == len(answer.parts):
        return _brackets_agree(gold, answer) and _in_order(gold.parts, answer.parts)
    if kinds in ({MATRIX}, {RATIO}):
        return gold.marks == answer.marks and _in_order(gold.parts, answer.parts)
    if kinds == {FORMULA}:
        return _formulas(gold.parts[0], answer.parts[0])
    if kinds <= {PAIR, SET, UNION, LIST, FORMULA}:
        first, second = as_set(texts[0]), as_set(texts[1])
        if kinds == {UNION} and (first is None or second is None) and gold.marks == answer.marks == r"\cup":
            return _unordered(gold.parts, answer.parts)
        return first is not None and second is not None and bool(first == second)
    return False


def _choice(text: str) -> str | None:
    """The letter of `C` or `(C) 10`; None for anything else."""
    if len(text) == 1:
        return text if "A" <= text <= "J" else None
    match = _CHOICE.fullmatch(text)
    if match is None or _OTHER_CHOICE.search(match["rest"]):
        return None
    hedged = vocabulary.NOT_NAMES.intersection(re.findall("[a-z]+", match["rest"].lower()))
    return None if hedged else match["letter"]


def _as_pairs(form: Shape) -> str | None:
    """`x = 3, y = 4` as `(3, 4)`, and `p = 5, q = 2; p = 7, q = 2` as two pairs: names in the order of the alphabet."""
    found = [_NAMED_VALUE.fullmatch(part) for part in form.parts] if form.kind == LIST else []
    names = [match["name"] for match in found if match]
    size = len(set(names))
    if size < 2 or len(names) != len(found) or names != sorted(set(names)) * (len(names) // size):
        return None
    values = [match["value"].strip() for match in found if match]
    return ",".join(f"({','.join(values[at : at + size])})" for at in range(0, len(values), size))


def _formulas(gold: str, answer: str) -> bool | None:
    if key(gold) == key(answer):
        return True
    if key(gold) in NAMED_SETS or key(answer) in NAMED_SETS:
        return None not in (sets := (as_set(gold), as_set(answer))) and bool(sets[0] == sets[1])
    try:
        first = evaluated(gold)
    except Unreadable:
        return None
    try:
        second = evaluated(answer)
    except Unreadable:
        return False
    return same_value(first, second, digits_for(gold, answer))


def _letters(gold: str, answer: str) -> bool:
    """Whether two strings of letters are one word in any case, or one product of three variables."""
    if gold.casefold() == answer.casefold():
        return True
    return len(gold) == 3 and sorted(gold) == sorted(answer) and not set(gold) & set("eiouEIOU")


def _number(text: str) -> Fraction | None:
    try:
        return read_number(text)
    except ZeroDivisionError:
        return None


def _in_order(gold: Sequence[str], answer: Sequence[str]) -> bool | None:
    if len(gold) != len(answer):
        return False
    if len(gold) > MOST_ITEMS:
        raise Refused("a list of too many items")
    said = [same(a, b) for a, b in zip(gold, answer, strict=True)]
    return False if False in said else (None if None in said else True)


def _unordered(gold: Sequence[str], answer: Sequence[str], once: bool = False) -> bool | None:
    """Whether the items are the same in some order; once: an item counts once however often it stands there."""
    gold, answer = list(gold), list(answer)
    if max(len(gold), len(answer)) > MOST_ITEMS:
        raise Refused("a list of too many items")
    if once:
        gold, answer = _distinct(gold), _distinct(answer)
    if len(gold) != len(answer):
        return False
    for item in gold:
        said = [same(item, other) for other in answer]
        if True not in said:
            return None if None in said else False
        answer.pop(said.index(True))
    return True


def _distinct(items: list[str]) -> list[str]:
    kept: list[str] = []
    for item in items:
        if not any(same(other, item) for other in kept):
            kept.append(item)
    return kept


def _with_signs(gold: str, answer: str) -> bool | None:
    try:
        wanted = _signs_apart(gold)
    except Malformed:
        return None
    try:
        return _unordered(wanted, _signs_apart(answer))
    except Malformed:
        return False


def _signs_apart(text: str) -> list[str]:
    """`3 \\pm x` as its two values; in a list or a set, of each item. Raises Malformed."""
    form = shape(text)
    if form.kind in (LIST, SET):
        return [value for part in form.parts for value in _signs_apart(part)]
    if r"\pm" not in text and r"\mp" not in text:
        return [text]
    upper = text.replace(r"\pm", "+").replace(r"\mp", "-")
    lower = text.replace(r"\pm", "-").replace(r"\mp", "+")
    return [upper, lower]


def _brackets_agree(gold: Shape, answer: Shape) -> bool:
    """A vector in angle brackets is a pair in round ones; the ends of an interval are as they are."""
    return str(gold.marks).replace("<>", "()") == str(answer.marks).replace("<>", "()")
