"""What is refused before computer algebra sees it: formulas whose size alone would cost minutes or gigabytes.

    refuse_large(r"10^{10^{10}}")         # raises Refused("a tower of powers")

These look at the text alone. The kernel's limits in the worker are behind them, for what they let through.
"""

from __future__ import annotations

import math
import re

LONGEST = 600  # characters of a formula
DEEPEST = 16  # levels of braces and brackets
MOST_DIGITS = 120  # digits in a row
LARGEST_POWER = 2000  # an exponent
LARGEST_FACTORIAL = 4000
LARGEST_BINOMIAL = 2000
_OPENS, _CLOSES = "{([", "})]"
_NUMBER = re.compile(r"\d+")
_HEAVY = re.compile(r"\\(?:int|iint|oint|sum|prod|lim)(?![A-Za-z])")
_FACTORIAL = re.compile(r"(?P<number>\d*)\s*(?P<marks>!+)(?!=)")
_BINOMIAL = re.compile(r"\\binom")
_LARGE_E = re.compile(r"\d[eE][-+]?\d{4,}")
_ARGUMENT = re.compile(r"\\[A-Za-z]+|[-+]?\d+|.", re.DOTALL)


class Refused(Exception):
    """Too large to be looked at; the row stays undecided."""


def refuse_large(text: str) -> None:
    """Raise Refused, with the reason, for a formula in tidy notation that is too large."""
    if len(text) > LONGEST:
        raise Refused("a formula of too many characters")
    if depth(text) > DEEPEST:
        raise Refused("braces too deep")
    if any(len(digits) > MOST_DIGITS for digits in _NUMBER.findall(text)) or _LARGE_E.search(text):
        raise Refused("a number of too many digits")
    if len(_HEAVY.findall(text)) > 1:
        raise Refused("several sums, integrals or limits")
    factorials = list(_FACTORIAL.finditer(text))
    if len(factorials) > 8 or any(len(match["marks"]) > 1 for match in factorials):
        raise Refused("several factorials")
    if any(_value(match["number"]) > LARGEST_FACTORIAL for match in factorials):
        raise Refused("a large factorial")
    for match in _BINOMIAL.finditer(text):
        top = argument(text, match.end())
        if "^" in top or "!" in top or any(_value(n) > LARGEST_BINOMIAL for n in _NUMBER.findall(top)):
            raise Refused("a large binomial")
    for exponent, behind in _exponents(text):
        if behind.startswith("^"):
            raise Refused("a tower of powers")
        _refuse_tower(exponent)


def depth(text: str) -> int:
    """Levels of braces and brackets; those that are never closed count, too."""
    level = deepest = 0
    for letter in text:
        if letter in _OPENS:
            level += 1
            deepest = max(deepest, level)
        elif letter in _CLOSES:
            level = max(0, level - 1)
    return deepest


def argument(text: str, begin: int) -> str:
    """The argument that begins there: a group with its braces, a command, digits in a row, or one character."""
    while text[begin : begin + 1] == " ":
        begin += 1
    if text[begin : begin + 1] == "{":
        level = 0
        for place in range(begin, len(text)):
            level += (text[place] == "{") - (text[place] == "}")
            if level == 0:
                return text[begin : place + 1]
        return text[begin:]
    match = _ARGUMENT.match(text, begin)
    return match[0] if match else ""


def _exponents(text: str) -> list[tuple[str, str]]:
    """Every exponent, and what follows it."""
    found = []
    for match in re.finditer(r"\^ *", text):
        exponent = argument(text, match.end())
        found.append((exponent, text[match.end() + len(exponent) :].lstrip()))
    return found


def _refuse_tower(exponent: str) -> None:
    """Refuse large exponents, and powers in an exponent except where they stay small: e^{x^2}, 2^{2^3}."""
    numbers = [_value(digits) for digits in _NUMBER.findall(exponent)]
    if any(number > LARGEST_POWER for number in numbers) or "!" in exponent:
        raise Refused("a large exponent")
    inner = [power for power, _ in _exponents(exponent)]
    if not inner:
        return
    highest = max((_value(digits) for power in inner for digits in _NUMBER.findall(power)), default=1)
    size = sum(math.log(number) for number in numbers if number > 1) * highest
    if len(inner) > 2 or any("^" in power for power in inner) or size > math.log(LARGEST_POWER):
        raise Refused("a tower of powers")


def _value(digits: str) -> int:
    """Their value, as far as it matters here."""
    return int(digits[:12] or "0")
