"""Verdicts on mathematical answers, as tensor programs.

verifier = MathVerifier(vocab, style="boxed")
verdicts = verifier(tokens, start, verifier.encode_answers(golds))       # [B] int8
verify_texts(["so \\\\boxed{1/2}"], ["0.5"], style="boxed")              # [Verdict.CORRECT]

Importing this package loads nothing heavy: the host's judge runs in processes without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atrl_envs.verify.exact import ExactVerifier
    from atrl_envs.verify.patterns import PatternVerifier
    from atrl_envs.verify.texts import verify_texts
    from atrl_envs.verify.verdict import Verdict
    from atrl_envs.verify.verifier import MathVerifier

_HOMES = {
    "ExactVerifier": "exact",
    "MathVerifier": "verifier",
    "PatternVerifier": "patterns",
    "Verdict": "verdict",
    "verify_texts": "texts",
}

__all__ = ["ExactVerifier", "MathVerifier", "PatternVerifier", "Verdict", "verify_texts"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
