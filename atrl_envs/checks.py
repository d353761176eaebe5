"""Is a task sound? Every promise that a trainer relies on, checked by name, without a model.

report = check_task("my/Doubling-v0", limit=1000)
print(report)                    # one line a check
report.raise_if_failed()
"""

from __future__ import annotations

import contextlib
import random
import re
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from tensordict import TensorDict
from torch import Tensor

from atrl_envs import keys
from atrl_envs.bank import ProblemBank
from atrl_envs.env import VerifiableEnv
from atrl_envs.registry import EnvMaker
from atrl_envs.task import Task, styled_answer
from atrl_envs.verify import Verdict

_SAMPLE = 256


class TaskCheckError(AssertionError):
    """Some promise of a task does not hold; the message names which."""


@dataclass(frozen=True)
class CheckResult:
    """One promise: whether it holds, and what was seen."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class TaskReport:
    """What `check_task` found."""

    id: str
    results: tuple[CheckResult, ...]

    @property
    def passed(self) -> bool:
        return all(result.passed for result in self.results)

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        return tuple(result for result in self.results if not result.passed)

    def raise_if_failed(self) -> TaskReport:
        """TaskCheckError that names every failed check; otherwise the report itself."""
        if not self.passed:
            raise TaskCheckError(str(self))
        return self

    def __str__(self) -> str:
        lines = [f"{'ok  ' if r.passed else 'FAIL'} {r.name:<12} {r.detail}" for r in self.results]
        return "\n".join([f"{self.id}: {'sound' if self.passed else 'not sound'}", *lines])


def check_task(id: str, *, sample: int = _SAMPLE, **options: Any) -> TaskReport:
    """Check a registered task with these options of `make`; `sample` problems of each split are judged.

    Checks: bank (problems can be stated and spelled), splits (disjoint), determinism (a seed says everything),
    gold (gold responses fit and are CORRECT), corrupted (a changed answer is not), specs (TorchRL), gymnasium
    (its own checker, without a warning), throughput (never fails).
    UnknownEnvError or TypeError for a wrong id or option; everything else is in the report.
    """
    maker = EnvMaker(id, **options)
    results: list[CheckResult] = []

    def check(name: str, run: Callable[[], str]) -> bool:
        try:
            results.append(CheckResult(name, True, run()))
        except Exception as error:
            results.append(CheckResult(name, False, f"{type(error).__name__}: {error}"))
        return results[-1].passed

    banks: dict[str, ProblemBank] = {}
    if check("bank", lambda: _build(maker, banks)):
        check("splits", lambda: _splits(banks))
        check("determinism", lambda: _determinism(maker, banks))
        check("gold", lambda: _gold(maker, banks, sample))
        check("corrupted", lambda: _corrupted(maker, banks, sample))
        check("specs", lambda: _specs(maker, banks))
        check("gymnasium", lambda: _gymnasium(maker))
        check("throughput", lambda: _throughput(maker, banks))
    return TaskReport(maker.id, tuple(results))


def corrupt(answer: str) -> str:
    """Another answer, close to this one: its first digit changed to a digit other than zero, or a letter added."""
    digit = re.search(r"[0-9]", answer)
    if digit is None:
        return f"{answer}x"
    changed = str(int(digit.group()) % 9 + 1)
    return answer[: digit.start()] + changed + answer[digit.end() :]


def _build(maker: EnvMaker, banks: dict[str, ProblemBank]) -> str:
    start = time.perf_counter()
    for split in ("train", "test"):
        banks[split] = maker.replace(split=split)().bank
    counts = ", ".join(f"{len(bank)} {split}" for split, bank in banks.items())
    return f"{counts} problems in {time.perf_counter() - start:.2f} s"


def _splits(banks: dict[str, ProblemBank]) -> str:
    shared = set(banks["train"].prompt_texts) & set(banks["test"].prompt_texts)
    assert not shared, f"{len(shared)} prompts are in both splits, such as {min(shared)!r}"
    for split, bank in banks.items():
        repeated = len(bank) - len(set(bank.prompt_texts))
        assert not repeated, f"{repeated} prompts are repeated in {split}"
    return "no prompt twice"


def _determinism(maker: EnvMaker, banks: dict[str, ProblemBank]) -> str:
    with _other_randomness():
        again = maker.replace(split="train")().bank
    for name in ("prompt_texts", "answer_texts", "response_texts"):
        first, second = getattr(banks["train"], name), getattr(again, name)
        pairs = enumerate(zip(first, second, strict=False))
        differ = next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))
        assert first == second, (
            f"the same seed gave other {name}, first at problem {differ}; problem() must take all randomness "
            "from its rng"
        )
    return "the same seed gives the same bank"


@contextlib.contextmanager
def _other_randomness() -> Iterator[None]:
    """Fresh global generators, restored afterwards: what draws from them draws something else."""
    python, legacy = random.getstate(), numpy.random.get_state()
    with torch.random.fork_rng(devices=[]):
        random.seed()
        numpy.random.seed()
        torch.seed()
        try:
            yield
        finally:
            random.setstate(python)
            numpy.random.set_state(legacy)


def _gold(maker: EnvMaker, banks: dict[str, ProblemBank], sample: int) -> str:
    count = 0
    for split, bank in banks.items():
        chosen = min(sample, len(bank))
        texts = bank.response_texts[:chosen]
        env, verdicts = _respond(maker, bank, split, texts)
        for problem, (text, verdict) in enumerate(zip(texts, verdicts.tolist(), strict=True)):
            length = len(env.vocab.encode(text)) + 1
            assert length <= env.max_new_tokens, (
                f"{split} problem {problem} {bank.prompt_texts[problem]!r}: the gold response needs {length} tokens "
                f"with its end, max_new_tokens is {env.max_new_tokens}"
            )
            assert verdict == Verdict.CORRECT, (
                f"{split} problem {problem} {bank.prompt_texts[problem]!r}: the gold response {text!r} is judged "
                f"{Verdict(verdict).name}"
            )
        count += chosen
    return f"{count} gold responses are CORRECT"


def _corrupted(maker: EnvMaker, banks: dict[str, ProblemBank], sample: int) -> str:
    task = maker.spec.build_task(**maker.task_parameters())
    count = 0
    for split, bank in banks.items():
        chosen = range(min(sample, len(bank)))
        texts = [_corrupt_response(task, bank, i) for i in chosen]
        _, verdicts = _respond(maker, bank, split, texts)
        for problem, (text, verdict) in enumerate(zip(texts, verdicts.tolist(), strict=True)):
            assert verdict != Verdict.CORRECT, (
                f"{split} problem {problem} {bank.prompt_texts[problem]!r}: the wrong response {text!r} is paid, "
                f"the answer is {bank.answer_texts[problem]!r}"
            )
        count += len(texts)
    return f"{count} corrupted responses are not"


def _corrupt_response(task: Task, bank: ProblemBank, problem: int) -> str:
    """The gold response with a wrong answer in place of the last right one; where it has none, the wrong one alone."""
    answer, wrong = bank.answer_texts[problem], task.corrupt(bank.answer_texts[problem])
    before, found, after = bank.response_texts[problem].rpartition(answer) if answer else ("", "", "")
    return before + wrong + after if found else styled_answer(wrong, bank.style)


def _respond(
    maker: EnvMaker, bank: ProblemBank, split: str, texts: list[str]
) -> tuple[VerifiableEnv, Tensor]:
    """Give response i to problem i of the bank, through the env itself; verdicts [len(texts)]."""
    options = {"num_envs": len(texts), "group_size": 1, "shuffle": False, "split": split, "bank": bank}
    env = maker.replace(**options)()
    env = maker.replace(**options, block_size=env.max_new_tokens)()
    rows = [[*ids, env.vocab.eos_id][: env.block_size] for ids in env.vocab.encode_batch(texts)]
    block = torch.full((len(texts), env.block_size), env.vocab.pad_id, dtype=torch.int64)
    for row, ids in enumerate(rows):
        block[row, : len(ids)] = torch.tensor(ids)
    state = env.reset()
    assert torch.equal(state[keys.PROBLEM].squeeze(1).cpu(), torch.arange(len(texts)))
    after = env.step(state.set(keys.ACTION, block.to(env.device)))
    return env, after[keys.NEXT_VERDICT].squeeze(1).cpu()


def _specs(maker: EnvMaker, banks: dict[str, ProblemBank]) -> str:
    from torchrl import torchrl_logger
    from torchrl.envs.utils import check_env_specs

    env = maker.replace(num_envs=4, group_size=2, block_size=2, split="train", bank=banks["train"])()
    level = torchrl_logger.level
    torchrl_logger.setLevel("WARNING")  # it announces each success
    try:
        check_env_specs(env)
    finally:
        torchrl_logger.setLevel(level)
    return "check_env_specs passes"


def _gymnasium(maker: EnvMaker) -> str:
    import gymnasium
    from gymnasium.utils.env_checker import check_env

    single = {name: value for name, value in maker.options.items() if name not in ("num_envs", "group_size")}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make(maker.id, **single)
        check_env(env.unwrapped)
        env.close()
    return "check_env passes without a warning"


def _throughput(maker: EnvMaker, banks: dict[str, ProblemBank], steps: int = 20) -> str:
    # Random tokens are seldom an answer; what the host would make of them is not the env's own speed.
    options: dict[str, Any] = {"num_envs": 256, "group_size": 1, "block_size": 8, "split": "train"}
    options["fallback"] = "never"
    env = maker.replace(**options, bank=banks["train"])()
    state: Any = env.rand_action(env.reset())
    assert isinstance(state, TensorDict)
    start = time.perf_counter()
    for _ in range(steps):
        _, state = env.step_and_maybe_reset(state)
        state = env.rand_action(state)
    rate = steps * 256 * 8 / (time.perf_counter() - start)
    return f"{rate:,.0f} tokens/s (256 slots, blocks of 8, random tokens)"
