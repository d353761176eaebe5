"""What a response earns: small tensor functions with weights; correctness is one of them.

    env = atrl_envs.make("atrl/Addition-v0", rewards={"correctness": 1.0, "overlong": 0.5})
    env = atrl_envs.make("atrl/Addition-v0", rewards=[correctness(), Reward("short", fn, 0.1, bounds=(0, 1))])

reward = sum of weight * component. A component is a function of `Responses`, any callable (tokens, problem) -> [B]
tensor, or any callable on texts with TRL's signature (prompts, completions, **columns) -> list of floats, which runs in
a process of the host pool. Components are kept apart in `reward_parts`, so each is logged under its name.
"""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from atrl_envs import keys
from atrl_envs.verify.text import Spelling
from atrl_envs.verify.verdict import Verdict

CORRECTNESS = "correctness"


@dataclass(frozen=True)
class Responses:
    """What a component sees of B responses that have ended.

    tokens [B, S] int64: prompt, response, padding; start, length [B] int64: where the response begins and ends (its
    EOS included); verdict [B] int8; problem: TensorDict [B] of problem (the bank's row), difficulty, prompt_length,
    length and verdict. spelling: how tokens become bytes. max_new_tokens: the env's limit.
    begun: [B], tokens at the end of the prompt that hold the `<think>` of the response, see `ProblemBank`.
    """

    tokens: Tensor
    start: Tensor
    length: Tensor
    verdict: Tensor
    problem: TensorDict
    spelling: Spelling
    max_new_tokens: int
    begun: Tensor | None = None


@dataclass(frozen=True)
class Reward:
    """One component.

    function: Responses -> [B] float32; for `texts` the callable on texts, or "module:function".
    bounds: least and largest value; values are not clipped, but a bound lets `Rewards` prove what cannot happen.
    texts: it works on strings, on the host; a response whose call fails or times out is left out of training.
    """

    name: str
    function: Any
    weight: float = 1.0
    bounds: tuple[float, float] | None = None
    texts: bool = False

    def __post_init__(self) -> None:
        if not self.name or not math.isfinite(self.weight):
            raise ValueError(
                f"a reward needs a name and a finite weight, got {self.name!r} and {self.weight}"
            )


def correctness(weight: float = 1.0) -> Reward:
    """1 where the verdict is CORRECT, else 0."""
    return Reward(CORRECTNESS, _correct, weight, (0.0, 1.0))


def format(weight: float = 0.1) -> Reward:
    """1 for one `<think>..</think>` and then one `<answer>..</answer>`, each tag once, nothing around them; else 0."""
    from atrl_envs.tags import well_formed

    return Reward("format", well_formed, weight, (0.0, 1.0))


def overlong(weight: float = 0.5, margin: float = 0.25) -> Reward:
    """0 up to the last `margin` share of the length limit, then falling linearly to -1 at the limit.

    Soft overlong punishment, DAPO (arXiv:2503.14476), equation 13, with L_max = max_new_tokens and
    L_cache = margin * max_new_tokens; lengths in tokens, EOS included.
    """
    if not 0 < margin <= 1:
        raise ValueError(f"margin is a share of the length limit in (0, 1], got {margin}")

    def penalty(responses: Responses) -> Tensor:
        size, cache = (
            responses.length - responses.start,
            max(1.0, margin * responses.max_new_tokens),
        )
        return ((responses.max_new_tokens - cache - size) / cache).clamp(-1.0, 0.0)

    return Reward("overlong", penalty, weight, (-1.0, 0.0))


def length(weight: float = 0.1) -> Reward:
    """-1 for a response of max_new_tokens, 0 for an empty one, linear between."""
    return Reward("length", _length, weight, (-1.0, 0.0))  # not a key


def texts(
    function: Callable[..., Any] | str,
    weight: float = 1.0,
    name: str = "",
    bounds: tuple[float, float] | None = None,
) -> Reward:
    """A reward function with TRL's signature, called in a process of the host pool, one response a call.

    function(prompts=[str], completions=[str], completion_ids=[list[int]], answer=[str]) -> [float or None]; it gets
    those of these columns that it has parameters for. None counts as 0.
    """
    return Reward(name or _name_of(function), function, weight, bounds, texts=True)


BUILT_IN: dict[str, Callable[..., Reward]] = {
    CORRECTNESS: correctness,
    "format": format,
    "overlong": overlong,
    "length": length,  # not a key
}
Spec = Mapping[str, float] | Sequence[Any] | None


class Rewards:
    """A weighted sum of components.

    ValueError where two share a name, and where the weights let a wrong answer earn as much as a right one by
    components whose bounds are known; `allow_outscoring` says that this is wanted.
    """

    def __init__(self, components: Iterable[Reward], *, allow_outscoring: bool = False) -> None:
        self.components = tuple(components)
        self.names = tuple(component.name for component in self.components)
        if not self.components:
            raise ValueError("no rewards were given; pass at least one, such as rewards={'correctness': 1.0}")
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"each reward needs a name of its own, got {', '.join(self.names)}")
        if CORRECTNESS in self.names and self.margin <= 0 and not allow_outscoring:
            raise ValueError(
                f"with these weights ({self}) a wrong answer can earn as much as a right one: the other components "
                f"differ by up to {self.others:g} between two responses, correctness by {self.of_correctness:g}. Give "
                "correctness a weight above that, or pass allow_outscoring=True if it is meant so"
            )

    @property
    def of_correctness(self) -> float:
        """The weight of correctness."""
        return sum(c.weight for c in self.components if c.name == CORRECTNESS)

    @property
    def others(self) -> float:
        """How far the other components of known bounds can move the reward."""
        bounded = [c for c in self.components if c.name != CORRECTNESS and c.bounds is not None]
        return sum(abs(c.weight) * (c.bounds[1] - c.bounds[0]) for c in bounded if c.bounds)

    @property
    def margin(self) -> float:
        """By how much every right answer beats every wrong one at least, as far as bounds are known."""
        return self.of_correctness - self.others

    @property
    def bounds(self) -> tuple[float, float]:
        """Least and largest reward; infinite where a component has no bounds."""
        ends = [
            sorted(c.weight * bound for bound in c.bounds) if c.bounds else (-math.inf, math.inf)
            for c in self.components
            if c.weight
        ]
        return sum(low for low, _ in ends), sum(high for _, high in ends)

    @property
    def on_texts(self) -> tuple[int, ...]:
        """Places of the components that the host computes."""
        return tuple(i for i, component in enumerate(self.components) if component.texts)

    def parts(self, responses: Responses) -> Tensor:
        """Components [B, R] float32; those on texts are 0 until the host has them."""
        zero = torch.zeros_like(responses.start, dtype=torch.float32)
        columns = [
            zero if c.texts else _column(c, c.function(responses), zero).to(torch.float32)
            for c in self.components
        ]
        return torch.stack(columns, 1)

    def check(self, parts: Tensor) -> None:
        """ValueError where a component of parts [B, R] is infinite or no number; it looks, so not inside a program."""
        finite = torch.isfinite(parts)
        if not bool(finite.all()):
            row, place = (~finite).nonzero()[0].tolist()
            raise ValueError(
                f"reward {self.names[place]!r} must return finite numbers, got {float(parts[row, place])}; mend it for "
                "the responses that it has no number for"
            )

    def total(self, parts: Tensor) -> Tensor:
        """[..., R] -> [...] float32."""
        reward = torch.zeros_like(parts[..., 0])
        for place, component in enumerate(self.components):
            reward = reward + component.weight * parts[..., place]
        return reward

    def __str__(self) -> str:
        return " + ".join(f"{c.weight:g} {c.name}" for c in self.components)


def compose(spec: Spec | Rewards = None, *, allow_outscoring: bool = False) -> Rewards:
    """Rewards from what `make(..., rewards=)` takes: None (correctness alone), {name: weight}, or a list.

    A name is a built-in one or "module:function"; a list holds names, callables and `Reward`s.
    """
    if isinstance(spec, Rewards):
        return spec
    if spec is None:
        return Rewards([correctness()])
    if isinstance(spec, Mapping):
        chosen = [replace(named(name), weight=_weight(name, weight)) for name, weight in spec.items()]
    elif isinstance(spec, (str, Reward)) or callable(spec):
        chosen = [named(spec)]
    else:
        chosen = [named(item) for item in spec]
    return Rewards(chosen, allow_outscoring=allow_outscoring)


def named(item: Any) -> Reward:
    """A component from a built-in name, "module:function", a callable, or a Reward."""
    if isinstance(item, Reward):
        return item
    if isinstance(item, str) and item in BUILT_IN:
        return BUILT_IN[item]()
    function = _load(item) if isinstance(item, str) else item
    if not callable(function):
        raise TypeError(
            f"a reward is a name ({', '.join(BUILT_IN)}), 'module:function', a callable or a Reward, got {item!r}"
        )
    if _wants_texts(function):
        return texts(item, name=_name_of(function))

    def of_tokens(responses: Responses) -> Tensor:
        return function(responses.tokens, responses.problem)

    return Reward(_name_of(function), of_tokens)


def _correct(responses: Responses) -> Tensor:
    return (responses.verdict == int(Verdict.CORRECT)).to(torch.float32)


def _length(responses: Responses) -> Tensor:
    return -(responses.length - responses.start) / responses.max_new_tokens


def _column(component: Reward, values: Any, like: Tensor) -> Tensor:
    if not isinstance(values, Tensor) or values.shape != like.shape:
        got = list(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(
            f"reward {component.name!r} must return a tensor {list(like.shape)}, one number a response, got {got}"
        )
    return values


def _weight(name: str, weight: Any) -> float:
    try:
        return float(weight)
    except (TypeError, ValueError):
        raise ValueError(f"the weight of reward {name!r} must be a number, got {weight!r}") from None


def _wants_texts(function: Any) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    return "completions" in parameters


def _name_of(function: Any) -> str:
    if isinstance(function, str):
        return function.rpartition(":")[2]
    return getattr(function, "__name__", type(function).__name__)


def _load(name: str) -> Any:
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ValueError(
            f"unknown reward {name!r}; known: {', '.join(BUILT_IN)}, or write your own as 'module:function'"
        )
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module and not module.startswith(f"{error.name}."):
            raise  # the module is there; something that it imports is not
        raise ValueError(f"reward {name!r}: cannot import {module!r}; is its folder on PYTHONPATH?") from None
    if not hasattr(found, attribute):
        raise ValueError(f"reward {name!r}: {module} has no {attribute!r}")
    return getattr(found, attribute)


def view_of(
    problem: Tensor, difficulty: Tensor, start: Tensor, length: Tensor, verdict: Tensor
) -> TensorDict:
    """The `problem` of `Responses`."""
    return TensorDict(
        {
            keys.PROBLEM: problem,
            "difficulty": difficulty,
            keys.PROMPT_LENGTH: start,
            keys.LENGTH: length,
            keys.VERDICT: verdict,
        },
        batch_size=[problem.shape[0]],
    )
