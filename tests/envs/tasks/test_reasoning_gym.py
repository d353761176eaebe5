"""Every data set of reasoning-gym keeps the contract of an environment; its scorer pays full marks and nothing less."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pickle
import random
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from torchrl.envs.utils import check_env_specs

pytest.importorskip("reasoning_gym")

import atrl_envs
from atrl_envs import Problem, UnknownEnvError, Verdict, Vocab
from atrl_envs.bank import ProblemBank, collect_problems
from atrl_envs.checks import corrupt
from atrl_envs.host import HostPool
from atrl_envs.tasks import reasoning_gym
from atrl_envs.tasks.reasoning_gym_items import draw, make_data_set, score
from atrl_envs.tasks.reasoning_gym_table import (
    BEYOND_ASCII,
    DATA_SETS,
    FLAWS,
    HASHED,
    LIMITS,
    RESEEDED,
    SLOW,
    Judge,
)
from tests.envs import tokenizers_built
from tests.envs.toy import play

package = pytest.importorskip("reasoning_gym")
NAMES = sorted(DATA_SETS)
OWN = [name for name in NAMES if DATA_SETS[name] is Judge.OWN]
# Parameters under which slow data sets are quick; the code is the same.
QUICK: dict[str, dict[str, Any]] = {
    "futoshiki": {"max_board_size": 5},
    "intermediate_integration": {"problem_types": ["linear", "cyclic"], "problem_type_weights": [0.5, 0.5]},
    "knight_swap": {"min_pieces": 1, "max_pieces": 1},
    "puzzle24": {"max_value": 6},
    "quantum_lock": {"difficulty": 4},
    "sokoban": {"max_w": 7, "max_h": 7},
    "zebra_puzzles": {"num_people": 3, "num_characteristics": 3},
}
SIZES = {"train": 4, "test": 2}
NO_GOLD = {name for name, limit in LIMITS.items() if "no gold" in limit}


@functools.lru_cache(maxsize=1)
def vocabulary() -> Vocab:
    """Bytes: the prompts of some data sets have emoji, arrows and signs of logic, which are no ASCII."""
    return Vocab.from_tokenizer(tokenizers_built.byte_level())


@functools.cache
def task(name: str) -> Any:
    return atrl_envs.get_spec(f"reasoning_gym/{name}-v0").build_task(**QUICK.get(name, {}))


@functools.cache
def bank(name: str, split: str) -> ProblemBank:
    return ProblemBank.build(task(name), vocabulary(), split=split, size=SIZES[split], test_fraction=0.4)


def tensor_verdicts(verifier: Any, golds: list[str], texts: list[str]) -> list[int]:
    """What the tensor program says of response i to gold i."""
    vocab = vocabulary()
    rows = [[*ids, vocab.eos_id] for ids in vocab.encode_batch(texts)]
    width = max(map(len, rows))
    tokens = torch.tensor([row + [vocab.pad_id] * (width - len(row)) for row in rows])
    start = torch.zeros(len(texts), dtype=torch.int64)
    return verifier(tokens, start, verifier.encode_answers(golds)).tolist()


@pytest.fixture(scope="module")
def pool() -> Iterator[HostPool]:
    with HostPool(workers=1, cpu_seconds=20.0, wall_seconds=60.0) as pool:
        yield pool


def judged(pool: HostPool, bank: ProblemBank, texts: list[str]) -> list[int]:
    """The same, with the host's verdict where the tensor program is UNDECIDED, as an environment has it."""
    found = tensor_verdicts(bank.verifier, bank.answer_texts, texts)
    tickets = {}
    for row, verdict in enumerate(found):
        if verdict == Verdict.UNDECIDED and hasattr(bank.verifier, "host_job"):
            job, args = bank.verifier.host_job(texts[row], bank.answer_texts[row], bank.data_of(row))
            tickets[pool.submit(job, *args)] = row
    while pool.pending:
        for outcome in pool.collect(wait=30.0):
            assert outcome.status == "ok", outcome.error
            found[tickets[outcome.ticket]] = outcome.value
    return found


# Every data set


def test_the_table_has_every_data_set() -> None:
    known = set(package.factory.DATASETS)
    assert known - set(DATA_SETS) == {"composite"}
    for named in (DATA_SETS, FLAWS, RESEEDED, HASHED, SLOW, BEYOND_ASCII, LIMITS, QUICK):
        assert set(named) <= known
    with_scorer = {n for n in known if task_class(n).judge is Judge.OWN}
    assert with_scorer >= set(OWN)


def task_class(name: str) -> Any:
    return getattr(reasoning_gym, name)


@pytest.mark.parametrize("name", NAMES)
def test_specs_and_gymnasium(name: str) -> None:
    env = atrl_envs.make(f"reasoning_gym/{name}-v0", num_envs=2, group_size=2, block_size=3, **shared(name))
    check_env_specs(env)
    assert (pickle.loads(pickle.dumps(env)).reset() == env.reset()).all()
    one = gymnasium.make(f"reasoning_gym/{name}-v0", **shared(name))
    for _ in range(2):
        assert one.reset(seed=3)[0] in one.observation_space
        assert one.step(one.action_space.sample())[0] in one.observation_space


@pytest.mark.parametrize("name", ["gcd", "sudoku", "zebra_puzzles", "rush_hour"])  # one of each way to judge
def test_gymnasium_s_checker_finds_nothing(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(f"reasoning_gym/{name}-v0", **shared(name)).unwrapped)


def shared(name: str) -> dict[str, Any]:
    """Options of an environment over the bank that the other tests use."""
    made = {"vocab": vocabulary(), "bank": bank(name, "train"), "fallback": False, "max_new_tokens": 6}
    return {**made, **QUICK.get(name, {})}


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_says_everything_and_splits_share_nothing(name: str) -> None:
    train, test = bank(name, "train"), bank(name, "test")
    assert not set(train.prompt_texts) & set(test.prompt_texts)
    assert len(set(train.prompt_texts)) == len(train) >= 1
    before = random.getstate(), numpy.random.get_state()[1].tolist()
    (again,) = collect_problems(task(name), split="train", seed=0, size=1, test_fraction=0.4)
    assert (random.getstate(), numpy.random.get_state()[1].tolist()) == before, "it uses global randomness"
    assert (again.prompt, again.answer) == (train.prompt_texts[0], train.answer_texts[0])
    (other,) = collect_problems(task(name), split="train", seed=1, size=1, test_fraction=0.4)
    assert other.prompt not in train.prompt_texts
    assert name in BEYOND_ASCII or all(text.isascii() for text in [*train.prompt_texts, *train.answer_texts])


@pytest.mark.parametrize("name", NAMES)
def test_gold_pays_and_a_corrupted_gold_does_not(name: str, pool: HostPool) -> None:
    if name in NO_GOLD:
        assert set(bank(name, "train").answer_texts) == {""}
        return
    for split in SIZES:
        problems = bank(name, split)
        assert set(judged(pool, problems, problems.response_texts)) == {Verdict.CORRECT}
        for spoil in (corrupt, lambda text: f"It is {text}; no, 12345.", lambda text: f"{text} or 12345"):
            wrong = [spoil(text) for text in problems.answer_texts]
            assert Verdict.CORRECT not in judged(pool, problems, wrong), wrong
        assert set(judged(pool, problems, [" "] * len(problems))) == {Verdict.MISSING}


SPAM = [
    "0",
    "1",
    "True",
    "no",
    "a",
    "[]",
    "{}",
    "nan",
    "inf",
    "0 1 2 3 4 5 6 7 8 9",
    "8*3*1*1",
    "abcdefghijklmnopqrstuvwxyz",
]


@pytest.mark.parametrize("name", NAMES)
def test_no_answer_is_right_for_everything(name: str, pool: HostPool) -> None:
    problems = bank(name, "train")
    for text in SPAM:
        right = [v == Verdict.CORRECT for v in judged(pool, problems, [text] * len(problems))]
        golds = [gold.lower() for gold in problems.answer_texts]
        if len(set(golds)) > 1:
            assert not all(right), text
        if DATA_SETS[name] is not Judge.OWN:
            for paid, gold in zip(right, golds, strict=True):
                assert not paid or gold == text.lower(), (text, gold)


@pytest.mark.parametrize("name", OWN)
def test_a_data_set_s_own_scorer_gives_its_gold_full_marks(name: str) -> None:
    if name in NO_GOLD:
        return
    problems = bank(name, "test")
    for row, answer in enumerate(problems.answer_texts):
        assert score(name, QUICK.get(name, {}), answer, problems.data_of(row)) == Verdict.CORRECT, answer


@pytest.mark.parametrize("name", [n for n in NAMES if DATA_SETS[n] is not Judge.OWN])
def test_the_tensor_program_pays_nothing_that_the_scorer_would_not(name: str) -> None:
    data_set = make_data_set(name, QUICK.get(name, {}))
    entries = [draw(name, QUICK.get(name, {}), seed) for seed in (5, 6)]
    verifier = task(name).verifier(vocabulary(), "plain")
    for entry in entries:
        answer = entry["answer"]
        texts = [
            answer,
            answer.upper(),
            answer.lower(),
            answer.title(),
            f"+{answer}",
            f"{answer}.0",
            f"0{answer}",
        ]
        texts += [f"{answer}{answer}", answer[1:], answer[:-1], answer[::-1], f"{answer}, {answer}"]
        found = tensor_verdicts(verifier, [answer] * len(texts), texts)
        assert found[0] == Verdict.CORRECT
        for text, verdict in zip(texts, found, strict=True):
            # A scorer that compares texts knows one spelling of a number, the tensor program knows its value.
            spelled = DATA_SETS[name] is Judge.NUMBER and text != answer
            if verdict == Verdict.CORRECT and not spelled:
                assert data_set.score_answer(text, entry) == 1.0, (text, answer)
            elif spelled and verdict == Verdict.CORRECT:
                assert float(text) == float(answer)


def digest_of(prompts: list[str], answers: list[str]) -> str:
    """Of the first problem."""
    return hashlib.sha256(repr((prompts[0], answers[0])).encode()).hexdigest()


def digest(names: list[str]) -> dict[str, str]:
    """What a process draws first of each data set."""
    drawn = {
        name: collect_problems(task(name), split="train", seed=0, size=1, test_fraction=0.4) for name in names
    }
    return {name: digest_of([p.prompt for p in ps], [p.answer for p in ps]) for name, ps in drawn.items()}


def test_every_process_draws_the_same() -> None:
    module = "tests.envs.tasks.test_reasoning_gym"
    code = f"import json; from {module} import NAMES, digest; print(json.dumps(digest(NAMES)))"
    env = {**os.environ, "PYTHONHASHSEED": "12345", "OMP_NUM_THREADS": "1"}
    root = Path(atrl_envs.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout.splitlines()[-1])
    banks = {name: bank(name, "train") for name in NAMES}
    assert theirs == {name: digest_of(b.prompt_texts, b.answer_texts) for name, b in banks.items()}


@pytest.mark.parametrize("name", sorted(RESEEDED))
def test_a_data_set_that_is_kept_gives_what_a_fresh_one_gives(name: str) -> None:
    for seed in (1, 2**32 - 1):
        fresh = make_data_set(name, {}, seed)[0]
        kept = draw(name, {}, seed)
        assert (kept["question"], kept["answer"]) == (fresh["question"], fresh["answer"])


# Scorers that are put right


FLAWED: dict[str, tuple[dict[str, Any], str, list[str], list[str]]] = {
    "puzzle24": (
        {"numbers": [5, 1, 2, 8]},
        "8*(5*1 - 2)",
        ["8 * (5 - 2) * 1"],
        ["8*3*1*1", "8*(5-2)", "8*5-15-1", "(5+1)*8/2+0", "8*(5*1 - 2) or 7"],
    ),
    "countdown": (
        {"numbers": [3, 7, 9], "target": 30},
        "3*7 + 9",
        ["9+7*3"],
        ["3*9+7", "30", "3*7+9.0001", "7*3+9+0"],
    ),
    "number_sorting": (
        {"direction": "ascending", "sorted_numbers": ["-3.5", "2", "10"]},
        "['-3.5', '2', '10']",
        ['["-3.5", "2", "10"]', "[-3.5, 2.0, 10]"],
        ["['-3', '2', '10']", "[-3.5, 2, 10.4]", "[2, -3.5, 10]"],
    ),
    "coin_flip": (
        {"rational": {"numerator": 1, "denominator": 8}},
        "0.125",
        ["1/8", "0.1250"],
        ["0", "0.1", "0.12501", "1"],
    ),
    "game_of_life": (
        {},
        "[[0,1],[1,0]]",
        ["[[0, 1], [1, 0]]"],
        ["[[0,1],[1,0],[1,1]]", "[[0,1,1],[1,0]]", "[[1,1],[1,0]]"],
    ),
    "complex_arithmetic": ({"result": (1.0, -2.0)}, "1.0 - 2.0i", ["1-2i"], ["nan", "nan+nani", "1+2i"]),
    "polynomial_equations": ({}, "-0.5, 2.0", ["2,-0.50"], ["-0.5, x, 2.0", "-0.5", "nan", "-0.5, 2.0, 2.0"]),
    "pool_matrix": ({}, "4.333333 8.0", ["4.33 8"], ["4.34 8", "4.3 8", "4.33 8.05", "4.33\n8"]),
    "kakurasu": (
        {"row_sums": [2, 1], "col_sums": [2, 1], "n_rows": 2, "n_cols": 2},
        "0 1\n1 0",
        ["01\n10"],
        ["0 1 or 0\n1 0 x", "0 7 1\n1 0"],
    ),
    "word_sorting": ({"sorted_words": ["a", "b"]}, "a, b", ["a,b"], ["a, b, c", "b, a", "a"]),
    "simple_integration": (
        {"variable": "x", "integrand": "2*x"},
        "x**2 + C",
        ["C + x*x"],
        ["x**2 + C or 7", "x**3", "7 if C else x**2"],
    ),
}


@pytest.mark.parametrize("name", FLAWED)
def test_flawed_scorers(name: str) -> None:
    metadata, gold, right, wrong = FLAWED[name]
    item = {"question": "", "answer": gold, "metadata": metadata}
    assert [score(name, {}, text, item) for text in [gold, *right]] == [Verdict.CORRECT] * (1 + len(right))
    assert [score(name, {}, text, item) for text in wrong] == [Verdict.WRONG] * len(wrong)
    assert name in FLAWS


def test_an_answer_that_is_a_program_does_no_harm(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("here")
    programs = [
        f"open({str(victim)!r}, 'w').write('gone')",
        f"__import__('os').remove({str(victim)!r})",
        f"[__import__('os').system('rm {victim}')]",
        f"x + exp(0*len(open({str(victim)!r}, 'w').write('')))",
    ]
    for name in OWN:
        if name in NO_GOLD:
            continue
        entry = draw(name, QUICK.get(name, {}), 1)
        for text in programs:
            assert score(name, QUICK.get(name, {}), text, entry) == Verdict.WRONG
            assert victim.read_text() == "here", name


# Ids, parameters, errors


def test_unknown_names_and_parameters() -> None:
    with pytest.raises(UnknownEnvError, match="near: reasoning_gym/chain_sum-v0"):
        atrl_envs.make("reasoning_gym/chain_sun-v0")
    with pytest.raises(UnknownEnvError, match="`atrl envs reasoning_gym` lists what it has"):
        atrl_envs.make("reasoning_gym/qqqqq-v0")
    with pytest.raises(TypeError, match="chain_sum has no parameter 'max_term'; did you mean 'max_terms'"):
        atrl_envs.make("reasoning_gym/chain_sum-v0", max_term=3)
    with pytest.raises(TypeError, match="max_terms must be int, got 'x'"):
        atrl_envs.make("reasoning_gym/chain_sum-v0", max_terms="x")
    with pytest.raises(ValueError, match="reasoning_gym/chain_sum: max_terms must be >= min_terms"):
        atrl_envs.make("reasoning_gym/chain_sum-v0", max_terms=1)
    with pytest.raises(ValueError, match="composite: Must specify at least one dataset"):
        atrl_envs.make("reasoning_gym/composite-v0")


def test_parameters_reach_the_data_set_in_its_own_kinds() -> None:
    env = atrl_envs.make(
        "reasoning_gym/chain_sum-v0", min_terms=3, max_terms=3, min_digits=1, max_digits=1, bank_size=5
    )
    assert all(len(prompt.split(": ")[1].split()) == 6 for prompt in env.bank.prompt_texts)  # 1 + 2 + 3 =
    spec = atrl_envs.get_spec("reasoning_gym/time_intervals-v0")
    assert str(spec.build_task(min_date="1999-12-31")._settings["min_date"]) == "1999-12-31"
    words = atrl_envs.get_spec("reasoning_gym/word_sorting-v0").build_task(transformation="uppercase")
    assert words._settings["transformation"].name == "UPPERCASE"
    made = atrl_envs.get_spec("reasoning_gym/countdown-v0").build_task(operators=["+"], shuffle_=False)
    assert (made._settings["operators"], made._settings["shuffle"]) == (("+",), False)


def test_words_of_the_command_line_become_parameters() -> None:
    from atrl_agents.parameters import typed_parameters

    typed = typed_parameters(
        "reasoning_gym/countdown-v0", {"max_value": "20", "operators": '["+", "-"]', "shuffle_": "no"}
    )
    assert typed == {"max_value": 20, "operators": ["+", "-"], "shuffle_": False}


def test_a_question_is_not_its_own_answer() -> None:
    """With an environment's default, the host, which knows that 2 + 3 is 5."""
    env = atrl_envs.make(
        "reasoning_gym/chain_sum-v0", style="boxed", bank_size=4, num_envs=2, max_new_tokens=60
    )

    def echo(env: Any, group: int, member: int, problem: int) -> list[int]:
        sum_of = env.bank.prompt_texts[problem].split(": ")[1].removesuffix(" =\n")
        return [*env.vocab.encode(f"\\boxed{{{sum_of}}}"), env.vocab.eos_id]

    assert Verdict.CORRECT not in {e.verdict for e in play(env, 4, write=echo).values()}


def test_neighbouring_seeds_share_nothing() -> None:
    made = task("gcd")
    first, second = (
        {p.prompt for p in collect_problems(made, split="train", seed=seed, size=200)} for seed in (42, 43)
    )
    assert len(first & second) < 5


def test_listing_needs_no_import_and_a_missing_package_says_what_to_install(tmp_path: Path) -> None:
    code = """
import importlib.util, sys
import atrl_envs
ids = [id for id in atrl_envs.list_envs() if id.startswith("reasoning_gym/")]
print(len(ids), "reasoning_gym" in sys.modules)
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name == "reasoning_gym" else real(name, *a)
print(len([id for id in atrl_envs.list_envs() if id.startswith("reasoning_gym/")]))
try:
    atrl_envs.make("reasoning_gym/gcd-v0")
except atrl_envs.UnknownEnvError as error:
    print(error)
"""
    root = Path(atrl_envs.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    counted, without, said = done.stdout.splitlines()
    assert counted == f"{len(NAMES)} False"
    assert without == "0"
    assert "needs the package" in said or "need the package reasoning-gym: pip install" in said


def test_an_environment_asks_the_scorer_itself() -> None:
    """Through the environment's own host: another solution than the gold pays, a wrong one does not."""
    env = atrl_envs.make(
        "reasoning_gym/palindrome_generation-v0", num_envs=2, bank_size=4, block_size=64, max_new_tokens=40
    )

    def reversed_halves(env: Any, group: int, member: int, problem: int) -> list[int]:
        gold = env.bank.answer_texts[problem]
        half, middle = sorted(gold[: len(gold) // 2]), gold[len(gold) // 2 : (len(gold) + 1) // 2]
        return [*env.vocab.encode("".join([*half, middle, *reversed(half)])), env.vocab.eos_id]

    def doubled(env: Any, group: int, member: int, problem: int) -> list[int]:
        return [*env.vocab.encode(env.bank.answer_texts[problem] * 2), env.vocab.eos_id]

    assert {e.reward for e in play(env, 4, write=reversed_halves).values()} == {1.0}
    env.set_seed(0)
    assert {e.verdict for e in play(env, 4, write=doubled).values()} == {Verdict.WRONG}
    env.close()


def test_prompts_beyond_ascii_need_a_tokenizer_that_knows_them() -> None:
    with pytest.raises(ValueError, match="use a tokenizer that knows it"):
        atrl_envs.make("reasoning_gym/propositional_logic-v0", bank_size=2)
    assert isinstance(
        collect_problems(task("propositional_logic"), split="train", seed=0, size=1)[0], Problem
    )
