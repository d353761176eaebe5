"""What an answer says, read with regular expressions and `Fraction`; whatever is unclear says nothing.

    reading("x = 1{,}234.5\\\\text{ cm}^2")     # Reading(Fraction(2469, 2), percent=False)
    reading("42 million")                      # None
    last_reading("not 10 but 1,000.")          # Reading(Fraction(1000), percent=False)

It shares nothing with the verifiers: decoration is replaced by a mark that joins nothing, and what is left has
to be one number from end to end. It is stricter than the rules in what it takes for a word behind a number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

LARGEST_POWER = 3000  # of ten; beyond it a value is kept as digits and exponent


@dataclass(frozen=True)
class Reading:
    """One number; a tuple (negative, digits, exponent) where the power of ten is too large for a Fraction."""

    value: Fraction | tuple[bool, str, int]
    percent: bool = False


GAP = "\x01"  # stands for decoration: no digit is joined across it, no blank is a separator beside it
_FOREIGN = {ord(char): "\ufffd" for char in map(chr, range(0x80, 0x10000)) if char.isdecimal()}
_ALIKE = str.maketrans(
    _FOREIGN
    | dict.fromkeys("\u2212\u2013\uff0d", "-")
    | {"\uff0b": "+", "\uff0e": ".", "\u2044": "/", "\u2215": "/", GAP: "\ufffd"}
    | {chr(0xFF10 + digit): str(digit) for digit in range(10)}
    | dict.fromkeys("\u00a0\u2009\u202f\u3000", " ")
)
# Words that make another number, or no number, of the one before them; and operations and hedges.
CHANGING = frozenset(
    "million billion trillion quadrillion quintillion sextillion septillion octillion nonillion decillion googol "
    "thousand hundred dozen gross score myriad lakh lac crore mil mio mld bn mn tn k half halves third thirds "
    "quarter quarters fourth fourths fifth fifths sixth sixths seventh sevenths eighth eighths ninth ninths tenth "
    "tenths hundredth hundredths thousandth thousandths millionth millionths billionth billionths trillionth "
    "trillionths hundreds thousands millions billions trillions dozens scores grosses kilo mega giga tera milli "
    "micro nano double doubled triple tripled twice thrice fold squared cubed square cube root roots sqrt power "
    "powers raised mod modulo modulus remainder factorial choose base binary octal decimal hex hexadecimal times "
    "divided multiplied over plus minus negative by or and to not no nor but if unless is isn are aren was were be "
    "been than more less fewer least most between from through about around roughly approximately approx maybe "
    "perhaps possibly probably almost nearly above below under exceeding either neither both except excluding "
    "wrong false incorrect point zero one two three four five six seven eight nine ten eleven twelve thirteen "
    "fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety "
    "log ln exp sin cos tan cot sec csc pi infinity infinite inf nan alpha beta gamma delta theta lambda mu "
    "omega phi psi rho sigma tau ish something plusminus onward upwards downwards divides squares cubes "
    "percentile percentiles permille bps ppm ppb".split()
)
# Behind a number of a running text these begin something else.
SAID_ELSEWHERE = frozenset(
    "or and to not no nor but if is isn are aren was were be been than between from through about around by in over "
    "maybe perhaps possibly probably almost nearly above below under except zero one two three four five six seven "
    "eight nine ten wrong something double either neither both plus minus times divided multiplied most least".split()
)
HEDGES = frozenset(
    "or and not no nor but if unless is isn was than about around maybe perhaps negative minus".split()
)
_DIGITS = r"(?:[1-9]\d{0,2}(?:,\d{3})+(?![\d,])|[1-9]\d{0,2}(?: \d{3})+(?! ?\d)|\d+)"
_DECIMAL = re.compile(rf"({_DIGITS}(?:\.\d*)?|\.\d+)(?:e([-+]?\d+))?")
_RATIO = re.compile(r"(\d+) *(?<![/])/ *([-+]?\d+)")
_FRAC = re.compile(r"(?:(\d+)[ \x01]*)?\x02([-+]?\d+)\x03([-+]?\d+)\x04")
_MIXED = re.compile(r"(\d+) +(\d+) */ *(\d+)")
_THIN = r"(?:\s|~|\\[,;:! ])*"
_ARGUMENT = rf"(?:{_THIN}\{{\s*([-+]?{_THIN}\d+)\s*\}}|{_THIN}(\d))"
_TEX_FRACTION = re.compile(rf"\\[dtc]?frac{_ARGUMENT}{_ARGUMENT}")
_TEX_POWER = re.compile(
    rf"{_THIN}\\(?i:times|cdot){_THIN}10{_THIN}\^{_THIN}(?:\{{\s*([-+]?\d+)\s*\}}|(\d)(?!\d))"
)
_PLAIN_POWER = re.compile(r"\s*[×·*xX]\s*10\^(?:\{\s*([-+]?\d+)\s*\}|([-+]?\d+))")
_UNIT_POWER = re.compile(r"(?<=[A-Za-z}.])\s*(?:\^(?:\{-?[1-3]\}|-?[1-3])(?!\d)|[²³])")
_DECORATION = re.compile(
    r"\\(?:left|right|displaystyle|pounds|euro|degree)(?![A-Za-z])"
    r"|\\(?:text|textbf|textrm|textit|mathbf|mathrm|mbox|hbox|boxed|fbox)\s*\{|\*\*"
    r"|\\[()\[\]$]|\^\s*(?:\\circ|∘|\{\s*(?:\\circ|∘)\s*\})|[(){}$€£¥°º]",
    re.IGNORECASE,
)
_TEX_GAP = re.compile(
    r"(?:\s|~|\\[,;:! ])+(?=\})|(?<=[{}])(?:\s|~|\\[,;:! ])+(?=[{\d+-])|(?<=frac)(?:~|\\[,;:! ])+|(?<=\D)\\!|\\!(?!\d)"
)
_SPACE = re.compile(r"\\(?:[,;:! ]|quad(?![A-Za-z]))|~|\s")
_NAME = re.compile(
    r"(?:\\?[A-Za-z]+|\\angle)(?:[ \x01]+[A-Za-z]+)*(?:_\x01?(?:\d|[A-Za-z]+|\d+\x01))?(?:\x01(?:\d+|[A-Za-z]+)\x01)?"
)
_REASONING = re.compile(r"[-+]?[\d.,\s\x01+*/÷×·-]*")


def reading(text: str) -> Reading | None:
    """The number that an answer is, however it is dressed; None if it is no number, or not surely one."""
    text = text.translate(_ALIKE)
    text = re.sub(r"\{,\}|,\\!\s?", ",", text).replace("\\quad", " ")
    text = _TEX_GAP.sub("", text)
    *left, right = text.split("=")
    if not all(_is_left_side(part, first=index == 0) for index, part in enumerate(left)):
        return None
    percent = bool(re.search(r"%|percent", right, re.IGNORECASE))
    right = re.sub(r"\\?%|\bpercent\b", GAP, right, flags=re.IGNORECASE)
    right = _undecorated(_UNIT_POWER.sub("", _plain_forms(right)))
    sign = re.match(r"([ \x01]*)([-+]?)[ \x01]*", right)
    assert sign is not None
    value = _number(right[sign.end() :].rstrip(f" {GAP}"))
    if value is None:
        return None
    return Reading(_negative(value) if sign[2] == "-" else value, percent)


def _plain_forms(text: str) -> str:
    """Powers of ten as `e5`, fractions of TeX between marks of their own."""
    text = _TEX_POWER.sub(lambda m: f"e{m[1] or m[2]}", text)
    text = _PLAIN_POWER.sub(lambda m: f"e{m[1] or m[2]}", text)
    return _TEX_FRACTION.sub(lambda m: f"\x02{_bare(m[1] or m[2])}\x03{_bare(m[3] or m[4])}\x04", text)


def _bare(number: str) -> str:
    return re.sub(r"[^-+\d]", "", number)


def _undecorated(text: str) -> str:
    return _SPACE.sub(" ", _DECORATION.sub(GAP, text))


def _is_left_side(text: str, first: bool) -> bool:
    """A name, or a calculation in figures."""
    text = _undecorated(text.replace("\\times", "*").replace("\\cdot", "*").replace("\\div", "/")).strip(
        f" {GAP}"
    )
    named = first and _NAME.fullmatch(text) and not HEDGES & set(re.findall("[a-z]+", text.lower()))
    return bool(named or (re.search(r"\d", text) and _REASONING.fullmatch(text)))


def _number(text: str) -> Fraction | tuple[bool, str, int] | None:
    """The value of a text that begins with a number and goes on with nothing but a unit."""
    for form in (_FRAC, _MIXED, _RATIO, _DECIMAL):
        match = form.match(text.replace("E", "e") if form is _DECIMAL else text)
        if match is None or not _is_unit(text[match.end() :]):
            continue
        if form is _DECIMAL:
            return _power_of_ten(match[1].replace(",", "").replace(" ", ""), int(match[2] or 0))
        parts = [int(part) for part in match.groups() if part is not None]
        whole = parts.pop(0) if len(parts) == 3 else None
        if parts[1] == 0 or (whole is not None and not 0 <= parts[0] < min(parts[1], 100)):
            return None
        return (whole or 0) + Fraction(*parts)
    return None


def _is_unit(tail: str) -> bool:
    """Nothing, a period, or a few words that do not change a number, with strokes between them."""
    tail = tail.strip(f" {GAP}").removesuffix(".").strip(f" {GAP}")
    words = re.findall(r"[A-Za-z]+", tail)
    if len(words) > 8 or CHANGING & {word.lower() for word in words}:
        return False
    return re.fullmatch(r"(?:[ \x01]*/?[ \x01]*[A-Za-z]+\.?)*", tail) is not None


def _power_of_ten(digits: str, power: int) -> Fraction | tuple[bool, str, int]:
    whole, _, behind = digits.partition(".")
    shown = (whole + behind).lstrip("0")
    if not shown:
        return Fraction(0)
    if abs(power) <= LARGEST_POWER:
        return Fraction(int(shown)) * Fraction(10) ** (power - len(behind))
    kept = shown.rstrip("0")
    return False, kept, power - len(behind) + len(shown) - len(kept)


def _negative(value: Fraction | tuple[bool, str, int]) -> Fraction | tuple[bool, str, int]:
    return (not value[0], *value[1:]) if isinstance(value, tuple) else -value


# -- running text ------------------------------------------------------------------------------------


class Unclear(ValueError):
    """A running text whose last number people would not agree on: glued marks, a fragment of a formula."""


_UNITS = (
    "mm|cm|dm|km|nm|um|mg|kg|ml|cl|dl|m|lb|lbs|oz|ft|yd|mi|in|hr|hrs|min|mins|sec|secs|ms|mph|kph|hz|khz|kw|kwh|wh|"
    "mb|gb|kb|tb|rad|deg|sq|cc|am|pm|day|days|cents|usd|eur|gbp"
)
_PHRASE = re.compile(
    r"(?:\d+ *)?\x02[-+]?\d+\x03[-+]?\d+\x04|\d+ +\d+ */ *\d+|\d+ */ *-?\d+"
    r"|(?:[1-9]\d{0,2}(?:,\d{3})+(?!,?\d)|[1-9]\d{0,2}(?: \d{3})+(?! ?\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?"
    r"|\.\d+(?:[eE][-+]?\d+)?"
)
_GLUED = re.compile(r"[A-Za-z][\d.]*\Z")  # B2B, v2.1, x_1
_INDEX = re.compile(r"(?<!\\)(?:\^ ?\{? ?-?|_\{?)\Z")
_SIGN = re.compile(r"(?:^|[\s(=:,;*$>~])-(?:\s?\\?\$)?$")
_TASTE_BEFORE = re.compile(
    r"\\[A-Za-z]+\s*$|[-+/*×·^_\\.,%|<²³\ufffd]\s*[{($]*\s*$|[\d.)}]\s*[{(]?$|^\s*\}|\}\s*\{$"
)
_TASTE_AFTER = re.compile(
    r"[-+/*×·^_\\.,%|<²³'\ufffd]*\s*[\d{}(]|[²³^_\\]|[-+/*×·|]\s*\S|\s*[<*×·/]\s*\S|\.\w|[,.]?\s*-"
)
_OR = re.compile(r"(?<![\w^.,\\])\d[\d.,]*(?:\s+or\s+[{($]*|\s*(?:±|\\(?:pm|mp))\s*)$")
_TWO_SIGNS = re.compile(r"-\s*\\?\$\s*-\s*$")
_SCALED = re.compile(r"\s*([A-Za-z]+)")
_FACTORS = "pi|sqrt|frac|dfrac|tfrac|over|alpha|omega|log|sin|theta|ln|exp|cos|tan"
_OPERATORS = "times|cdot|div|pm|mp"
_BESIDE = re.compile(
    rf"\s*(?:\^\s*\{{?\s*-?\w|\\(?:{_FACTORS})(?![A-Za-z])|\\(?:{_OPERATORS})(?![A-Za-z])\s*[\w\\{{]|±\s*\w)"
    r"|_\{?\d|!|\([A-Za-z]\W"
)


def last_reading(text: str) -> Reading | None:
    """The last number of a running text that is not glued to a letter; None if it is surely not one number.

    Raises Unclear where that is a matter of taste.
    """
    text = _plain_forms(re.sub(r"\{,\}|,\\!\s?", ",", text.translate(_ALIKE)))
    text = re.sub(r"(?<=\d)\\[, ](?=\d{3})", " ", text)
    for match in reversed(list(_PHRASE.finditer(text))):
        before, after = text[: match.start()], text[match.end() :]
        unit = re.match(rf"(?i:{_UNITS})(?<!M)(?![A-Za-z0-9])", after)
        behind = re.match("[A-Za-z]", after) and not unit
        glued = match[0][0] != "\x02" and _GLUED.search(before)
        if glued or behind or _INDEX.search(before):
            if not match[0].isdigit() or re.search(r"\\[A-Za-z]+\Z", before):
                raise Unclear(text)
            continue
        after = re.sub(r"^(?:\^(?:\{-?[123]\}|-?[123])|[²³])", "", after[unit.end() :]) if unit else after
        percent = re.match(r"\s?\\?%", after)
        after = after[percent.end() :] if percent else after
        if not _stands_alone(before, after):
            return None
        negative = _SIGN.search(before)
        taste = _TASTE_AFTER.match(after) or (not negative and _TASTE_BEFORE.search(before))
        taste = taste or _TWO_SIGNS.search(before) or (percent and after[:1].isalpha())
        if taste or re.search(r"\d \d", match[0]):
            raise Unclear(text)
        value = _number(match[0])
        if value is None:
            return None
        return Reading(_negative(value) if negative else value, bool(percent))
    return None


def _stands_alone(before: str, after: str) -> bool:
    """Whether what stands around a number leaves it the number that it seems to be."""
    word = _SCALED.match(after)
    scaled = word is not None and word[1].lower() in CHANGING - SAID_ELSEWHERE
    return not (scaled or _OR.search(before) or _BESIDE.match(after))
