"""What the host decides: right, wrong, hung, dead; waited for or deferred; nothing is paid that was not judged."""

from __future__ import annotations

import json
import os
import pickle
from multiprocessing import resource_tracker
from pathlib import Path

import pytest
import torch

import atrl_envs
from atrl_collectors import StalenessPolicy, make_buffer, make_collector
from atrl_envs import keys
from atrl_envs.rewards import texts
from atrl_envs.verify import Verdict
from tests.collectors.test_with_verifiable_env import Answers
from tests.envs.host_jobs import DIES, HANGS, LATE, decide, raises
from tests.envs.judgement_days import echo, write

ENDINGS = (HANGS, DIES)


def expected(text: str, gold: str) -> tuple[int, bool]:
    """Verdict and whether it counts."""
    if text.endswith(ENDINGS):
        return int(Verdict.UNDECIDED), False
    return decide(text, gold), True


def children() -> set[int]:
    """Child processes of this one, zombies included."""
    resource_tracker.ensure_running()  # one of them that stays: multiprocessing's own
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                if int(file.read().rpartition(")")[2].split()[1]) == os.getpid():
                    found.add(int(name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("defer", [False, True])
def test_every_way_that_a_job_can_end(defer: bool) -> None:
    before = children()
    env = echo(num_envs=6, block_size=6, shuffle=False, bank_size=20)
    env.defer = defer
    golds = env.bank.answer_texts
    answers = [golds[0], "1" + HANGS, "1" + DIES, "1" + LATE, "", golds[5]]
    after = env.step(write(env, env.reset(), answers))[keys.NEXT]
    rows = {}
    if defer:
        assert sorted(after[keys.TICKET].flatten().tolist()) == list(range(6))
        tickets = after[keys.TICKET].flatten().tolist()
        while env.pending:
            settled = env.settled(wait=1.0)
            rows |= {tickets.index(int(r[keys.TICKET])): r for r in (settled if settled is not None else ())}
        got = [(int(rows[i][keys.VERDICT]), bool(rows[i][keys.SCORED])) for i in range(6)]
        paid = [float(rows[i][keys.REWARD]) for i in range(6)]
    else:
        got = list(
            zip(after[keys.VERDICT].flatten().tolist(), after[keys.SCORED].flatten().tolist(), strict=True)
        )
        paid = after[keys.REWARD].flatten().tolist()
    assert got == [expected(text, gold) for text, gold in zip(answers, golds[:6], strict=True)]
    assert paid == [float(verdict == Verdict.CORRECT) for verdict, _ in got]
    assert dict(env.judge.cases.failures) == {"timeout": 1, "crash": 1}
    env.close()
    assert children() <= before


def test_without_fallback_nothing_is_asked() -> None:
    env = echo(num_envs=2, block_size=6, shuffle=False, bank_size=20, fallback="never")
    after = env.step(write(env, env.reset(), [env.bank.answer_texts[0], "1" + HANGS]))[keys.NEXT]
    assert after[keys.VERDICT].flatten().tolist() == [Verdict.UNDECIDED] * 2
    assert after[keys.REWARD].flatten().tolist() == [0.0, 0.0]
    assert after[keys.SCORED].all()


@pytest.mark.parametrize("block", [2, 6])
def test_a_collector_goes_on_meanwhile_and_its_books_balance(block: int) -> None:
    before = children()
    env = echo(num_envs=8, group_size=4, block_size=block, bank_size=40, seed=5)
    buffer = make_buffer(
        StalenessPolicy(prompts_per_batch=2, samples_per_prompt=4), env.sequence_length, timeout=60
    )
    answers = Answers(env)
    answers.wrong = torch.tensor(env.vocab.encode("1")[0])
    seen = 0
    with make_collector(env, answers, buffer=buffer) as collector:
        for version in range(8):
            answers.version.fill_(version)
            collector.advance(version)
            batch = buffer.sample()
            collector.check_books()
            assert batch[keys.GROUP].tolist() == [g for g in (2 * version, 2 * version + 1) for _ in range(4)]
            for row in batch:
                start, end = int(row[keys.PROMPT_LENGTH]), int(row[keys.LENGTH])
                text = env.vocab.decode(row[keys.TOKENS][start:end])
                verdict, scored = expected(text, env.bank.answer_texts[int(row[keys.PROBLEM])])
                assert (int(row[keys.VERDICT]), bool(row[keys.SCORED])) == (verdict, scored)
                assert float(row[keys.REWARD]) == float(verdict == Verdict.CORRECT)
                seen += not scored
    assert seen > 0  # some golds end in 7 or 8
    env.close()
    assert children() <= before


def test_a_reward_function_that_raises_stops_the_env_by_name() -> None:
    env = atrl_envs.make(
        "atrl/Addition-v0", num_envs=1, block_size=8, max_new_tokens=8, rewards=["correctness", texts(raises)]
    )
    with pytest.raises(RuntimeError, match=r"reward 'raises' failed on a response: .*no such column"):
        env.step(write(env, env.reset(), ["1"]))
    env.close()


def test_an_env_pickles_with_open_cases_left_behind() -> None:
    env = echo(num_envs=1, block_size=6, bank_size=5)
    env.defer = True
    env.step(write(env, env.reset(), ["19"]))
    judge = pickle.loads(pickle.dumps(env.judge))
    assert env.pending == 1
    assert judge.cases.pending == 0
    env.close()


@pytest.mark.parametrize(
    ("fallback", "paid"), [("auto", [0.0, 1.0]), (True, [1.0, 1.0]), ("never", [0.0, 0.0])]
)
def test_a_question_is_not_its_own_answer(tmp_path: Path, fallback: object, paid: list[float]) -> None:
    """A gold that is a number is compared by the tensor program alone, unless everything is asked for."""
    path = tmp_path / "two.jsonl"
    lines = [{"prompt": "12+34=", "answer": "46"}, {"prompt": "Double pi. ", "answer": "2\\pi"}]
    path.write_text("\n".join(map(json.dumps, lines)))
    env = atrl_envs.make(
        "atrl/File-v0", path=str(path), style="boxed", num_envs=2, block_size=32, max_new_tokens=32, shuffle=False,
        test_fraction=0.0, fallback=fallback,
    )  # fmt: skip
    after = env.step(write(env, env.reset(), ["\\boxed{12+34}", "\\boxed{\\pi+\\pi}"]))[keys.NEXT]
    assert after[keys.REWARD].flatten().tolist() == paid
    env.close()


def test_an_unknown_fallback_is_refused() -> None:
    with pytest.raises(ValueError, match="auto, always or never, got 'sometimes'"):
        echo(fallback="sometimes")
