"""A number as people write it, read exactly: the host's counterpart of `grammar` and `numbers`.

read_number("1.5 million")              # Fraction(1500000)
read_number("0.\\\\overline{3}")          # Fraction(1, 3)
read_number("2\\\\pi")                    # None: not a number as it stands
"""

from __future__ import annotations

import re
from fractions import Fraction

from atrl_envs.verify.formulas.guards import Refused

MOST_DIGITS = 4000
MOST_POWER = 4000
SCALES = {
    "dozen": 12,
    "hundred": 10**2,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
_PLAIN = r"(?:\d+|\d{1,3}(?:,\d{3})+|\d{1,3}(?: \d{3})+)(?:\.\d*)?|\.\d+"
_DECIMAL = re.compile(_PLAIN)
_REPEATING = re.compile(r"(?P<head>\d*\.\d*)(?:\\(?:overline|bar|dot)\{(?P<period>\d+)\}|\((?P<round>\d+)\))")
_FRACTION = re.compile(
    rf"(?P<whole>\d+\s*)?\\frac\{{\s*(?P<top>-?\s*(?:{_PLAIN}))\s*\}}\{{\s*(?P<bottom>-?\s*(?:{_PLAIN}))\s*\}}"
)
_SLASH = re.compile(rf"(?:(?P<whole>\d+) +)?(?P<top>{_PLAIN}) ?/ ?(?P<bottom>-?(?:{_PLAIN}))")
_POWER = re.compile(
    rf"(?P<head>{_PLAIN})(?:[eE](?P<e>[-+]?\d+)|\s*(?:\\times|\\cdot|\*|x)\s*10\s*\^\s*(?:\{{\s*(?P<braced>[-+]?\d+)\s*\}}|(?P<bare>[-+]?\d+)))"
)
_SCALED = re.compile(
    rf"(?P<head>{_PLAIN}) ?(?:\\text\{{ ?)?(?P<scale>{'|'.join(SCALES)})s?(?: ?\}})?", re.IGNORECASE
)


def read_number(text: str) -> Fraction | None:
    """The value of one number in tidy notation; None for anything else.

    Raises Refused for a number of more than MOST_DIGITS digits or powers of ten, ZeroDivisionError for `1/0`.
    """
    text = text.strip()
    negative = False
    while text[:1] in ("-", "+") and text[1:2] not in ("-", "+"):
        negative ^= text[0] == "-"
        text = text[1:].lstrip()
        break
    if not any(c.isdigit() for c in text):
        return None
    if sum(c.isdigit() for c in text) > MOST_DIGITS:
        raise Refused("a number of too many digits")
    value = _unsigned(text)
    return -value if negative and value is not None else value


def _unsigned(text: str) -> Fraction | None:
    if _DECIMAL.fullmatch(text):
        return _decimal(text)
    if match := _FRACTION.fullmatch(text) or _SLASH.fullmatch(text):
        value = _decimal(match["top"]) / _decimal(match["bottom"])
        if match["whole"] is None:
            return value
        proper = 0 < value < 1 and "-" not in match["top"] + match["bottom"]
        return int(match["whole"]) + value if proper else None
    if match := _POWER.fullmatch(text):
        power = int((match["e"] or match["braced"] or match["bare"])[:20])
        if abs(power) > MOST_POWER:
            raise Refused("a power of ten out of bounds")
        return _decimal(match["head"]) * Fraction(10) ** power
    if match := _SCALED.fullmatch(text):
        return _decimal(match["head"]) * SCALES[match["scale"].lower()]
    if match := _REPEATING.fullmatch(text):
        head, period = match["head"], match["period"] or match["round"]
        places = len(head.partition(".")[2])
        return _decimal(head if head != "." else "0") + Fraction(
            int(period), (10 ** len(period) - 1) * 10**places
        )
    return None


def _decimal(text: str) -> Fraction:
    """`1,234.50` exactly."""
    text = text.replace(",", "").replace(" ", "")
    negative = text.startswith("-")
    whole, _, behind = text.lstrip("-").partition(".")
    value = Fraction(int((whole + behind) or "0"), 10 ** len(behind))
    return -value if negative else value
