"""What a byte of an answer can be, and what an answer as a whole can be.

machine.read(b"-1 3/4")     # [MINUS, WHOLE, NONE, OVER, NONE, UNDER], NUMBER
"""

from __future__ import annotations

NONE = 0
# Digits of the value. The first three are adjacent: together they are the digits of a decimal.
WHOLE = 1  # before the decimal point; whole part of a mixed number; numerator of a/b
OVER = 2  # numerator of \frac or of a mixed number; digit groups behind a space
DECIMALS = 3  # behind the decimal point
UNDER = 4  # denominator
POWER = 5  # exponent of ten
# Marks that change the value.
MINUS = 6
POWER_MINUS = 7
EQUALS = 8  # what stands before it is a name or a calculation, not the answer
PERCENT = 9
# Marks that are only counted.
WORD = 10  # first letter of a word behind the number
BRACE_OPEN, BRACE_CLOSE = 11, 12
PAREN_OPEN, PAREN_CLOSE = 13, 14
MATH_OPEN, MATH_CLOSE = 15, 16
BOLD = 17
# Only in running text, where the last number is looked for.
PART = 18  # belongs to a number and has no value of its own (separator, unit, currency)
ENDS = 19  # first byte behind a number
DOUBT = 20  # first byte behind something that holds a number and that the rules do not read
COUNT = 21

# What a whole text is; where several fit, the smallest.
NUMBER = 1
EMPTY = 2  # blanks and decoration only
LIST = 3  # several numbers, a range, plus-minus, or marks without any digit
