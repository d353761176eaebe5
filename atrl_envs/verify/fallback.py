"""The host's judge of one response, for what the tensor program may not decide: formulas, lists, sets, words.

    decide("so \\boxed{\\frac{\\sqrt{6}}{6}}", r"\\frac{1}{\\sqrt{6}}", "boxed")          # Verdict.CORRECT
    pool.submit("atrl_envs.verify.fallback:decide", completion, gold, style)             # where it belongs

A formula is read by math-verify's parser and compared exactly. Its size is looked at first, and what is too large is
UNDECIDED; what is small and still hangs is killed with its process (see `host`).
"""

from __future__ import annotations

import functools

from atrl_envs.host.functions import prepared_by
from atrl_envs.verify.formulas.excerpt import LONGEST, excerpt
from atrl_envs.verify.formulas.guards import DEEPEST, depth
from atrl_envs.verify.formulas.notation import key, tidy
from atrl_envs.verify.formulas.same import same, sound
from atrl_envs.verify.verdict import Verdict

LONGEST_ANSWER = (
    2000  # characters of an answer or a gold; longer ones, and very nested ones, are compared as texts
)


def prepare() -> None:
    """Import what takes long, before the first job's time begins."""
    same("x^{2}", "x+1")


@prepared_by(prepare)
def decide(completion: str, gold: str, style: str) -> int:
    """The Verdict on one response, cut at its end of sequence already.

    style: see MathVerifier; ValueError for an unknown one. Other input raises nothing: what is too large or too
    strange to be judged is UNDECIDED, a gold that says nothing is INVALID_GOLD.
    """
    answer = excerpt(completion, style)
    try:
        return int(_verdict(completion, answer, gold, style))
    except MemoryError:
        raise
    except Exception:  # whatever computer algebra stumbles over
        return int(Verdict.UNDECIDED)


def _verdict(completion: str, answer: str | None, gold: str, style: str) -> Verdict:
    wanted, compared_as_text = _read_gold(gold)
    if wanted is None:
        return Verdict.INVALID_GOLD
    # Whether the part in sight is thinking was said in the part that is not.
    if len(completion) > LONGEST and (style == "plain" or "</think>" not in completion[-LONGEST:]):
        return Verdict.UNDECIDED
    if answer is None:
        return Verdict.MISSING
    if compared_as_text or _large(answer):
        alike = _as_text(answer) == _as_text(gold)
        return Verdict.CORRECT if alike else Verdict.UNDECIDED
    given = tidy(answer)
    if not key(given):
        return Verdict.MISSING
    found = same(wanted, given)
    if found is None:
        return Verdict.UNDECIDED
    return Verdict.CORRECT if found else Verdict.WRONG


@functools.lru_cache(maxsize=1024)
def _read_gold(gold: str) -> tuple[str | None, bool]:
    """The gold in tidy notation, None for one that says nothing; and whether it is too large for that."""
    if _large(gold):
        return _as_text(gold), True
    text = tidy(gold)
    return (text if sound(text) else None), False


def _large(text: str) -> bool:
    return len(text) > LONGEST_ANSWER or depth(text) > DEEPEST


def _as_text(text: str) -> str:
    return " ".join(text.split())
