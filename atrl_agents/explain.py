"""A verdict in words: what was taken for the answer, and how it was read.

explain("WRONG", "so \\\\boxed{0.50}", "1/4", "boxed", by="value")
# "the answer is 1/4; yours was found as '0.50' and read as the number 0.5"
"""

from __future__ import annotations

LONGEST_SHOWN = 30  # digits of a number


def explain(verdict: str, response: str, gold: str, style: str, *, by: str = "value") -> str:
    """One line. by: what is compared, a "value" or a "text"; or "rules", which more than one answer may satisfy."""
    wanted = f"the answer is {gold}" if gold else "the task has no answer of its own to show"
    if by == "rules" and gold:
        wanted = f"a right answer is {gold}"
    return {
        "CORRECT": f"{wanted}" if by == "rules" else f"it equals {gold}",
        "WRONG": f"{wanted}; {_found(response, style, by)}",
        "MISSING": f"no answer was found; {_form(style)}; {wanted}",
        "UNDECIDED": f"an answer of this form cannot be judged; {_found(response, style, by)}; {wanted}",
        "INVALID_GOLD": f"the task's own answer, {gold}, cannot be judged; such problems are never trained on",
    }[verdict]


def _found(response: str, style: str, by: str) -> str:
    """What was taken for the answer, and as what."""
    from atrl_envs.verify.formulas.excerpt import excerpt

    taken = excerpt(response, style)
    if taken is None:
        return f"none was found in yours; {_form(style)}"
    found = f"yours was found as {taken.strip()!r}"
    if by != "value":
        return f"{found} and {'compared as a text' if by == 'text' else 'checked by the rules of the task'}"
    value = number_in(taken)
    return f"{found} and read as the number {value}" if value else f"{found}, which is not one plain number"


def number_in(text: str) -> str:
    """The number that a text is read as, in plain digits or as a fraction; empty where it is none."""
    from atrl_envs.verify.gold import INVALID, encode_gold
    from atrl_envs.verify.grammar import answer_machine

    gold = encode_gold(text.strip(), answer_machine())
    if gold.kind == INVALID:
        return ""
    sign, percent = "-" if gold.negative else "", "%" if gold.percent else ""
    if not gold.terminates:
        return f"{sign}{gold.top}/{gold.bottom}{percent}" if gold.top else "a fraction of many digits"
    digits, exponent = gold.digits or "0", gold.exponent if gold.digits else 0
    if len(digits) + abs(exponent) > LONGEST_SHOWN:
        return f"{sign}0.{digits[:LONGEST_SHOWN]}e{len(digits) + exponent}{percent}"
    if exponent >= 0:
        return f"{sign}{digits}{'0' * exponent}{percent}"
    padded = digits.rjust(1 - exponent, "0")
    return f"{sign}{padded[:exponent]}.{padded[exponent:]}{percent}"


def _form(style: str) -> str:
    from atrl_envs.task import styled_answer

    if style == "plain":
        return "write the answer alone"
    if style == "last_number":
        return "the last number is taken"
    return f"write it as {styled_answer('ANSWER', style)}"
