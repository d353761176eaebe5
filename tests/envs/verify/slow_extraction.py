"""Where a response's answer is, found with `bytes.find` one response at a time; shares nothing with the verifiers.

found = answer_in(b"so \\\\boxed{7}.", "boxed")      # Found(answer=b"7", hidden=False)
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Found:
    """The bytes of the answer; hidden: they stand inside an HTML comment."""

    answer: bytes
    hidden: bool = False


def answer_in(raw: bytes, style: str) -> Found | None:
    """The answer of a response, None where its style finds none."""
    if style == "plain":
        return Found(raw)
    begin, stop = judged_part(raw)
    span = {"gsm8k_hash": _hash, "boxed": _box, "answer_tag": _tag}[style](raw, begin, stop)
    if span is None:
        return None
    opened, closed = raw.rfind(b"<!--", 0, span[0]), raw.rfind(b"-->", 0, span[0])
    return Found(raw[slice(*span)], opened >= 0 and opened + 4 > closed + 3)


def judged_part(raw: bytes) -> tuple[int, int]:
    """Behind the last `</think>`, and before the first `<think>` behind that."""
    closed = raw.rfind(b"</think>")
    begin = closed + 8 if closed >= 0 else 0
    opened = raw.find(b"<think>", begin)
    return begin, opened if opened >= 0 else len(raw)


def _hash(raw: bytes, begin: int, stop: int) -> tuple[int, int] | None:
    mark = raw.rfind(b"####", begin, stop)
    if mark < 0:
        return None
    line = re.compile(rb"[^\r\n]*").match(raw, mark + 4, stop)
    return (mark + 4, line.end()) if line else None


def _tag(raw: bytes, begin: int, stop: int) -> tuple[int, int] | None:
    close = raw.rfind(b"</answer>", begin, stop)
    mark = raw.rfind(b"<answer>", begin, close) if close >= 0 else -1
    return (mark + 8, close) if mark >= 0 else None


def _box(raw: bytes, begin: int, stop: int) -> tuple[int, int] | None:
    last = None
    for mark in re.compile(rb"\\(?:boxed|fbox)( ?)").finditer(raw, begin, stop):
        at = mark.end()
        if raw[at : at + 1] == b"{" and at < stop:
            end = _partner(raw, at, stop)
            last = (at + 1, end) if end is not None else last
        elif mark[1]:
            bare = re.compile(rb"[^ \r\n$]*").match(raw, at, stop)
            last = (at, bare.end()) if bare else last
    return last


def _partner(raw: bytes, at: int, stop: int) -> int | None:
    """The brace that closes the one at `at`; escaped braces do not count, but those behind `\\\\` do."""
    depth = 0
    for brace in re.compile(rb"(?<!\\)[{}]|(?<=\\\\)[{}]").finditer(raw, at, stop):
        depth += 1 if brace[0] == b"{" else -1
        if depth == 0:
            return brace.start()
    return None
