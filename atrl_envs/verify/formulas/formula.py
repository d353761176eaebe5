"""A formula in tidy notation as an expression of computer algebra: math-verify's parser, and what it must not see.

    evaluated(r"\\frac{9}{4}\\pi + 1 - 1")       # 9*pi/4
    evaluated("9^{9^{9^9}}")                     # raises Refused
    evaluated("\\triangle ABC")                  # raises Unreadable

Decimals are fractions before the parser reads them, so nothing is rounded; variables are real, `i` is imaginary.
Meant for a worker process: a formula that passes all guards may still take long.
"""

from __future__ import annotations

import functools
import logging
import re
from typing import TYPE_CHECKING

from atrl_envs.verify.formulas.guards import Refused, refuse_large
from atrl_envs.verify.formulas.rationals import read_number
from atrl_envs.verify.formulas.weight import refuse_heavy

if TYPE_CHECKING:
    import sympy

_COMMANDS = (
    "frac sqrt pi cdot times binom infty sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln exp max "
    "min gcd lcm bmod lfloor rfloor lceil rceil overline bar sum prod int lim to mathbb text begin end hat vec tilde "
    "ell alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau "
    "upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega"
).split()
_ALLOWED = re.compile(
    rf"(?:[\dA-Za-z+\-*/^_(){{}}\[\]|!.,= &]|\\[{{}}|\\]|\\(?:{'|'.join(_COMMANDS)})(?![A-Za-z]))*"
)
# A number in another base, or in two pieces.
_BROKEN = re.compile(r"\d\s*_|(?<![_\d])\d+\s+[\d.]|--|\+\+|(?<![\w.])0[xXbBoO]\w")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_DECIMAL = re.compile(r"(?<![\d.])(?:(?P<whole>\d*)\.(?P<behind>\d+)(?![\d.])|(?P<bare>\d+)\.(?!\d))")
_MIXED = re.compile(r"\d\s*\\frac\{\s*(\d+)\s*\}\{\s*(\d+)\s*\}")
_IN_DEGREES = re.compile(
    r"(?P<of>\\(?:sin|cos|tan|cot|sec|csc)(?:\^\{?\d\}?)?\s*[{(]?\s*)(?P<angle>\d+(?:\.\d+)?)\^\{\\circ\}"
)
_TIMES = re.compile(r"(?<=\d)\s*\(")
_BRACE = re.compile(r"\\[{}]|[{}]")
_TAKES_BRACES = re.compile(
    r"(?:[\^_}\]]|\\(?:frac|binom|sqrt|text|overline|bar|hat|vec|tilde|mathbb|begin|end))\s*$"
)


class Unreadable(Exception):
    """Not a formula that the parser knows, or one without a value."""


@functools.lru_cache(maxsize=512)
def evaluated(text: str) -> sympy.Expr:
    """The formula with its operations carried out. Raises Unreadable, Refused."""
    import sympy

    try:
        number = read_number(text)
    except ZeroDivisionError as error:
        raise Unreadable(text) from error
    if number is not None:
        return sympy.Rational(number.numerator, number.denominator)
    formula = _parsed(_for_the_parser(text))
    refuse_heavy(formula)
    if not formula.has(sympy.Sum, sympy.Product):  # where i counts, it is no imaginary unit
        formula = formula.subs(sympy.Symbol("i", real=True), sympy.I)
    value = formula.doit()
    if not isinstance(value, sympy.Expr) or value.has(sympy.nan, sympy.zoo):
        raise Unreadable(text)
    return value


def _for_the_parser(text: str) -> str:
    """The formula as the parser reads it rightly."""
    text = _IN_DEGREES.sub(r"\g<of>(\g<angle> \\cdot \\frac{\\pi}{180})", text)
    if not _ALLOWED.fullmatch(text) or _BROKEN.search(text) or not re.search(r"[\dA-Za-z]", text):
        raise Unreadable(text)
    refuse_large(text)
    text = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), text)
    text = _round_groups(_DECIMAL.sub(_as_fraction, text))
    if any(int(top) >= int(bottom) for top, bottom in _MIXED.findall(text)):
        raise Refused("neither a mixed number nor surely a product")
    return _TIMES.sub(r"\\cdot (", text)  # 2(\frac{1}{2}) would be read as a mixed number


def _parsed(text: str) -> sympy.Basic:
    """The expression as it is written, nothing carried out."""
    import sympy
    from latex2sympy2_extended import latex2sympy
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig

    logging.getLogger("latex2sympy2_extended").setLevel(logging.ERROR)
    config = ConversionConfig(lowercase_symbols=False)
    try:
        formula = latex2sympy(text, is_real=True, normalization_config=None, conversion_config=config)
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        raise Unreadable(text) from error
    if not isinstance(formula, sympy.Basic):
        raise Unreadable(text)
    return formula


def _as_fraction(match: re.Match[str]) -> str:
    if match["bare"] is not None:
        return match["bare"]
    return f"(\\frac{{{match['whole']}{match['behind']}}}{{1{'0' * len(match['behind'])}}})"


def _round_groups(text: str) -> str:
    """Braces that only group are round brackets: the parser takes them for a set."""
    letters, opened = list(text), []
    for match in _BRACE.finditer(text):
        if match[0] == "{":
            opened.append((match.start(), _TAKES_BRACES.search(text, 0, match.start()) is None))
        elif match[0] == "}" and opened:
            begin, groups = opened.pop()
            if groups:
                letters[begin], letters[match.start()] = "(", ")"
    return "".join(letters)
