"""Words around numbers: which are units, and which change or hedge a value.

A word behind a number is taken for a unit if it has three letters or more and is not in NOT_UNITS, or if
it is a short unit by name. `42 apples` is 42; `42 million`, `42 squared` and `42 or` are not.
"""

from __future__ import annotations

SHORT_UNITS = frozenset(
    "mm cm dm km nm um mg kg ml cl dl lb lbs oz ft yd mi in hr hrs min mins sec secs ms mph kph km hz khz "
    "kw kwh wh mb gb kb tb rad deg sq cc am pm day days cents usd eur gbp".split()
)
FRAMES = tuple("boxed fbox text textbf textit texttt mathbf mathrm mathit boldsymbol bm".split())
LETTER_UNITS = "msghlSGHL"  # not M: `5 M` is five million

_HEDGES = (
    "unknown guess estimate estimated approximate unsure doubtful untrue never cannot nope isnt otherwise else versus "
    "downto onward onwards upwards downwards something ish nought nil "
    "or and to not no nor but if unless is isn are aren was were be been than more less fewer least most "
    "between from through about around roughly approximately approx maybe perhaps possibly probably "
    "almost nearly over under above below exceeding either neither both except excluding wrong false "
    "incorrect plus minus"
)
_OPERATIONS = (
    "times divided multiplied by squared cubed square cube root roots sqrt power powers raised mod modulo "
    "modulus remainder factorial choose base percent pct percentage percentages negative log ln exp sin cos "
    "tan cot sec csc arcsin arccos arctan max lim gcd lcm sum infinity infinite inf infty nan pi inverse reciprocal "
    "negated exponent binary octal decimal hex hexadecimal point"
)
_AMOUNTS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred "
    "hundreds thousand thousands million millions billion billions trillion trillions quadrillion "
    "quintillion mil mill mio bil bln mln dozen dozens gross score lakh lakhs crore crores half halves "
    "third thirds quarter quarters fourth fourths fifth fifths sixth sixths seventh sevenths eighth "
    "eighths ninth ninths tenth tenths eleventh elevenths twelfth twelfths hundredth hundredths "
    "thousandth thousandths millionth millionths billionth billionths trillionth trillionths twentieth twentieths "
    "thirtieth thirtieths fortieth fortieths fiftieth fiftieths thirteenth thirteenths fourteenth fourteenths "
    "fifteenth fifteenths sixteenth sixteenths kilo mega giga tera milli micro nano double twice triple quadruple "
    "quintuple treble fold tenfold twofold hundredfold myriad myriads lac lacs grand scores grosses googol "
    "sextillion septillion octillion nonillion decillion permille percentile percentiles ppm ppb bps basis"
)
_SYMBOLS = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron rho sigma tau "
    "upsilon phi chi psi omega abc abcd bcd xyz xyzt uvw pqr pqrs rst stu klm lmn mnp ijk"
)
# What is said behind a number in running text and makes another of it, or says that it is one of two.
CHANGES_BEHIND = frozenset(
    "hundred hundreds thousand thousands million millions billion billions trillion trillions quadrillion "
    "quintillion sextillion septillion octillion googol dozen dozens score gross lakh lakhs lac crore crores myriad "
    "mil mill mio bil bln mln bn mn tn k M b grand half halves third thirds quarter quarters fourth fourths fifths "
    "sixths sevenths eighths ninths tenth tenths hundredth hundredths thousandth thousandths millionths squared "
    "cubed factorial point binary octal hex hexadecimal permille ppm ppb milli micro nano or".split()
) | {"and a half", "and a quarter", "and a third", "and one half", "and two thirds", "and three quarters"}
# What is said before a number and makes another of it.
SIGNS = frozenset({"minus", "negative"})
FUNCTIONS = frozenset("sqrt log ln lg exp sin cos tan cot sec csc".split())
GREEK = tuple("alpha beta gamma delta epsilon theta lambda mu rho sigma phi varphi psi omega pi tau".split())
NOT_UNITS = frozenset(f"{_HEDGES} {_OPERATIONS} {_AMOUNTS} {_SYMBOLS}".split()) - {"square", "sec", "sum"}
NOT_NAMES = frozenset(_HEDGES.split()) - {"between", "from", "to", "both", "above", "below"}
