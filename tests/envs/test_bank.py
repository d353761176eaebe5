"""Banks: distinct problems, disjoint splits, and errors that name the problem."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy
import pytest
import torch

import atrl_envs
from atrl_envs import Problem, ProblemBank, Task, Vocab
from atrl_envs.bank import collect_problems

VOCAB = Vocab.characters()


class Drawn(Task):
    """A number below `limit`; where that is small, the space runs out."""

    limit: int = 50

    def problem(self, rng: numpy.random.Generator) -> Problem:
        n = int(rng.integers(self.limit))
        return Problem(prompt=f"{n}=", answer=str(n))


class Listed(Task):
    """Given problems, with a repetition."""

    answer: str = "4"
    prompt: str = "2+2="
    response: str = ""

    def problems(self) -> Iterable[Problem]:
        return [Problem("1+1=", "2"), Problem(self.prompt, self.answer, self.response), Problem("1+1=", "2")]


def test_splits_partition_a_space_however_small() -> None:
    for limit in (2, 10, 50, 300):
        found = {}
        for split in ("train", "test"):
            try:
                found[split] = {p.prompt for p in collect_problems(Drawn(limit=limit), split=split, seed=0)}
            except ValueError:
                found[split] = set()  # a tiny space may lie in one split altogether
        assert not found["train"] & found["test"]
        assert found["train"] | found["test"] == {f"{n}=" for n in range(limit)}


def test_bank_sizes() -> None:
    large = Drawn(limit=10**9)
    assert len(collect_problems(large, split="train", seed=0)) == 10_000
    assert len(collect_problems(large, split="test", seed=0)) == 1_000
    assert len(collect_problems(large, split="test", seed=0, size=7)) == 7
    addition = atrl_envs.get_spec("atrl/Addition-v0").build_task()
    sizes = [len(collect_problems(addition, split=split, seed=0)) for split in ("train", "test")]
    assert sum(sizes) == 90 * 90  # every sum of two two-digit numbers is in one of the splits
    assert 700 < sizes[1] < 920


def test_a_part_of_a_listed_task_depends_on_the_seed() -> None:
    addition = atrl_envs.get_spec("atrl/Addition-v0").build_task()
    parts = [
        {p.prompt for p in collect_problems(addition, split="train", seed=s, size=100)} for s in (0, 0, 1)
    ]
    assert parts[0] == parts[1]
    assert len(parts[0]) == 100
    assert len(parts[0] & parts[2]) < 10


def test_tensors_and_texts_agree() -> None:
    bank = ProblemBank.build(Drawn(limit=300), VOCAB, split="train")
    assert bank.prompts.shape == (len(bank), bank.max_prompt_length)
    assert bank.prompts.dtype == bank.prompt_length.dtype == torch.int64
    for row, text in enumerate(bank.prompt_texts):
        length = int(bank.prompt_length[row])
        assert VOCAB.decode(bank.prompts[row, :length]) == text
        assert (bank.prompts[row, length:] == VOCAB.pad_id).all()
    assert bank.answer_texts == [text.removesuffix("=") for text in bank.prompt_texts]
    assert bank.longest_response() == 4
    assert len(set(bank.prompt_texts)) == len(bank)


def test_a_listed_problem_counts_once_and_a_limit_sets_the_width() -> None:
    bank = ProblemBank.build(Listed(), VOCAB, test_fraction=0.0, max_prompt_length=9)
    assert bank.prompt_texts == ["1+1=", "2+2="]
    assert bank.prompts.shape == (2, 9)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"answer": "4½"}, r"problem 1 '2\+2=' with answer '4½': the answer cannot be .*'½'.* at position 1"),
        ({"prompt": "2×2="}, r"problem 1 '2×2=' .*the prompt cannot be tokenised.*'×'.* at position 1"),
        ({"response": "so 4 →"}, r"problem 1 .*the response cannot be tokenised.*'→'.* at position 5"),
        ({"prompt": "1234567="}, r"problem 1 '1234567=' .*has 8 tokens, the limit is max_prompt_length=7"),
        ({"prompt": ""}, "problem 1 .*the prompt is empty"),
    ],
)
def test_mistakes_name_the_problem(parameters: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ProblemBank.build(Listed(**parameters), VOCAB, test_fraction=0.0, max_prompt_length=7)


def test_impossible_banks() -> None:
    with pytest.raises(ValueError, match="Listed has no problem in the split 'test'.*state more problems"):
        collect_problems(Listed(), split="test", seed=0, test_fraction=0.0)
    with pytest.raises(ValueError, match="split must be one of train, test, got 'valid'"):
        collect_problems(Listed(), split="valid", seed=0)
    with pytest.raises(ValueError, match=r"test_fraction must lie in \[0, 1\]"):
        collect_problems(Listed(), split="train", seed=0, test_fraction=10)
    with pytest.raises(ValueError, match="bank_size must be at least 1"):
        collect_problems(Listed(), split="train", seed=0, size=0)


class Careless(Task):
    """Gives whatever it is told to."""

    what: str = "none"

    def problem(self, rng: numpy.random.Generator) -> Problem:
        given: dict[str, Any] = {"none": None, "pair": ("1+1=", "2")}
        return given[self.what] if self.what in given else Problem(prompt="1+1=", answer=2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("none", r"Careless gave None \(NoneType\) for a problem; its `problem` returns"),
        ("pair", r"Careless gave \('1\+1=', '2'\) \(tuple\)"),
        ("number", r"a Problem's answer is a text, got 2 \(int\)"),
    ],
)
def test_what_is_no_problem_is_named(what: str, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        collect_problems(Careless(what=what), split="train", seed=0)
