"""`atrl play ID`: a person answers a task's problems and sees each verdict, and why: what was found, and read as what.

play(env, input, print)      # until the answer is empty or the input ends; returns (right, asked)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from .arguments import parse
from .complaints import ConfigError, bad_input
from .config import PARAMETERS, EnvConfig
from .config_check import check_env, with_typed_parameters
from .explain import explain

if TYPE_CHECKING:
    from atrl_envs import VerifiableEnv


@dataclass(frozen=True)
class PlayConfig:
    """Answer a task's problems yourself; a line that ends in \\ goes on, an empty line or Ctrl-D ends it."""

    id: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ID")] = EnvConfig.id
    """A registered id, or `module:id`."""
    kwargs: Annotated[dict[str, Any], PARAMETERS, tyro.conf.arg(name="set")] = field(default_factory=dict)
    """Parameters of the task, as in `--set high=9`."""
    imports: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(name="import")] = ()
    """A module of yours to import first, since importing it registers your tasks."""
    split: Literal["train", "test"] = "train"
    """Which problems."""
    seed: int = 0
    """Which order."""


def main(words: Sequence[str]) -> int:
    """Make the env, play, print the score."""
    config = parse(PlayConfig, words, "atrl play")
    if config.seed < 0:
        raise ConfigError(f"got --seed {config.seed}; it must be at least 0; give a seed of 0 or more")
    env_config = EnvConfig(id=config.id, kwargs=config.kwargs, imports=config.imports)
    check_env(env_config, id_flag="", set_flag="--set")
    kwargs = with_typed_parameters(env_config).kwargs
    import atrl_envs

    with bad_input():
        env = atrl_envs.make(config.id, split=config.split, seed=config.seed, **kwargs)
        env = atrl_envs.make(  # the whole answer is one block
            config.id,
            split=config.split,
            seed=config.seed,
            bank=env.bank,
            block_size=env.max_new_tokens,
            **kwargs,
        )
    try:
        right, asked = play(env, input, print)
    finally:
        env.close()
    print(f"{right} of {asked} right")
    return 0


def play(env: VerifiableEnv, ask: Callable[[str], str], say: Callable[[str], Any]) -> tuple[int, int]:
    """Ask problems until the answer is empty or the input ends; the env has one slot and one block an answer."""
    import torch

    from atrl_envs import Verdict
    from atrl_envs.keys import ACTION, NEXT_VERDICT, PROBLEM

    right = asked = 0
    while True:
        state = env.reset()
        problem = int(state[PROBLEM])
        say("")
        say(env.bank.prompt_texts[problem])
        try:
            answer = _whole(ask)
        except (EOFError, KeyboardInterrupt):
            say("")
            return right, asked
        if not answer.strip():
            return right, asked
        try:
            ids = [*env.vocab.encode(answer), env.vocab.eos_id]
        except ValueError as error:
            say(str(error))
            continue
        block = torch.full((1, env.block_size), env.vocab.pad_id)
        if len(ids) > env.block_size:
            say(f"cut: the answer is {len(ids)} tokens long with its end, and {env.block_size} are allowed")
        block[0, : len(ids)] = torch.tensor(ids[: env.block_size])
        stepped = env.step(state.set(ACTION, block))
        verdict = Verdict(int(stepped[NEXT_VERDICT]))
        asked += 1
        right += verdict == Verdict.CORRECT
        response, gold = env.vocab.decode(ids[: env.block_size]), env.bank.answer_texts[problem]
        say(f"{verdict.name}: {explain(verdict.name, response, gold, env.bank.style, by=_by(env.verifier))}")


def _whole(ask: Callable[[str], str]) -> str:
    """One answer: a line, and the next where it ends in a backslash."""
    answer = ask("> ")
    while answer.endswith("\\"):
        answer = f"{answer[:-1]}\n{ask('. ')}"
    return answer


def _by(verifier: Any) -> str:
    """What a verifier compares, see `explain`."""
    from atrl_envs import ExactVerifier, MathVerifier

    kind = type(getattr(verifier, "inner", verifier))
    return {MathVerifier: "value", ExactVerifier: "text"}.get(kind, "rules")
