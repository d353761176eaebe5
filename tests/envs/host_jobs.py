"""A host job that answers at once, hangs, dies, or comes late, by the last digit of the response.

It imports little, since every worker that it kills is replaced by one that imports it again.
"""

from __future__ import annotations

import os
import time

from atrl_envs.verify.verdict import Verdict

HANGS, DIES, LATE = "7", "8", "9"


def decide(completion: str, answer: str) -> int:
    """Correct by the text, wrong otherwise; see above for how long it takes."""
    if completion.endswith(HANGS):
        while True:
            pass
    if completion.endswith(DIES):
        os._exit(3)
    if completion.endswith(LATE):
        time.sleep(0.05)
    return int(Verdict.CORRECT if completion == answer else Verdict.WRONG)


def raises(completions: list[str]) -> list[float]:
    """A reward function with a mistake."""
    raise KeyError("no such column")
