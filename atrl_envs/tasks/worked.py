"""A problem with worked-out steps: whatever the style, its gold response is the steps and then the marked answer.

Worked("6*7+1=", "43", steps="6*7=42").gold_response("boxed")         # "6*7=42\\n\\boxed{43}"
"""

from __future__ import annotations

from dataclasses import dataclass

from atrl_envs.task import Problem, styled_answer


@dataclass(frozen=True)
class Worked(Problem):
    """steps: text that leads to the answer. marked: a style in which the steps hold the marked answer already."""

    steps: str = ""
    marked: str = ""

    def gold_response(self, style: str) -> str:
        """The steps and the answer; the answer alone in style `plain`, where the whole response is the answer."""
        if self.response or style == "plain" or not self.steps:
            return super().gold_response(style)
        if style == self.marked:
            return self.steps
        return f"{self.steps}\n{styled_answer(self.answer, style)}"
