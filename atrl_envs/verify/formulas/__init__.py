"""How the host reads answers that the tensor program may not judge: formulas, lists, sets, relations, words.

excerpt      which part of a response is the answer
notation     one spelling for many
shapes       how an answer is put together; units, relations, sets: what may be dropped, and what is the same set
guards       what is refused by its text, and weight: by what it would become
formula      math-verify's parser, and what it must not see; equality: whether two values are one
same         the comparison itself

Plain functions on strings, without torch; `fallback.decide` is their one use.
"""
