"""What a byte of an answer can be, what an answer as a whole can be, and what a gold answer can be.

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
TEN = 19  # a digit of 10, perhaps of a power of ten
# The first byte behind a number. `joined`: the number is one with what stands before the joints in it. A joint may
# turn out to be within a number; if it does not, the number has ended there.
ENDS, JOINT = 20, 21
ENDS_JOINED, JOINT_JOINED = 22, 23
DOUBT = 24  # behind something that holds a number and that the rules do not read
COUNT = 25

# What a whole text is; where several fit, the smallest.
NUMBER = 1
EMPTY = 2  # blanks and decoration only
LIST = 3  # several numbers, a range, plus-minus, or marks without any digit
# And where running text ends: 0, or in a number, in one that is joined, or in what is not read.
AT_NUMBER, AT_JOINED, AT_DOUBT = 1, 2, 3

# What a gold answer is: the sum of DECIMAL and RATIONAL where it may be compared with decimals and with fractions.
INVALID = 0  # nothing can be said about a response to it
DECIMAL, RATIONAL = 1, 2
HOST = 4  # it is no number, and only the host may judge what is compared with it
