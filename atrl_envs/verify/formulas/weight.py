"""How large a formula becomes when its operations are carried out, estimated before they are.

    refuse_heavy(formula)              # raises Refused for (10^{1000})^{1000}: a value of too many digits

The formula is one that nothing was carried out of; `guards` has looked at its text.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from atrl_envs.verify.formulas.guards import Refused

if TYPE_CHECKING:
    import sympy

MOST_PARTS = 400
LARGEST = 20_000  # decimal digits of a value


def refuse_heavy(formula: sympy.Basic) -> None:
    """Raise Refused where carrying out the operations could give numbers of more than LARGEST digits."""
    import sympy

    if sum(1 for _ in sympy.preorder_traversal(formula)) > MOST_PARTS:
        raise Refused("a formula of too many parts")
    if _digits(formula) > LARGEST:
        raise Refused("a value of too many digits")


def _digits(formula: sympy.Basic) -> float:
    """About how many decimal digits the value or its inverse has at most."""
    import sympy

    if isinstance(formula, sympy.Rational):
        return max(1.0, 0.302 * max(abs(formula.p).bit_length(), formula.q.bit_length()))
    inside = [_digits(part) for part in formula.args]
    if isinstance(formula, sympy.Pow):
        found = inside[0] * max(1.0, _size(formula.args[1], inside[1]))
    elif isinstance(formula, (sympy.factorial, sympy.gamma)):
        size = _size(formula.args[0], inside[0])
        found = size * math.log10(size + 10.0)
    elif isinstance(formula, sympy.exp):
        found = 1.0 + 0.44 * _size(formula.args[0], inside[0])
    else:
        found = 1.0 + sum(inside)
    if not found <= LARGEST:
        raise Refused("a value of too many digits")
    return found


def _size(formula: sympy.Basic, digits: float) -> float:
    """At most so large is its absolute value."""
    import sympy

    if isinstance(formula, sympy.Rational):
        return abs(float(formula)) if formula.p.bit_length() < 1000 else 1e300
    if isinstance(formula, sympy.Mul):
        return math.prod(_size(part, _digits(part)) for part in formula.args)
    if isinstance(formula, sympy.Add):
        return sum(_size(part, _digits(part)) for part in formula.args)
    return 10.0 ** min(300.0, digits)
