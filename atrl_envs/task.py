"""A task states problems: prompts, and the answers that a verifier can check.

    class Doubling(Task):
        limit: int = 100                                  # annotated: a keyword parameter of the task

        def problem(self, rng):                           # one problem, all randomness from `rng`
            n = int(rng.integers(self.limit))
            return Problem(prompt=f"2*{n}=", answer=str(2 * n))

`register` gives it an id; `check_task` proves that it is sound. A task with few problems lists them instead:
override `problems`.
"""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import numpy

    from atrl_envs.vocab import Vocab

_PLAIN_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "bool": (bool,),
}
_STYLED = {
    "plain": "{}",
    "last_number": "{}",
    "gsm8k_hash": "#### {}",
    "boxed": "\\boxed{{{}}}",
    "answer_tag": "<answer>{}</answer>",
}


@dataclasses.dataclass(frozen=True)
class Problem:
    """One prompt and its gold answer.

    response: a whole gold response in the task's style, used to warm-start cold models; empty: the answer alone,
    in that style. source: where the problem comes from, for error messages ("sums.csv, line 7"). difficulty: 0, 1,
    2, ...: the level that a curriculum weighs and that success is reported for. data: picklable facts that a scorer on
    the host needs beside the answer. split: "train" or "test" where the source of a listed problem says so; empty: by a
    hash of the prompt.
    """

    prompt: str
    answer: str
    response: str = ""
    source: str = ""
    difficulty: int = 0
    data: Any = None
    split: str = ""

    def __post_init__(self) -> None:
        for name in ("prompt", "answer", "response"):
            text = getattr(self, name)
            if not isinstance(text, str):
                raise TypeError(
                    f"a Problem's {name} is a text, got {text!r} ({type(text).__name__}); write it as str"
                )
        if isinstance(self.difficulty, bool) or not isinstance(self.difficulty, int) or self.difficulty < 0:
            raise ValueError(f"difficulty is a level 0, 1, 2, ..., got {self.difficulty!r}")

    def gold_response(self, style: str) -> str:
        """The response that should be judged correct: `response`, or the answer marked as `style` wants it."""
        return self.response or styled_answer(self.answer, style)


def styled_answer(answer: str, style: str) -> str:
    """The shortest response in a style: "7" is "#### 7" in `gsm8k_hash`, "\\boxed{7}" in `boxed`."""
    return _STYLED.get(style, "{}").format(answer)


@typing.dataclass_transform(kw_only_default=True, frozen_default=True)
class Task:
    """Base class of tasks. Annotated class attributes become keyword parameters; instances are immutable.

    style: how a response marks its answer (plain, boxed, gsm8k_hash, answer_tag, last_number); a class attribute,
        which `register(..., style=)` and `make(..., style=)` override.
    Costly preparation belongs in a `functools.cached_property`; checks of parameters in `__post_init__`.
    """

    style: ClassVar[str] = "plain"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)

    def __new__(cls, *args: Any, **parameters: Any) -> Task:
        cls.check_parameters(parameters)
        return super().__new__(cls)

    def problem(self, rng: numpy.random.Generator) -> Problem:
        """A random problem. It must take all its randomness from `rng` and nothing from outside."""
        raise NotImplementedError(f"{type(self).__name__} must define problem(self, rng) or problems(self)")

    def problems(self) -> Iterable[Problem] | None:
        """All problems, in a fixed order, where they are few or given; None: they are drawn by `problem`."""
        return None

    def verifier(self, vocab: Vocab, style: str) -> Any:
        """The judge of responses; by default the mathematical one."""
        from atrl_envs.verify import MathVerifier

        return MathVerifier(vocab, style=style)

    def corrupt(self, answer: str) -> str:
        """A wrong answer close to this one, which `check_task` expects not to be paid; see `checks.corrupt`."""
        from atrl_envs.checks import corrupt

        return corrupt(answer)

    @classmethod
    def parameters(cls) -> dict[str, Any]:
        """Name and default of every parameter; a parameter without default has `dataclasses.MISSING`."""
        if not dataclasses.is_dataclass(cls):
            return {}
        fields = dataclasses.fields(cls)
        return {
            f.name: f.default_factory() if callable(f.default_factory) else f.default
            for f in fields
            if f.init
        }

    @classmethod
    def check_parameters(cls, given: dict[str, Any], also: Iterable[str] = ()) -> None:
        """TypeError for a name that is no parameter, a value of the wrong plain type, or a missing parameter.

        also: names of other options that a misspelled one may have been meant for.
        """
        known = cls.parameters()
        for name, value in given.items():
            if name not in known:
                raise TypeError(_unknown_parameter(cls.__name__, name, known, also))
            wanted = _plain_type(cls, name)
            if wanted and not _is_plain(value, wanted):
                raise TypeError(
                    f"{cls.__name__}: {name} must be {wanted}, got {value!r} ({type(value).__name__})"
                )

    @classmethod
    def is_concrete(cls) -> bool:
        """Whether the class states problems in one of the two ways."""
        return cls.problem is not Task.problem or cls.problems is not Task.problems


def _plain_type(cls: type, name: str) -> str:
    annotation = next(f.type for f in dataclasses.fields(cls) if f.name == name)  # type: ignore[arg-type]
    label = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return label if label in _PLAIN_TYPES else ""


def _is_plain(value: Any, wanted: str) -> bool:
    if isinstance(value, bool) and wanted != "bool":  # bool is an int to Python, not to a person
        return False
    return isinstance(value, _PLAIN_TYPES[wanted])


def _unknown_parameter(owner: str, name: str, known: dict[str, Any], also: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, [*known, *also], n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    listing = ", ".join(
        key if default is dataclasses.MISSING else f"{key}={default!r}" for key, default in known.items()
    )
    return f"{owner} has no parameter {name!r}{hint} Its parameters: {listing or 'none'}"
