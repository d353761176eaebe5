"""What stands behind a value without changing it: unit words, a percent sign, the degree mark.

split_unit("5\\\\sqrt{2} \\\\text{ cm}^{2}")      # ("5\\\\sqrt{2}", "cm")
split_unit("5 million")                       # ("5 million", ""): not a unit
"""

from __future__ import annotations

import re

from atrl_envs.verify import vocabulary

PERCENT, DEGREE = "%", "degree"
_POWER = r"(?:\^\{-?\d\}|\^-?\d)?"
_IN_TEXT = re.compile(rf"\\text\{{(?P<inside>[^{{}}]*)\}}{_POWER}\s*$")
_BARE = re.compile(rf"(?:(?<=[\s\d}}])|(?<=\)))(?P<word>[A-Za-z]+){_POWER}\s*$")
_APART = re.compile(rf"\s(?P<words>[A-Za-z]+{_POWER}(?:\s?/\s?[A-Za-z]+{_POWER})*)\s*$")
_DEGREE = re.compile(r"\^\{\\circ\}\s*(?:\\text\{\s*[CF]\s*\}|[CF])?\s*$")
_OF_ANGLE = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-z])[^+-]*$")
_PERCENT = re.compile(r"(?:%|\s*(?:\\text\{\s*(?:percent(?:age)?|pct)\s*\}|\b(?:percent(?:age)?|pct)))\s*$")
_BETWEEN_WORDS = re.compile(r"[\s/.·*^{}\d()-]+")
_COMMAND = re.compile(r"\\text\{[^{}]*\}|\\[A-Za-z]+|_\{[^{}]*\}")
_NO_VARIABLE = re.compile(r"(?<![A-Za-z])e(?![A-Za-z])|(?<=\d)E(?=[-+]?\d)")
_LETTER = re.compile(r"[A-Za-z]")


def split_unit(text: str) -> tuple[str, str]:
    """A tidy text without the units behind it, and these, in lower case and singular.

    Only behind what has a value of its own: behind a formula with variables a word may mean something.
    """
    best, units = (text, ""), ""
    while True:
        text, unit = _last_unit(text)
        if unit is None:
            return best
        text = text.rstrip().removesuffix("/").removesuffix(" per").rstrip()
        units = f"{unit} {units}".strip()
        if has_value(text):
            best = text, units


def has_value(text: str) -> bool:
    """Whether there are figures or constants in it, and no variables."""
    bare = _COMMAND.sub(" ", text)
    constant = re.search(r"\d|\\pi(?![a-z])|\\infty(?![a-z])", text)
    return constant is not None and not _LETTER.search(_NO_VARIABLE.sub(" ", bare))


def _last_unit(text: str) -> tuple[str, str | None]:
    if match := _PERCENT.search(text):
        return text[: match.start()], PERCENT
    if (match := _DEGREE.search(text)) and not _OF_ANGLE.search(text, 0, match.start()):
        return text[: match.start()], DEGREE
    if match := _IN_TEXT.search(text):
        names = _names(match["inside"])
        if names:
            return text[: match.start()], names
    elif (match := _APART.search(text)) and (names := _names(match["words"])):
        return text[: match.start()], names
    elif match := _BARE.search(text):
        name = match["word"].casefold()
        squared = name == "m" and "^" in match[0]
        if (_is_unit(name) or squared) and not text[: match.start()].endswith("\\"):
            return text[: match.start()], name.removesuffix("s") or name
    return text, None


def _names(text: str) -> str:
    """Its words as units, in the singular; "" where one is none."""
    words = [word for word in _BETWEEN_WORDS.split(text) if word]
    known = [_is_unit(word.casefold()) or word in vocabulary.LETTER_UNITS or word == "per" for word in words]
    return " ".join(word.casefold().removesuffix("s") or "s" for word in words) if all(known) else ""


def _is_unit(word: str) -> bool:
    if word in vocabulary.SHORT_UNITS:
        return True
    return len(word) >= 3 and word.isalpha() and word not in vocabulary.NOT_UNITS
