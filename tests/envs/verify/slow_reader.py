"""A slow reader of answers that shares nothing with the verifier: regular expressions and `Fraction`.

    value_in("x = 1{,}234.5\\\\text{ cm}^2")      # Fraction(2469, 2)

It is more generous than the rules in what may stand around a number and exactly as strict about the number: one
number, and no other digit anywhere. Whatever the verifier pays must have this value.
"""

from __future__ import annotations

import re
from fractions import Fraction

LARGEST_POWER = 2000  # larger exponents of ten are compared elsewhere

_ALIKE = {
    ord("−"): "-",
    ord("–"): "-",
    ord("－"): "-",
    ord("＋"): "+",
    ord("．"): ".",
    ord("⁄"): "/",
    ord("∕"): "/",
}
_ALIKE.update({0xFF10 + digit: str(digit) for digit in range(10)})
_BLANK = r"(?:\s|\\[,;:! ]|~|\\quad|[\u00a0\u2009\u202f\u3000])"
_GAP = _BLANK + "*"
_SIGN = r"[-+]?"


def _grouped(separator: str) -> str:
    return rf"[1-9]\d{{0,2}}(?:{separator}\d{{3}})+(?!\d)"


_INTEGER = (
    "(?:"
    + "|".join(
        [_grouped(s) for s in (",", r"\{,\}", r",\\! ?", " ", r"\\,", r"\\ ", "\u00a0", "\u2009", "\u202f")]
        + [r"\d+"]
    )
    + ")"
)
_ARGUMENT = rf"(?:\d|\{{{_GAP}{_SIGN}{_GAP}\d+{_GAP}\}})"
_FRAC = rf"\\[dtc]?frac{_GAP}({_ARGUMENT}){_GAP}({_ARGUMENT})"
_POWER = (
    rf"(?:e({_SIGN}\d+)"
    rf"|{_GAP}(?:\\times|\\cdot|[×·*x]){_GAP}10{_GAP}\^{_GAP}(?:\{{{_GAP}({_SIGN}\d+){_GAP}\}}|({_SIGN}\d+)))"
)
_FORMS = {
    "mixed_frac": rf"(\d+){_GAP}{_FRAC}",
    "mixed": rf"(\d+){_BLANK}+(\d+){_GAP}/{_GAP}(\d+)",
    "frac": _FRAC,
    "ratio": rf"(\d+){_GAP}/{_GAP}({_SIGN}\d+)",
    "decimal": rf"({_INTEGER}(?:\.\d*)?|\.\d+){_POWER}?",
}


def _number(text: str) -> int:
    return int(re.sub(r"[^-\d]", "", text))


def _decimal(core: str, power: str) -> Fraction:
    whole, _, behind = core.partition(".")
    digits = re.sub(r"\D", "", whole) + behind
    if abs(int(power)) > LARGEST_POWER:
        raise OverflowError
    return Fraction(int(digits or "0")) * Fraction(10) ** (int(power) - len(behind))


def _value(form: str, match: re.Match[str]) -> Fraction:
    parts = [part for part in match.groups() if part is not None]
    if form == "decimal":
        return _decimal(parts[0], parts[1] if len(parts) > 1 else "0")
    numbers = [_number(part) for part in parts]
    if form.startswith("mixed"):
        return numbers[0] + Fraction(numbers[1], numbers[2])
    return Fraction(numbers[0], numbers[1])


def value_in(text: str) -> Fraction | None:
    """The value of the only number of an answer; None if there is none, or more than one, or it is undefined."""
    text = text.translate(_ALIKE).lower().rsplit("=", 1)[-1]
    text = re.sub(r"(?<=[a-z}.])\s*\^(?:\{-?[123]\}|-?[123])", "", text)  # exponents of units
    for form, pattern in _FORMS.items():
        match = re.search(pattern, text)
        if match is None:
            continue
        rest = text[: match.start()] + " " + text[match.end() :]
        if re.search(r"\d", rest):
            continue
        try:
            value = _value(form, match)
        except ZeroDivisionError:
            return None
        return -value if text[: match.start()].count("-") % 2 else value
    return None
