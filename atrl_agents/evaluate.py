"""How good a model is on held-out problems: greedy accuracy, and pass@k from samples, with intervals.

    evaluator = Evaluator(EnvConfig("atrl/Addition-v0"), vocab, problems=500)
    result = evaluator(model)                     # result.accuracy, result.interval
    evaluate_checkpoint("runs/one/checkpoint", EnvConfig("atrl/Addition-v0"), problems=500, samples_per_prompt=8)

The problems are those of the split `test`, in an order that the seed shuffles, so that some of them stand for all; each
is asked exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torchrl.envs.utils import step_mdp

from atrl_collectors.episodes import EpisodeAssembler
from atrl_envs import keys
from atrl_envs.verify import Verdict
from atrl_envs.vocab import Vocab

from .config import DType, Engine, EnvConfig, VLLMConfig
from .intervals import mean_interval, pass_at_k, wilson
from .policies.transformers_policy import TransformersPolicy

_MAX_SLOTS = 512


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found.

    Attributes:
        accuracy: share of responses that are CORRECT (greedy: one a problem).
        interval: its 95 % interval (Wilson's over problems when greedy, normal over problems otherwise).
        pass_at_k: share of problems solved by at least one of k samples, per k.
        problems, samples_per_prompt: how many of each.
        response_length: mean response tokens.
        truncated: share of responses cut by the length limit.
        verdicts: count of each verdict by name.
        episodes: the finished episodes, ordered by (group, member).
    """

    accuracy: float
    interval: tuple[float, float]
    pass_at_k: dict[int, float]
    problems: int
    samples_per_prompt: int
    response_length: float
    truncated: float
    verdicts: dict[str, int]
    episodes: TensorDict

    def to_dict(self) -> dict[str, Any]:
        """Everything but the episodes, for JSON."""
        return {
            "accuracy": self.accuracy,
            "interval": list(self.interval),
            "pass_at_k": {str(k): v for k, v in self.pass_at_k.items()},
            "problems": self.problems,
            "samples_per_prompt": self.samples_per_prompt,
            "response_length": self.response_length,
            keys.TRUNCATED: self.truncated,
            "verdicts": self.verdicts,
        }


class Evaluator:
    """Evaluates models on the same held-out problems; build once, call often.

    Args:
        config: the environment.
        vocab: the vocabulary of the models.
        problems: how many of the split, or all where there are fewer.
        samples_per_prompt: responses a problem; 1 for greedy.
        split: `test`, or `train` to look at overfitting.
        seed: which problems (it decides the bank) and the sampling noise.
    """

    def __init__(
        self,
        config: EnvConfig,
        vocab: Vocab,
        *,
        problems: int = 500,
        samples_per_prompt: int = 1,
        split: str = "test",
        seed: int = 0,
    ) -> None:
        self.seed = seed
        self.samples_per_prompt = samples_per_prompt
        self.env = make_env(
            config,
            vocab,
            split=split,
            seed=seed,
            group_size=samples_per_prompt,
            num_envs=_slots(problems, samples_per_prompt),
        )
        self.problems = min(problems, len(self.env.bank))
        self._start = self.env.state_dict()

    def __call__(
        self, model: Any, *, temperature: float | None = None, on_block: Callable[[], None] | None = None
    ) -> Evaluation:
        """Evaluate a model; greedy unless a temperature is given. `on_block` is called after each block."""
        policy = TransformersPolicy(
            model,
            self.env.vocab,
            block_size=self.env.block_size,
            greedy=temperature is None,
            temperature=1.0 if temperature is None else temperature,
            seed=self.seed,
            max_new_tokens=self.env.max_new_tokens,
        )
        return self.measure(policy, on_block)

    def measure(self, policy: Any, on_block: Callable[[], None] | None = None) -> Evaluation:
        """Evaluate a policy of any engine, as it is set."""
        self.env.load_state_dict(self._start)
        episodes = collect(self.env, policy, groups=self.problems, on_block=on_block)
        return _summarise(episodes, self.samples_per_prompt, policy.greedy)


@torch.no_grad()
def collect(env: Any, policy: Any, groups: int, on_block: Callable[[], None] | None = None) -> TensorDict:
    """Roll out the next `groups` groups of an env to their end: `[groups * group_size]`, ordered by (group, member)."""
    begin = env.cursor[keys.GROUP]
    env.admission = lambda: begin + groups
    env.idle_wait = 0.0  # nothing more comes once these groups are handed out
    assemble = EpisodeAssembler()
    wanted, done = groups * env.group_size, 0
    finished: list[TensorDict] = []
    state: TensorDictBase = env.reset()
    while done < wanted:
        step = env.step(policy(state))
        episodes = assemble(step)
        if episodes.shape[0]:
            finished.append(episodes)
            done += episodes.shape[0]
        state = env.maybe_reset(step_mdp(step))
        if on_block is not None:
            on_block()
    together: TensorDict = torch.cat(finished)  # type: ignore[call-overload]
    order = (together[keys.GROUP] * env.group_size + together[keys.MEMBER]).argsort()
    return together[order]


def evaluate_checkpoint(
    path: str | Path,
    config: EnvConfig,
    *,
    problems: int = 500,
    samples_per_prompt: int = 1,
    temperature: float = 1.0,
    seed: int = 0,
    engine: Engine = "transformers",
    dtype: DType = "float32",
    vllm: VLLMConfig | None = None,
) -> dict[str, Any]:
    """Evaluate a model folder: greedy accuracy, and pass@k from samples where samples_per_prompt > 1.

    engine: what answers; `vllm` runs in a process of its own, with settings `vllm`. dtype: of the weights.
    """
    from . import models

    model, vocab = models.load(str(path), dtype=dtype)
    greedy = Evaluator(config, vocab, problems=problems, seed=seed)
    models.check_length(model, greedy.env.sequence_length, greedy.env.max_new_tokens)
    with _answers(engine, model, vllm or VLLMConfig(), greedy.env) as measure:
        result: dict[str, Any] = {"greedy": measure(greedy, None).to_dict()}
        if samples_per_prompt > 1:
            sampled = Evaluator(
                config, vocab, problems=problems, samples_per_prompt=samples_per_prompt, seed=seed
            )
            result["sampled"] = {"temperature": temperature, **measure(sampled, temperature).to_dict()}
    return result


@contextmanager
def _answers(
    engine: Engine, model: Any, vllm: VLLMConfig, env: Any
) -> Iterator[Callable[[Evaluator, float | None], Evaluation]]:
    """What evaluates, by an engine that ends with the context: called with an evaluator and a temperature or None."""
    if engine == "transformers":
        yield lambda evaluator, temperature: evaluator(model, temperature=temperature)
        return
    from .engine_serving import served

    length, rows = env.sequence_length, _MAX_SLOTS // 2
    with served(model, env.vocab, vllm, max_model_len=length, max_rows=rows) as policy:

        def measure(evaluator: Evaluator, temperature: float | None) -> Evaluation:
            policy.block_size, policy.max_new_tokens = evaluator.env.block_size, evaluator.env.max_new_tokens
            policy.seed, policy.greedy = evaluator.seed, temperature is None
            policy.temperature = 1.0 if temperature is None else temperature
            return evaluator.measure(policy)

        yield measure


def make_env(config: EnvConfig, vocab: Vocab, **arguments: Any) -> Any:
    """The env of a config; `arguments` are those of `atrl_envs.make`."""
    import importlib

    import atrl_envs

    for module in config.modules:
        importlib.import_module(module)
    return atrl_envs.make(
        config.name,
        vocab=vocab,
        block_size=config.block_size,
        max_new_tokens=config.max_new_tokens,
        fallback=config.fallback,
        chat=config.chat,
        system=config.system,
        **arguments,
        **config.kwargs,
    )


def _slots(problems: int, samples_per_prompt: int) -> int:
    """Enough slots for all at once, up to a limit, in whole groups."""
    groups = max(1, min(problems, _MAX_SLOTS // samples_per_prompt))
    return groups * samples_per_prompt


def _summarise(episodes: TensorDict, samples_per_prompt: int, greedy: bool) -> Evaluation:
    verdict = episodes[keys.VERDICT]
    correct = (verdict == int(Verdict.CORRECT)).view(-1, samples_per_prompt).sum(1).tolist()
    problems = len(correct)
    shares = [c / samples_per_prompt for c in correct]
    accuracy = sum(shares) / problems
    powers = [k for k in (1, 2, 4, 8, 16, 32, 64) if k <= samples_per_prompt]
    return Evaluation(
        accuracy=accuracy,
        interval=wilson(sum(correct), problems) if samples_per_prompt == 1 else mean_interval(shares),
        pass_at_k={}
        if greedy
        else {k: sum(pass_at_k(samples_per_prompt, c, k) for c in correct) / problems for k in powers},
        problems=problems,
        samples_per_prompt=samples_per_prompt,
        response_length=float((episodes[keys.LENGTH] - episodes[keys.PROMPT_LENGTH]).float().mean()),
        truncated=float(episodes[keys.TRUNCATED].float().mean()),
        verdicts={v.name: count for v in Verdict if (count := int((verdict == int(v)).sum()))},
        episodes=episodes,
    )
