"""Prompts from a template: "{}" stands for the question.

filled("Question: {}\\nAnswer: ", "How many?")        # "Question: How many?\\nAnswer: "
"""

from __future__ import annotations


def check_template(template: str) -> None:
    """ValueError unless there is a place for the question."""
    if template.count("{}") != 1:
        raise ValueError(f"template wants {{}} once, where the question stands, got {template!r}")


def filled(template: str, question: str) -> str:
    """The template with the question in its place; braces of the question are only text."""
    before, _, after = template.partition("{}")
    return before + question + after
