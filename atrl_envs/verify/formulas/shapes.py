"""How an answer is put together: words, lists, pairs and intervals, sets, matrices, relations, or one formula.

shape("(1, 2]")               # Shape("pair", ("1", "2"), "(]")
shape("x = 1 or x = 2")       # Shape("list", ("x = 1", "x = 2"), "or")
shape("a < b")                # Shape("relation", ("a", "b"), ("<",))

Only the outermost layer is taken apart; the parts are texts in tidy notation again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from atrl_envs.verify.formulas.notation import balanced, tidy

WORDS, LIST, PAIR, SET, UNION, MATRIX, RELATION, RATIO, FORMULA = (
    "words", "list", "pair", "set", "union", "matrix", "relation", "ratio", "formula",
)  # fmt: skip
RELATIONS = {
    "=": "=", "<": "<", ">": ">", r"\leq": r"\leq", r"\geq": r"\geq", r"\neq": r"\neq", r"\approx": r"\approx",
    r"\in": r"\in", r"\notin": r"\notin", r"\equiv": r"\equiv", r"\to": r"\to", r"\sim": r"\sim",
    r"\subset": r"\subset", r"\subseteq": r"\subseteq",
}  # fmt: skip
_ONE_OF_THOUSANDS = re.compile(r"[^,\d]*\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)[^,]*")
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_TOKEN = re.compile(
    r"\\begin\{(?P<begin>\w+\*?)\}|\\end\{(?P<end>\w+\*?)\}|\\text\{(?P<text>[^{}]*)\}|\\[A-Za-z]+|\\.|[A-Za-z]+|.",
    re.DOTALL,
)
_MATRIX = re.compile(
    r"(?P<factor>[^&=<>,;]*?)\\begin\{(?P<kind>[pbvBV]?(?:small)?matrix|array)\}(?:\{[^{}]*\})?(?P<body>.*)\\end\{(?P=kind)\}",
    re.DOTALL,
)
_BRACKETED = re.compile(r"[\[(]\s*(?P<matrix>\\begin\{(?:array|(?:small)?matrix)\}.*)[\])]", re.DOTALL)
_SET_BUILDER = re.compile(r"\s*[A-Za-z]\s*(?:\\in\s*\\mathbb\s*\{?R\}?\s*)?[|:](?P<condition>[^|:]*)")
_ROW_END = re.compile(r"\\\\(?:\[[^\]]*\])?|\\cr(?![a-z])")
_SHORT_WORDS = frozenset("no on yes odd red one two six ten dne sun mon tue wed thu fri sat".split())
_PLAIN_WORD = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{4,}")
_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_JOIN = re.compile(r"\s*,?\s*(?P<word>and|or)\s*,?\s*")
_COMMAND_OR_INDEX = re.compile(r"\\[A-Za-z]+|_\{[^{}]*\}|_\w")


@dataclass(frozen=True)
class Shape:
    """kind: one of the names above. parts: its parts, as texts; a matrix has its cells row by row. marks: brackets of
    a pair, operators of a relation, the word or sign that joins a list or a union, the columns of a matrix.
    """

    kind: str
    parts: tuple[str, ...]
    marks: tuple[str, ...] | str | int = ""


class Malformed(Exception):
    """A list with an empty item, brackets that do not match: nothing that could be compared."""


def shape(text: str) -> Shape:
    """The outermost layer of a tidy text. Raises Malformed."""
    if not balanced(text):
        raise Malformed("braces that do not match")
    text = text.strip()
    if match := _BRACKETED.fullmatch(text):
        text = match["matrix"].strip()
    if match := _MATRIX.fullmatch(text):
        return _matrix(match["body"], match["kind"], match["factor"].strip())
    if not _THOUSANDS.fullmatch(text):
        items, word = _split_list(text)
        if len(items) > 1:
            return Shape(LIST, tuple(items), word)
    pieces = _top_level(text)
    operators = [piece for piece in pieces if piece in RELATIONS]
    if operators:
        return Shape(RELATION, tuple(_between(pieces, RELATIONS)), tuple(RELATIONS[op] for op in operators))
    if is_words(text):
        return Shape(WORDS, (words(text),))
    if r"\cup" in pieces:
        return Shape(UNION, tuple(_between(pieces, {r"\cup"})), r"\cup")
    if r"\setminus" in pieces or r"\backslash" in pieces:
        return Shape(UNION, tuple(_between(pieces, {r"\setminus", r"\backslash"})), r"\setminus")
    if ":" in pieces:
        return Shape(RATIO, tuple(_between(pieces, {":"})), ":")
    return _bracketed(text, pieces)


def is_words(text: str) -> bool:
    """Whether it is to be read as language: a word of four letters, or a \\text of several, or a known short word."""
    if text.strip().casefold() in _SHORT_WORDS:
        return True
    bare = _TEXT.sub(" ", text)
    if _PLAIN_WORD.search(_COMMAND_OR_INDEX.sub(" ", bare)):
        return True
    return any(re.search(r"[A-Za-z]{2}", inside) for inside in _TEXT.findall(text))


def words(text: str) -> str:
    """Language without its letter case, marks and extra blanks."""
    text = _TEXT.sub(lambda match: f" {match[1]} ", text).casefold()
    text = re.sub(r"(?<![0-9])[.,](?![0-9])|[\"'`!?;{}]|\\(?=\s|$)", " ", text)
    return " ".join(text.split())


def _split_list(text: str, inside: bool = False) -> tuple[list[str], str]:
    """Items at the top level between commas, semicolons, `and` and `or`, and the word among them. inside: brackets."""
    # `1,000, 2,000` is two numbers; `x = 1,000` is one, but `(1,200)` is a pair.
    keep_thousands = bool(re.search(r",\s", text)) or (not inside and bool(_ONE_OF_THOUSANDS.fullmatch(text)))
    items, current, word, level, place = [], [], "", 0, 0
    for match in _TOKEN.finditer(text):
        token, joined = match[0], None
        level += _steps(match)
        if level == 0:
            if token in (",", ";"):
                thousands = (
                    re.match(r",\d{3}(?!\d)", text[match.start() :]) and text[place - 1 : place].isdigit()
                )
                joined = "" if token == ";" or not (keep_thousands and thousands) else None
            elif token in ("and", "or"):
                joined = token
            elif match["text"] is not None and (join := _JOIN.fullmatch(match["text"])):
                joined = join["word"]
            elif match["text"] is not None and match["text"].strip() in (",", ";"):
                joined = ""
        place = match.end()
        if joined is None:
            current.append(token)
            continue
        word = word or joined
        item = "".join(current).strip()
        current = []
        if item:
            items.append(item)
        elif not joined:
            raise Malformed("a list with an empty item")
    last = "".join(current).strip()
    if items and not last:
        raise Malformed("a list that ends in a separator")
    return [*items, last], word


def _top_level(text: str) -> list[str]:
    """Tokens; what stands in braces or brackets is one token each."""
    pieces: list[str] = []
    group, level = "", 0
    for match in _TOKEN.finditer(text):
        step = _steps(match)
        if step < 0 and not level:
            raise Malformed("brackets that do not match")
        if level or step > 0:
            group += match[0]
            level += step
            if level <= 0:
                pieces.append(group)
                group, level = "", 0
        else:
            pieces.append(match[0])
    if group:
        raise Malformed("brackets that do not match")
    return pieces


def _steps(match: re.Match[str]) -> int:
    """+1 for what opens, -1 for what closes; half-open intervals close with either kind."""
    token = match[0]
    if match["begin"] or token in ("(", "[", "{", "\\{", r"\langle", r"\lfloor", r"\lceil"):
        return 1
    if match["end"] or token in (")", "]", "}", "\\}", r"\rangle", r"\rfloor", r"\rceil"):
        return -1
    return 0


def _between(pieces: list[str], separators: dict[str, str] | set[str]) -> list[str]:
    parts = [""]
    for piece in pieces:
        if piece in separators:
            parts.append("")
        else:
            parts[-1] += piece
    parts = [part.strip() for part in parts]
    if not all(parts):
        raise Malformed("a sign with nothing on one side")
    return parts


def _bracketed(text: str, pieces: list[str]) -> Shape:
    """A pair, a set, or a formula."""
    pieces = [piece for piece in pieces if piece.strip()]
    if len(pieces) != 1:
        return Shape(FORMULA, (text,))
    if text.startswith("\\{") and text.endswith("\\}"):
        inside = text[2:-2].strip()
        if not inside:
            return Shape(SET, ())
        if match := _SET_BUILDER.fullmatch(inside):
            return shape(match["condition"].strip())
        return Shape(SET, tuple(_split_list(inside, inside=True)[0]))
    opens, closes, inside = text[:1], text[-1:], text[1:-1].strip()
    if text.startswith(r"\langle") and text.endswith(r"\rangle"):
        opens, closes, inside = "<", ">", text[7:-7].strip()
    if opens and opens in "([<" and closes in ")]>":
        items, _ = _split_list(inside, inside=True)
        if len(items) > 1:
            return Shape(PAIR, tuple(items), opens + closes)
        if (opens, closes) in (("(", ")"), ("[", "]")) and inside:
            return shape(tidy(inside))
    return Shape(FORMULA, (text,))


def assignments(relation: Shape) -> Shape | None:
    """`(p, q) = (3, 2)` as the list of `p = 3` and `q = 2`; None for any other relation."""
    if relation.marks != ("=",):
        return None
    left, right = (shape(side) for side in relation.parts)
    if left.kind != PAIR or right.kind != PAIR or len(left.parts) != len(right.parts):
        return None
    return Shape(
        LIST, tuple(f"{name} = {value}" for name, value in zip(left.parts, right.parts, strict=True))
    )


def _matrix(body: str, kind: str, factor: str) -> Shape:
    rows = [row for row in _ROW_END.split(body) if row.strip()]
    cells = [[tidy(cell) for cell in row.split("&")] for row in rows]
    if not rows or len({len(row) for row in cells}) != 1 or not all(cell for row in cells for cell in row):
        raise Malformed("a matrix with rows of different lengths")
    if "v" in kind or "V" in kind:
        return Shape(FORMULA, (f"{factor}\\begin{{{kind}}}{body}\\end{{{kind}}}",))
    times = "" if not factor else f"({'-1' if factor == '-' else factor}) \\cdot "
    parts = tuple(f"{times}({cell})" if times else cell for row in cells for cell in row)
    return Shape(MATRIX, parts, len(cells[0]))
