"""Short stories with numbers: "Ann has 12 apples. Ann gives Ben 4. How many ..." is answered step by step.

A template writes the sentences and does the calculation beside them; see `_TEMPLATES`. It is given a `_Story` and the
number of steps, and returns the question.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy

from atrl_envs.task import Problem, Task
from atrl_envs.tasks.choices import check_between, pick, whole_number

_NAMES = "Ann Ben Cleo Dan Eva Finn Gus Hana Ivo June Kofi Lena Milo Nora Omar Priya".split()
_THINGS = "apple stamp marble pencil shell card coin book sticker bead ticket button".split()
_FACTORS = 9  # the largest number of times, boxes, hours


class WordProblems(Task):
    """Solve a short story in one to three steps.

    Example: prompt "Ann has 12 apples. Ann buys 5 more. Ann gives Ben 4. How many apples does Ann have now? ", answer
        "13", gold response "12+5=17\\n17-4=13\\n#### 13".

    Description: the number of steps is drawn evenly from 1..`steps`, then one of seven templates (things that come and
        go, shopping, travel, boxes, sharing, comparing, cutting), its names, things and numbers. All answers and all
        values on the way are whole and positive; they are counts, dollars, kilometres or metres.
    Action: a block of tokens. Observation: the prompt and the response so far.
    Reward: 1.0 at the end of a correct response, else 0. Verification is exact; the style is `gsm8k_hash`: the
        answer stands after the last "####".
    Start: the prompt. End: end of sequence (terminated) or the length limit (truncated).
    Difficulty: the number of steps, less one.
    Arguments: steps (3), high (20): the largest number that a story starts from or adds.
    Versions: v0.
    """

    style = "gsm8k_hash"

    steps: int = 3
    high: int = 20

    def __post_init__(self) -> None:
        check_between("WordProblems", "steps", self.steps, 1, 3)
        check_between("WordProblems", "high", self.high, 4, 10**6)

    def problem(self, rng: numpy.random.Generator) -> Problem:
        steps = whole_number(rng, 1, self.steps)
        story = _Story(rng, self.high)
        question = pick(rng, _TEMPLATES)(story, steps)
        return Problem(
            prompt=" ".join([*story.sentences, f"{question} "]),
            answer=str(story.value),
            response="\n".join([*story.lines, f"#### {story.value}"]),
            difficulty=steps - 1,
        )


@dataclass
class _Story:
    """What has been told and calculated so far; `value` is the last result."""

    rng: numpy.random.Generator
    high: int
    value: int = 0
    sentences: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        first, second = self.rng.permutation(len(_NAMES))[:2].tolist()
        self.name, self.other = _NAMES[first], _NAMES[second]
        self.thing = pick(self.rng, _THINGS)
        self.things = f"{self.thing}s"

    def number(self, low: int = 2) -> int:
        """A number in low..high."""
        return whole_number(self.rng, low, max(low, self.high))

    def factor(self) -> int:
        """How often something is there: 2..9, or less where `high` is less."""
        return whole_number(self.rng, 2, min(self.high, _FACTORS))

    def part(self) -> int:
        """Some of what is there, not all; there must be two or more."""
        return whole_number(self.rng, 1, min(self.high, self.value - 1))

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)

    def work(self, operation: str, number: int) -> None:
        """One step: `value` and the number, with its line."""
        before = self.value
        results = {"+": before + number, "-": before - number, "*": before * number, "/": before // number}
        self.value = results[operation]
        self.lines.append(f"{before}{operation}{number}={self.value}")


def _coming_and_going(story: _Story, steps: int) -> str:
    story.value = story.number()
    story.say(f"{story.name} has {story.value} {story.things}.")
    for _ in range(steps):
        event = pick(story.rng, "++--*") if story.value > 1 else "+"
        if event == "+":
            number = story.number()
            told = pick(story.rng, ["{0} buys {1} more.", "{0} finds {1} more.", "{2} gives {0} {1} more."])
        elif event == "-":
            number = story.part()
            told = pick(story.rng, ["{0} gives {2} {1}.", "{0} loses {1}.", "{0} sells {1}."])
        else:
            number = whole_number(story.rng, 2, 3)
            told = "After a while {0} has {1} times as many."
        story.say(told.format(story.name, number, story.other))
        story.work(event, number)
    return f"How many {story.things} does {story.name} have now?"


def _shopping(story: _Story, steps: int) -> str:
    story.value, count = story.number(), story.factor()
    story.say(f"One {story.thing} costs {story.value} dollars. {story.name} buys {count}.")
    story.work("*", count)
    if steps == 3 or (steps == 2 and whole_number(story.rng, 0, 1)):
        extra = story.number()
        story.say(f"A bag costs {extra} dollars more.")
        story.work("+", extra)
        if steps == 2:
            return f"How many dollars does {story.name} pay?"
    if steps == 1:
        return f"How many dollars does {story.name} pay?"
    paid = story.value + story.number()
    story.say(f"{story.name} pays with {paid} dollars.")
    spent, story.value = story.value, paid
    story.work("-", spent)
    return f"How many dollars does {story.name} get back?"


def _travel(story: _Story, steps: int) -> str:
    vehicle = pick(story.rng, ["bus", "train", "boat", "truck"])
    story.value, hours = story.number(), story.factor()
    story.say(f"A {vehicle} goes {story.value} km every hour for {hours} hours.")
    story.work("*", hours)
    if steps == 3 or (steps == 2 and whole_number(story.rng, 0, 1)):
        more = story.number()
        story.say(f"Then it goes {more} km more.")
        story.work("+", more)
        if steps == 2:
            return "How many km does it go in all?"
    if steps == 1:
        return "How many km does it go?"
    gone = story.value
    story.value += story.number()
    story.say(f"The whole way is {story.value} km.")
    story.work("-", gone)
    return "How many km are left?"


def _boxes(story: _Story, steps: int) -> str:
    boxes, story.value = story.factor(), story.number()
    story.say(f"{story.name} has {boxes} boxes with {story.value} {story.things} each.")
    story.work("*", boxes)
    if steps > 1:
        loose = story.number()
        story.say(f"{story.name} also has {loose} loose {story.things}.")
        story.work("+", loose)
    if steps > 2:
        given = story.part()
        story.say(f"{story.name} gives {story.other} {given} {story.things}.")
        story.work("-", given)
    return f"How many {story.things} does {story.name} have{' left' if steps > 2 else ''}?"


def _sharing(story: _Story, steps: int) -> str:
    friends, each = story.factor(), story.number()
    total = friends * each
    if steps > 1:
        bought = whole_number(story.rng, 1, total - 1)
        story.value = total - bought
        story.say(f"{story.name} has {story.value} {story.things} and buys {bought} more.")
        story.work("+", bought)
        story.say(f"{story.name} shares them equally among {friends} friends.")
    else:
        story.value = total
        story.say(f"{story.name} shares {total} {story.things} equally among {friends} friends.")
    story.work("/", friends)
    if steps < 3:
        return f"How many {story.things} does each friend get?"
    lost = story.part()
    story.say(f"One of the friends loses {lost} of them.")
    story.work("-", lost)
    return f"How many {story.things} does this friend have left?"


def _comparing(story: _Story, steps: int) -> str:
    own = story.value = story.number()
    if whole_number(story.rng, 0, 1):
        times = story.factor()
        told, operation, number = f"{times} times as many", "*", times
    else:
        more = story.number()
        told, operation, number = f"{more} more", "+", more
    story.say(f"{story.name} has {own} {story.things}. {story.other} has {told}.")
    story.work(operation, number)
    if steps == 1:
        return f"How many {story.things} does {story.other} have?"
    story.work("+", own)
    if steps == 2:
        return f"How many {story.things} do they have together?"
    given = story.part()
    story.say(f"Together they give away {given}.")
    story.work("-", given)
    return f"How many {story.things} do they have left?"


def _cutting(story: _Story, steps: int) -> str:
    what = pick(story.rng, ["rope", "ribbon", "pipe", "wire"])
    pieces = story.factor()
    story.value = pieces * story.number()
    story.say(f"A {what} of {story.value} m is cut into {pieces} equal pieces.")
    story.work("/", pieces)
    if steps == 1:
        return "How many m long is each piece?"
    if steps == 3 or whole_number(story.rng, 0, 1):
        more = story.number()
        story.say(f"One piece is joined to another {what} of {more} m.")
        story.work("+", more)
    if len(story.lines) < steps:
        off = story.part()
        story.say(f"Then {off} m are cut off it." if steps == 3 else f"From one piece {off} m are cut off.")
        story.work("-", off)
    return "How many m long is it now?"


_TEMPLATES: tuple[Callable[[_Story, int], str], ...] = (
    _coming_and_going, _shopping, _travel, _boxes, _sharing, _comparing, _cutting,
)  # fmt: skip
