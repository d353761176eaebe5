"""Verdicts on mathematical answers, as tensor programs.

verifier = MathVerifier(vocab, style="boxed")
verdicts = verifier(tokens, start, verifier.encode_answers(golds))       # [B] int8
verify_texts(["so \\\\boxed{1/2}"], ["0.5"], style="boxed")              # [Verdict.CORRECT]
"""

from __future__ import annotations

from atrl_envs.verify.texts import verify_texts
from atrl_envs.verify.verdict import Verdict
from atrl_envs.verify.verifier import MathVerifier

__all__ = ["MathVerifier", "Verdict", "verify_texts"]
