"""Where in one response is the answer? The host's counterpart of `extract`, on strings.

excerpt("so \\boxed{2^{10}}", "boxed")          # "2^{10}"
excerpt("so 2^{10}", "boxed")                   # None: no marker

The same rules: what stands behind the last `</think>` and before a `<think>` that stays open, the last marker,
nothing inside an HTML comment.
"""

from __future__ import annotations

import re

from atrl_envs.verify import vocabulary

LONGEST = 1 << 17  # characters of a response that are looked at: its last ones
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_BRACES = re.compile(
    r"(?P<box>\\(?:boxed|fbox)\s*\{)|(?P<bare>\\(?:boxed|fbox)\s+(?=[^\s{]))|\\.|(?P<brace>[{}])", re.DOTALL
)
_UNTIL_BLANK = re.compile(r"[^\s$]*")
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9])(?<![A-Za-z][.,])[0-9](?:[0-9.,]*[0-9])?(?P<glued>[A-Za-z]*)(?P<power>[²³^]?)"
)
_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]")
_WORD_BEFORE = re.compile(r"(?P<word>[A-Za-z]+)[\s$]*$")
_SIGN_BEFORE = re.compile(r"(?P<behind>\s*)[-−–‐‑‒](?P<gap>(?:[\s$]|\\[(\[])*)$")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_TOLD = re.compile(
    r"\s*(?:\\text\s*\{\s*)?(?:the\s+)?(?:final\s+|correct\s+)?answer\s*(?:is\b|:)\s*:?\s*", re.I
)
_WORD = re.compile(r"[A-Za-z]{2}|^[aAI]$")
_CHANGES = vocabulary.SIGNS | vocabulary.FUNCTIONS
_JOINS = frozenset("or and to between through not than nor".split())


def excerpt(completion: str, style: str) -> str | None:
    """The text of the answer; None where there is none in the asked format.

    Looks at the last LONGEST characters, in time linear in their number. ValueError for an unknown style.
    """
    text = _COMMENT.sub("", completion[-LONGEST:])
    text = text.rpartition("</think>")[2].partition("<think>")[0]
    found: str | None = text
    if style == "gsm8k_hash":
        _, marker, rest = text.rpartition("####")
        found = re.split(r"[\r\n]", rest, maxsplit=1)[0] if marker else None
    elif style == "boxed":
        found = _last_box(text)
    elif style == "answer_tag":
        close = text.rfind("</answer>")
        begin = text.rfind("<answer>", 0, max(close, 0))
        found = text[begin + 8 : close] if begin >= 0 else None
    elif style == "last_number":
        found = _around_last_number(text)
    elif style != "plain":
        raise ValueError(f"unknown style {style!r}")
    if found is not None and style != "plain" and (told := _TOLD.match(found)):
        found = found[told.end() :].replace("}", "", told[0].count("{"))
    return found if found is not None and found.strip() else None


def _last_box(text: str) -> str | None:
    """Content of the box that begins last among those that are closed."""
    inside: list[int] = []  # where the content of each open brace begins; -1: it is no box
    start, content = -1, None
    for match in _BRACES.finditer(text):
        if match["box"]:
            inside.append(match.end())
        elif match["bare"]:
            start = match.end()
            content = _UNTIL_BLANK.match(text, start)[0]  # type: ignore[index]
        elif match["brace"] == "{":
            inside.append(-1)
        elif match["brace"] and inside:
            begin = inside.pop()
            if begin > start:
                start, content = begin, text[begin : match.start()]
    return content


def _around_last_number(text: str) -> str | None:
    """The formula around the last number that is not glued to a letter."""
    last = None
    for match in _NUMBER.finditer(text):
        unit = match["glued"].lower()
        if not unit or unit in vocabulary.SHORT_UNITS or (match["power"] and unit in vocabulary.LETTER_UNITS):
            last = match
    if last is None:
        return None
    begin = text.rfind("\n", 0, last.start()) + 1
    line, place = text[begin:].partition("\n")[0], last.start() - begin
    for formula in _FORMULA.finditer(line):
        if formula.start() < place < formula.end() and not _WORD.search(_COMMAND.sub("", formula[0])):
            found = next(group for group in formula.groups() if group is not None)
            return _said_before(text[: begin + formula.start()]) + found
    first, found = _mathematical_words(line, place)
    return _said_before(text[: begin + first]) + found


def _said_before(text: str) -> str:
    """What a text that ends before a formula makes of it: a sign, a function, or nothing."""
    if (match := _WORD_BEFORE.search(text[-99:])) and (word := match["word"].lower()) in _CHANGES:
        return "-" if word in vocabulary.SIGNS else f"\\{word} "
    match = _SIGN_BEFORE.search(text[-99:])
    if match is None:
        return ""
    earlier = text[-99:][: match.start()]
    if match["gap"].strip() != match["gap"] and (not earlier or "\n" in match["behind"]):
        return ""  # the mark of a list
    # Behind a word, or with blanks around it, it may be a sign, a dash, or subtract: no value is surely meant.
    return "\\pm " if match["gap"][:1].isspace() or (earlier[-1:].isalnum() and not match["behind"]) else "-"


def _mathematical_words(line: str, place: int) -> tuple[int, str]:
    """The words around a place that belong to no language, and one that joins them to others; and where they begin."""
    words = [(match.start(), match[0]) for match in re.finditer(r"\S+", line)]
    first = last = max(i for i, (start, _) in enumerate(words) if start <= place)
    while first > 0 and _mathematical(words[first - 1][1]) and not _ends_a_sentence(words[first - 1][1]):
        first -= 1
    while (
        last + 1 < len(words) and _mathematical(words[last + 1][1]) and not _ends_a_sentence(words[last][1])
    ):
        last += 1
    if last + 1 < len(words) and words[last + 1][1].strip(".,;:!?").lower() in vocabulary.NOT_UNITS:
        last += 1  # `3 million`, `42 or`
    if first > 1 and words[first - 1][1].lower() in _JOINS and re.search(r"\d", words[first - 2][1]):
        first -= 1  # left in, it keeps `42 or 43` from being one number
    return words[first][0], " ".join(word for _, word in words[first : last + 1]).strip(" .,;:?*")


def _mathematical(word: str) -> bool:
    return not _WORD.search(_COMMAND.sub("", word))


def _ends_a_sentence(word: str) -> bool:
    return word[-1] in ".;:?!"
