"""One spelling for many: LaTeX and Unicode brought to the notation that the other host modules read.

tidy("$\\\\dfrac12\\\\,\\\\text{ cm}$.")        # "\\\\frac{1}{2} \\\\text{ cm}"
key("x ^ {2}")                             # "x^2": two texts with one key are one text
"""

from __future__ import annotations

import re
import unicodedata

_SYMBOLS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "×": r"\times ", "⋅": r"\cdot ", "·": r"\cdot ", "∙": r"\cdot ",
    "÷": "/", "∕": "/", "⁄": "/", "≤": r"\leq ", "≥": r"\geq ", "⩽": r"\leq ", "⩾": r"\geq ", "≠": r"\neq ",
    "≈": r"\approx ", "±": r"\pm ", "∓": r"\mp ", "∞": r"\infty ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ",
    "∅": r"\emptyset ", "°": r"^{\circ}", "º": r"^{\circ}", "∘": r"\circ ", "√": r"\sqrt ", "∠": r"\angle ",
    "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}",
    "π": r"\pi ", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "λ": r"\lambda ",
    "φ": r"\phi ", "ω": r"\omega ", "μ": r"\mu ", "σ": r"\sigma ", "′": "'", "’": "'", "“": '"', "”": '"',
}  # fmt: skip
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n")
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_VULGAR = re.compile("[¼½¾⅐-⅞]")
_FONT = r"\\(?:mathrm|mathbf|mathit|mathsf|boldsymbol|bm|operatorname\*?)"
_FUNCTION = "(?:arc)?(?:sin|cos|tan|cot|sec|csc)|log|ln|exp|max|min|gcd|lcm|det"
_BLANK = r"\\(?:[,;:> ]|(?:q?quad|thinspace|enspace)(?![a-z])|hspace\s*\{[^{}]*\})|~"
# In this order: what an earlier line makes, a later one may use.
_REWRITES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\[dtc]frac(?![a-z])", r"\\frac"),
        (r"\\[dt]binom(?![a-z])", r"\\binom"),
        (r"\\(?:mbox|textrm|textbf|textit|textsf|texttt|textnormal|hbox|textup)(?![a-z])", r"\\text"),
        (r"\\(?:left|right)\s*\.", ""),
        (r"\\(?:left|right|middle|[bB]igg?[lrm]?)\s*(?=[\W_])", ""),
        (r"\\(?:displaystyle|textstyle|scriptstyle|limits|nolimits|small|large|bf|rm|it)(?![a-z])", ""),
        (r"\\(?:le|leqslant|leqq)(?![a-z])", r"\\leq "),
        (r"\\(?:ge|geqslant|geqq)(?![a-z])", r"\\geq "),
        (r"\\(?:ne|not\s*=)(?![a-z])", r"\\neq "),
        (r"\\lt(?![a-z])", "<"),
        (r"\\gt(?![a-z])", ">"),
        (r"<=(?!>)", r"\\leq "),
        (r">=", r"\\geq "),
        (r"(?<=\s)!=", r"\\neq "),
        (r"\\lbrace(?![a-z])", r"\\{"),
        (r"\\rbrace(?![a-z])", r"\\}"),
        (r"\\lbrack(?![a-z])", "["),
        (r"\\rbrack(?![a-z])", "]"),
        (r"\\(?:[lr]?vert|mid)(?![a-z])", "|"),
        (r"\\(?:varnothing|empty)(?![a-z])", r"\\emptyset"),
        (r"\\(?:degree|degrees)(?![a-z])", r"^{\\circ}"),
        (r"\^\s*\\circ(?![a-z])", r"^{\\circ}"),
        (r"\\(?:ast|star)(?![a-z])", "*"),
        (r"\\div(?![a-z])", "/"),
        (r"\{([^{}]*)\\over(?![a-z])([^{}]*)\}", r"\\frac{\1}{\2}"),
        (r"^([^{}]*)\\over(?![a-z])([^{}]*)$", r"\\frac{\1}{\2}"),
        (r"(?<![\\A-Za-z])sqrt\s*(?=\()", r"\\sqrt "),
        (r"(?<![\\A-Za-z])pi(?![A-Za-z])", r"\\pi "),
        (r"\\lg(?![a-z])", r"\\log_{10} "),
        (r"\\(?:lor|vee)(?![a-z])", " or "),
        (r"\\(?:land|wedge)(?![a-z])", " and "),
        (r"\bper\s+cent\b", "percent"),
        (r"\b([ap])\.\s?m(?:\.|\b)", r"\1m"),
        (r"(?:\\text\s*)?\{\s*([-+])\s*\}", r"\1"),
        (r"^\s*~+(?=\s*[-+.\d$\\])", r"\\approx "),
        (r"(?<=\d)_(?:10(?!\d)|\{\s*10\s*\})\s*$", ""),
        (r"\\pmod\s*(\d)", r"\\pmod{\1}"),
        (r"\\text\s*\{\s*([A-Za-z0-9]+)\s*\}(?=_)", r"\1"),
        (r"\\colon(?![a-z])", ":"),
        (r"\\(?:infin|infinity)(?![a-z])|(?<![\\A-Za-z])[iI]nfinity(?![a-z])", r"\\infty "),
        (rf"{_FONT}\s*\{{\s*({_FUNCTION})\s*\}}", r"\\\1 "),
        (rf"{_FONT}\s*\{{\s*([A-Za-z])\s*\}}", r"\1"),
        (rf"{_FONT}(?=\s*\{{[A-Za-z ]*\}})", r"\\text"),
        (rf"{_FONT}(?=\s*\{{)", ""),
        (r"\{\s*,\s*\}", ","),
        (r",\\!\s?", ","),
        (r"\\!", ""),
        (_BLANK, " "),
        (r"\\?\$|€|£|¥|\\(?:pounds|euro)(?![a-z])", ""),
        (r"\\%|\\?％", "%"),
        (r"\*\*", "^"),
        (r"\\text\s*\{\s*(\d[\d.,/ ]*)\}", r" \1 "),
        (r"\\text\s*\{\s*\}", " "),
        (r"\s+", " "),
    )
]
_DELIMITERS = re.compile(r"\\[()\[\]]")
_NEW_ROW = "\ue000"  # stands for a double backslash meanwhile
_CHOICE = re.compile(r"\(?([A-J])[).:]")
_TWO_ARGUMENTS = re.compile(r"\\(?:frac|binom)(?![a-z])\s*")
_ONE_ARGUMENT = re.compile(r"\\[A-Za-z]+|[^\s{}]")
_SHORT_ROOT = re.compile(r"\\sqrt\s*(?=[^\s{\[])(?P<of>\\[A-Za-z]+|\d+|[A-Za-z]|\([^()]*\))")
_LONG_POWER = re.compile(r"\^\s*(?P<power>-?\d+(?:\.\d+)?)(?!\d)|\^\s*\((?P<round>[^()]*)\)")
_BOLD = re.compile(r"(?<![\w)}])\*\*([^*]+)\*\*(?![\w({])")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?=\{)")
_ENDS = re.compile(r"^(?:[\s*`\ue000]|_(?!\{))+|(?:[\s\ue000]|(?<!\\)[*_`,;]|(?<![.\\])\.)+$")
_IDLE_BRACES = re.compile(r"\{(\w)\}")
_BEHIND_COMMAND = re.compile(r"(\\[A-Za-z]+) (?![A-Za-z])")
_IDLE_BLANK = re.compile(r"(?<![A-Za-z0-9]) | (?![A-Za-z0-9])")


def tidy(text: str) -> str:
    """The text in one notation: what is only decoration is gone, what means something is spelled in one way.

    Meant for answers of at most some thousand characters.
    """
    text = _characters(text).replace("\\\\", _NEW_ROW)
    text = _DELIMITERS.sub(" ", _ENDS.sub("", _BOLD.sub(r"\1", text)))
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = _BOX.sub("", text)
    text = _full_fractions(text)
    text = _SHORT_ROOT.sub(lambda match: f"\\sqrt{{{_without_round(match['of'])}}}", text)
    text = _LONG_POWER.sub(lambda match: f"^{{{match['power'] or match['round']}}}", text)
    text = _ENDS.sub("", text.replace(_NEW_ROW, "\\\\").strip())
    while (inner := _unwrapped(text)) is not None:
        text = _ENDS.sub("", inner.strip())
    return _CHOICE.sub(r"\1", text) if _CHOICE.fullmatch(text) else text


def key(text: str) -> str:
    """What is left of a tidy text without blanks and braces that mean nothing; equal keys: the same text."""
    return _IDLE_BRACES.sub(r"\1", _IDLE_BLANK.sub("", _BEHIND_COMMAND.sub(r"\1", text)))


def balanced(text: str) -> bool:
    """Whether every brace is closed and none is closed twice; escaped braces are characters."""
    level = 0
    for match in re.finditer(r"\\.|[{}]", text, re.DOTALL):
        level += (match[0] == "{") - (match[0] == "}")
        if level < 0:
            return False
    return level == 0


def closing(text: str, begin: int) -> int:
    """Where the brace opened at `begin` is closed, -1 if nowhere."""
    level = 0
    for match in re.compile(r"\\.|[{}]", re.DOTALL).finditer(text, begin):
        level += (match[0] == "{") - (match[0] == "}")
        if level == 0:
            return match.start()
    return -1


def _characters(text: str) -> str:
    """Unicode signs as LaTeX, compatibility forms (full-width digits, vulgar fractions) as plain ones."""
    if text.isascii():
        return text
    text = re.sub("[\u200b\u200e\u200f\u2060\ufeff]", " ", text)  # not to be seen
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ]+", lambda match: f"^{{{match[0].translate(_RAISED)}}}", text)
    text = re.sub("[₀-₉]+", lambda match: f"_{{{match[0].translate(_LOWERED)}}}", text)
    text = _VULGAR.sub(_vulgar, text)
    for sign, command in _SYMBOLS.items():
        text = text.replace(sign, command)
    return unicodedata.normalize("NFKC", text).replace("−", "-")


def _vulgar(match: re.Match[str]) -> str:
    top, _, bottom = unicodedata.normalize("NFKC", match[0]).partition("⁄")
    return f"\\frac{{{top}}}{{{bottom}}}"


def _full_fractions(text: str) -> str:
    """`\\frac12`, `\\frac1{23}`, `\\binom{1}2` with all their braces."""
    done, begin = [], 0
    while (match := _TWO_ARGUMENTS.search(text, begin)) is not None:
        done.append(text[begin : match.end()].rstrip())
        place = match.end()
        for _ in range(2):
            while text[place : place + 1] == " ":
                place += 1
            if text[place : place + 1] == "{":
                end = closing(text, place) + 1
                if end == 0:
                    return text
                done.append(_full_fractions(text[place:end]))
                place = end
            elif match := _ONE_ARGUMENT.match(text, place):
                done.append(f"{{{match[0]}}}")
                place = match.end()
        begin = place
    return "".join([*done, text[begin:]])


def _without_round(text: str) -> str:
    return text[1:-1] if text.startswith("(") else text


def _unwrapped(text: str) -> str | None:
    """The inside of braces, or of one \\text, around everything; None where there are none."""
    begin = 5 if text.startswith("\\text{") else 0
    if text[begin : begin + 1] == "{" and closing(text, begin) == len(text) - 1:
        return text[begin + 1 : -1]
    return None
