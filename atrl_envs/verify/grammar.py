"""How a number may be written in an answer: the rules, as labelled expressions.

    labels, code = answer_machine().read(rb"x = \\frac{1}{2}\\text{ cm}")

Everything that is not written here is refused, so a new spelling is a new line here. The rules say where
a value is; the value itself is computed from the labels (`numbers.py`).
"""

from __future__ import annotations

import functools

from atrl_envs.verify import vocabulary
from atrl_envs.verify.automaton import (
    LETTERS,
    Expression,
    Machine,
    alt,
    compile_rules,
    one,
    opt,
    plus,
    seq,
    star,
    text,
    texts,
    words,
)
from atrl_envs.verify.labels import (
    BOLD,
    BRACE_CLOSE,
    BRACE_OPEN,
    DECIMALS,
    EMPTY,
    EQUALS,
    LIST,
    MATH_CLOSE,
    MATH_OPEN,
    MINUS,
    NUMBER,
    OVER,
    PAREN_CLOSE,
    PAREN_OPEN,
    PERCENT,
    POWER,
    POWER_MINUS,
    UNDER,
    WHOLE,
    WORD,
)

DIGITS = "0123456789"
_BLANK = alt(
    one(" \t\r\n\v\f"),
    texts("\\,", "\\;", "\\:", "\\!", "\\ ", "\\quad", *"\u00a0\u2009\u202f\u3000\u200b\ufeff"),
)
BLANK = alt(_BLANK, text("~"))
GAP = star(BLANK)
CURRENCY = texts(*"$€£¥￥₹", "\\$", "US$", "US\\$", "\\pounds", "\\euro", "\\textdollar")
OPEN = alt(
    texts("{", *(f"\\{name}{{" for name in vocabulary.FRAMES), label=BRACE_OPEN),
    texts("(", "\\left(", label=PAREN_OPEN),
    texts("\\(", "\\[", label=MATH_OPEN),
    texts("**", '"', "`", label=BOLD),
    text("\\displaystyle"),
)
CLOSE = alt(
    text("}", BRACE_CLOSE),
    texts(")", "\\right)", label=PAREN_CLOSE),
    texts("\\)", "\\]", label=MATH_CLOSE),
    texts("**", '"', "`", label=BOLD),
)
HEAD = star(alt(_BLANK, OPEN, CURRENCY))  # `~18` is about 18


def digits(label: int) -> Expression:
    """ASCII digits."""
    return plus(one(DIGITS, label))


def wide(label: int) -> Expression:
    """A digit, full-width or ASCII."""
    return alt(one(DIGITS, label), seq(one([0xEF]), one([0xBC]), one(range(0x90, 0x9A), label)))


def sign(label: int) -> Expression:
    """Plus, or a minus with this label: ASCII, Unicode, en dash, full-width."""
    return alt(texts("-", "−", "–", "－", label=label), texts("+", "＋"))


def _grouped(separator: Expression, label: int) -> Expression:
    """One to three digits without a leading zero, then groups of exactly three behind one kind of separator."""
    three = seq(one(DIGITS, label), one(DIGITS, label), one(DIGITS, label))
    first = seq(one("123456789", WHOLE), opt(one(DIGITS, WHOLE)), opt(one(DIGITS, WHOLE)))
    return seq(first, plus(seq(separator, three)))


def _decimal() -> Expression:
    commas = [_grouped(text(","), WHOLE), _grouped(text("{,}"), WHOLE)]
    commas.append(_grouped(seq(text(",\\!"), opt(text(" "))), WHOLE))
    # A mixed number begins like a number with blanks between its groups, so both label the second run alike.
    blanks = [_grouped(text(blank), OVER) for blank in (" ", "~", "\\,", "\\ ", "\u00a0", "\u2009", "\u202f")]
    integer = alt(plus(wide(WHOLE)), *commas, *blanks)
    point = alt(text("."), text("．"))
    return alt(seq(integer, opt(seq(point, star(wide(DECIMALS))))), seq(point, plus(wide(DECIMALS))))


def _exponent() -> Expression:
    minus = opt(sign(POWER_MINUS))
    braced = seq(text("{"), GAP, minus, digits(POWER), GAP, text("}"))
    # TeX raises one digit only where there are no braces; plain text means them all.
    tex = seq(
        GAP, texts("\\times", "\\cdot"), GAP, text("10"), GAP, text("^"), GAP, alt(braced, one(DIGITS, POWER))
    )
    plain = seq(GAP, texts("×", "·", "*", "x", "X"), GAP, text("10^"), alt(braced, seq(minus, digits(POWER))))
    return alt(seq(one("eE"), minus, digits(POWER)), tex, plain)


def _tex_fraction(signs: bool) -> Expression:
    minus = seq(opt(sign(MINUS)), GAP) if signs else seq()

    def argument(label: int) -> Expression:
        return alt(one(DIGITS, label), seq(text("{"), GAP, minus, digits(label), GAP, text("}")))

    command = texts("\\frac", "\\dfrac", "\\tfrac", "\\cfrac")
    return seq(command, GAP, argument(OVER), GAP, argument(UNDER))


def _number() -> Expression:
    stroke = seq(GAP, texts("/", "⁄", "∕"), GAP)
    ratio = seq(digits(WHOLE), stroke, opt(sign(MINUS)), digits(UNDER))
    part = alt(
        seq(plus(BLANK), digits(OVER), stroke, digits(UNDER)),
        seq(GAP, _tex_fraction(signs=False)),
    )
    return alt(seq(_decimal(), opt(_exponent())), ratio, _tex_fraction(signs=True), seq(digits(WHOLE), part))


def _tail() -> Expression:
    """What may follow a number without changing it: units, percent, degrees, closing marks, a period."""
    power = texts("^2", "^3", "^{2}", "^{3}", "²", "³", "^{-1}", "^-1", "^{-2}", "^-2")
    open_text = texts(
        "\\text{", "\\mbox{", "\\mathrm{", "\\textrm{", "\\textit{", "\\hbox{", label=BRACE_OPEN
    )
    inside = seq(GAP, open_text, GAP)
    stroke = seq(GAP, text("/"), GAP, opt(seq(open_text, GAP)))
    raised = opt(alt(power, text("."), seq(opt(text(".")), GAP, text("}", BRACE_CLOSE), opt(power))))
    letter = seq(alt(one(vocabulary.LETTER_UNITS, WORD), texts("a.m", "p.m", label=WORD)), raised)
    # One list of words for all places where a word may stand: each copy of it would multiply the states.
    word = seq(words(vocabulary.NOT_UNITS, vocabulary.SHORT_UNITS | {"of"}, label=WORD), raised)
    article = opt(seq(texts("a", "an"), plus(BLANK)))
    unit = alt(seq(alt(plus(BLANK), inside, stroke), article, word), seq(alt(plus(BLANK), inside), letter))
    per = star(seq(stroke, letter))
    glued = alt(
        seq(words((), vocabulary.SHORT_UNITS, least=0, label=WORD), opt(power)),
        seq(one("m", WORD), power),
    )
    scale = seq(GAP, opt(seq(open_text, GAP)), one("cfCF"), opt(seq(GAP, text("}", BRACE_CLOSE))))
    degree = seq(texts("°", "º", "^\\circ", "^{\\circ}", "^∘", "^{∘}", "\\degree"), opt(scale))
    percent = alt(
        texts("%", "\\%", label=PERCENT),
        seq(
            alt(plus(BLANK), inside),
            texts("percent", "percentage", "pct", label=PERCENT),
            opt(seq(GAP, text("}", BRACE_CLOSE))),
        ),
    )
    item = alt(
        BLANK,
        texts("\\\\", "¢", "\\cent"),
        CLOSE,
        CURRENCY,
        percent,
        seq(opt(inside), degree),
        seq(unit, per),
    )
    return seq(opt(seq(glued, per)), star(item), opt(seq(text("."), star(alt(BLANK, CLOSE, CURRENCY)))))


def _left_side() -> Expression:
    """`x =`, `f(2) =`, `m + n =`, `total cost:`, `the answer is`, or a calculation with figures: `6*7 =`."""
    run = plus(one(LETTERS + LETTERS.upper()))
    word = words(vocabulary.NOT_NAMES, least=1)
    inside = seq(texts("\\text{", "\\mathrm{", label=BRACE_OPEN), star(BLANK))
    greek = texts(*(f"\\{name}" for name in vocabulary.GREEK))
    name = alt(greek, seq(opt(alt(inside, seq(text("\\angle"), GAP))), word, star(seq(plus(BLANK), word))))
    index = seq(text("_"), alt(one(DIGITS), run, seq(text("{"), alt(digits(0), run), text("}"))))
    argument = seq(text("(", PAREN_OPEN), alt(digits(0), run), text(")", PAREN_CLOSE))
    closed = opt(seq(GAP, text("}", BRACE_CLOSE)))
    letter = one(LETTERS + LETTERS.upper())
    names = seq(letter, plus(seq(GAP, text("+"), GAP, letter)))
    equal = seq(
        alt(seq(name, closed, opt(index), opt(text("'")), opt(argument)), names), GAP, text("=", EQUALS)
    )
    the = seq(opt(text("the ")), opt(texts("final ", "correct ")))
    told = seq(opt(inside), the, texts("answer is", "answer is:", label=EQUALS), closed)
    long_word = words(vocabulary.NOT_NAMES, least=3)
    headed = seq(opt(inside), long_word, star(seq(plus(BLANK), word)), GAP, text(":", EQUALS), closed)
    named = seq(alt(equal, told, headed), HEAD)
    quiet = alt(one(DIGITS + ".,%"), BLANK, CURRENCY, text("(", PAREN_OPEN), text(")", PAREN_CLOSE))
    operator = texts("+", "-", "*", "/", "−", "×", "÷", "·", "\\times", "\\cdot", "\\div")
    # `3 x 6` is a product, `3 x` is not.
    operator = alt(operator, seq(text("x"), GAP, star(CURRENCY), one(DIGITS)))
    begin = seq(opt(sign(0)), star(text("(", PAREN_OPEN)), one(DIGITS))
    reckoning = seq(begin, star(quiet), operator, star(alt(quiet, operator)), text("=", EQUALS), HEAD)
    return seq(opt(named), star(reckoning))


def _list() -> Expression:
    """Several numbers where one is asked: blanks, commas, `or`, ranges and plus-minus between them."""
    item = seq(opt(sign(0)), star(CURRENCY), one(DIGITS), star(one(DIGITS + ".")), opt(texts("%", "\\%")))
    wrapped = seq(texts("\\text{", "\\mbox{"), GAP, texts("or", "and", "to"), GAP, text("}"))
    loose = alt(texts(",", ";", "or", "and", "to", "-", "–", "−", "\\pm", "±", "\\mp", "..", ":"), wrapped)
    between = alt(plus(BLANK), seq(GAP, opt(one(",;")), GAP, loose, GAP))
    left = star(alt(BLANK, OPEN, CURRENCY, texts("\\{", "[", "\\left[", "\\left\\{")))
    right = star(alt(BLANK, CLOSE, CURRENCY, texts("\\}", "]", "\\right]", "\\right\\}", ".")))
    points = seq(digits(0), text("."), digits(0), plus(seq(text("."), star(one(DIGITS)))))
    marks = plus(one(" \t\n\r+-*/=.,:;()<>?!'\"#$%&@~|`[]"))
    return alt(seq(left, item, plus(seq(between, item)), right), seq(left, points, right), marks)


@functools.cache
def answer_machine() -> Machine:
    """The automaton for one answer, decorated as answers are."""
    number = seq(HEAD, _left_side(), opt(seq(sign(MINUS), HEAD)), _number(), _tail())
    empty = star(alt(BLANK, OPEN, CLOSE))
    return compile_rules({NUMBER: number, EMPTY: empty, LIST: _list()})
