"""VerifiableEnv: the meaning of a block, the end of an episode, and independence of the block size."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.multiprocessing
from tensordict import TensorDict

import atrl_envs
from atrl_envs import Verdict, keys
from atrl_envs.bank import ProblemBank
from tests.envs.toy import addition, play, type_block


def step_with(env: object, *blocks: str | list[int]) -> TensorDict:
    """One step from a fresh reset in which row i gets blocks[i], padded by EOS; returns the next state."""
    state = env.reset()  # type: ignore[attr-defined]
    vocab, width = env.vocab, env.block_size  # type: ignore[attr-defined]
    rows = [vocab.encode(block) if isinstance(block, str) else block for block in blocks]
    action = torch.tensor([row + [vocab.eos_id] * (width - len(row)) for row in rows])
    return env.step(state.set(keys.ACTION, action))[keys.NEXT]  # type: ignore[attr-defined]


def test_a_reset_shows_prompts_and_nothing_else() -> None:
    env = addition(num_envs=6, group_size=3)
    state = env.reset()
    assert state[keys.TOKENS].shape == (6, env.max_prompt_length + env.max_new_tokens)
    assert state[keys.GROUP].squeeze(1).tolist() == [0, 0, 0, 1, 1, 1]
    assert state[keys.MEMBER].squeeze(1).tolist() == [0, 1, 2, 0, 1, 2]
    for row in range(6):
        problem, length = int(state[keys.PROBLEM][row]), int(state[keys.LENGTH][row])
        assert length == int(state[keys.PROMPT_LENGTH][row])
        assert env.vocab.decode(state[keys.TOKENS][row, :length]) == env.bank.prompt_texts[problem]
        assert (state[keys.TOKENS][row, length:] == env.vocab.pad_id).all()
    assert not state[keys.DONE].any()
    assert (state[keys.VERDICT] == -1).all()


def test_an_env_says_what_it_is() -> None:
    env = addition(num_envs=6, group_size=3)
    assert repr(env) == (
        "VerifiableEnv(Addition, num_envs=6, group_size=3, block_size=1, split='train', device='cpu')"
    )


def test_a_block_is_cut_at_its_first_end() -> None:
    env = addition(num_envs=3, block_size=4, shuffle=False, max_new_tokens=4)
    answers = env.bank.answer_texts
    eos = env.vocab.eos_id
    gold, seven = env.vocab.encode(answers[0]), env.vocab.encode("7")[0]
    after = step_with(
        env, [*gold, eos, seven, eos], [eos, seven, seven, seven], [seven, seven, env.vocab.pad_id, 2]
    )
    start = after[keys.PROMPT_LENGTH]
    assert (after[keys.LENGTH] - start).squeeze(1).tolist() == [len(gold) + 1, 1, 4]
    assert after[keys.TERMINATED].squeeze(1).tolist() == [True, True, False]
    assert after[keys.TRUNCATED].squeeze(1).tolist() == [False, False, True]
    assert after[keys.DONE].all()
    assert after[keys.VERDICT][0] == Verdict.CORRECT
    assert after[keys.REWARD].squeeze(1).tolist() == [1.0, 0.0, 0.0]
    assert int(after[keys.VERDICT][1]) != Verdict.CORRECT
    first = int(start[0])
    assert after[keys.TOKENS][0, first : first + 4].tolist() == [*gold, eos, *[env.vocab.pad_id] * 4][:4]
    third = int(start[2])
    assert after[keys.TOKENS][2, third : third + 4].tolist() == [seven, seven, env.vocab.pad_id, 2]


def test_a_block_stops_at_the_length_limit() -> None:
    env = addition(num_envs=2, block_size=3, shuffle=False, max_new_tokens=4)
    seven = env.vocab.encode("7")[0]
    state = env.reset()
    state = env.step(state.set(keys.ACTION, torch.full((2, 3), seven)))[keys.NEXT]
    assert not state[keys.DONE].any()
    assert state[keys.REWARD].tolist() == [[0.0], [0.0]]
    assert state[keys.VERDICT].tolist() == [[-1], [-1]]
    eos_beyond = torch.tensor([[seven, env.vocab.eos_id, seven], [env.vocab.eos_id, seven, seven]])
    state = env.step(state.set(keys.ACTION, eos_beyond))[keys.NEXT]
    assert (state[keys.LENGTH] - state[keys.PROMPT_LENGTH]).tolist() == [[4], [4]]
    assert state[keys.TRUNCATED].tolist() == [[True], [False]]
    assert state[keys.TERMINATED].tolist() == [[False], [True]]


def test_a_correct_answer_without_its_end_is_judged_at_the_limit() -> None:
    env = addition(num_envs=1, block_size=8, shuffle=False, max_new_tokens=2, low=5, high=9)
    ten = env.bank.answer_texts.index("10")
    env = addition(num_envs=ten + 1, block_size=2, shuffle=False, max_new_tokens=2, low=5, high=9)
    after = step_with(env, *["10"] * (ten + 1))
    assert bool(after[keys.TRUNCATED][ten])
    assert after[keys.VERDICT][ten] == Verdict.CORRECT


def test_a_step_changes_nothing_in_what_it_was_given() -> None:
    env = addition(num_envs=8, group_size=4, block_size=2)
    state = env.reset()
    for _ in range(8):
        state = type_block(env, state)
        before = state.clone()
        after = env._step(state).clone()
        step, state = env.step_and_maybe_reset(state)
        assert all(torch.equal(before[key], step[key]) for key in before.keys(True, True))
        # What the partial reset writes for the next step must not reach back into this one.
        assert all(torch.equal(after[key], step[keys.NEXT, key]) for key in after.keys(True, True))


@pytest.fixture(scope="module")
def per_token() -> dict:
    return play(addition(num_envs=4, group_size=4, seed=3), 48)


@pytest.mark.parametrize("block_size", [2, 3, 4, 7])
@pytest.mark.parametrize("num_envs", [4, 12])
def test_episodes_do_not_depend_on_block_size_or_slots(
    per_token: dict, block_size: int, num_envs: int
) -> None:
    blocks = play(addition(num_envs=num_envs, group_size=4, seed=3, block_size=block_size), 48)
    shared = per_token.keys() & blocks.keys()
    assert len(shared) >= 36
    assert all(per_token[key] == blocks[key] for key in shared)


def test_the_toy_episodes_show_every_kind_of_end(per_token: dict) -> None:
    ends = {(e.terminated, e.truncated, e.reward) for e in per_token.values()}
    assert {(True, False, 1.0), (True, False, 0.0), (False, True, 0.0)} <= ends
    assert all(e.reward == 1.0 for (_, member), e in per_token.items() if member == 0)


@pytest.mark.parametrize("task", ["atrl/SumSteps-v0", "atrl/File-v0"])
def test_long_responses_do_not_depend_on_block_size(task: str) -> None:
    options = {"num_envs": 4, "group_size": 2, "bank_size": 40}
    plain = play(atrl_envs.make(task, **options), 6)
    blocks = play(atrl_envs.make(task, **options, block_size=13), 6)
    shared = plain.keys() & blocks.keys()
    assert len(shared) >= 4
    assert all(plain[key] == blocks[key] for key in shared)


def test_seeds_reproduce_bit_for_bit_and_differ_from_each_other() -> None:
    def rollout(seed: int) -> TensorDict:
        env = addition(num_envs=8, group_size=2, block_size=2, seed=seed)
        state, steps = env.reset(), []
        for _ in range(12):
            step, state = env.step_and_maybe_reset(type_block(env, state))
            steps.append(step)
        return torch.stack(steps)

    first, again, other = rollout(42), rollout(42), rollout(43)
    assert (first == again).all()
    assert float((first[keys.PROBLEM] == other[keys.PROBLEM]).float().mean()) < 0.1


def test_banks_of_neighbouring_seeds_share_little() -> None:
    large = {"high": 10**6, "bank_size": 500}
    first = addition(**large, seed=42).bank.prompt_texts
    assert addition(**large, seed=42).bank.prompt_texts == first
    assert len(set(first) & set(addition(**large, seed=43).bank.prompt_texts)) < 5


def test_set_seed_starts_the_stream_over() -> None:
    env = addition(num_envs=5)
    env.set_seed(9)
    first = env.reset()
    env.reset()
    env.set_seed(9)
    assert (env.reset() == first).all()
    env.set_seed(10)
    assert not (env.reset() == first).all()


def test_a_pickled_env_goes_on_where_it_was() -> None:
    env = addition(num_envs=4, group_size=2)
    env.reset()
    again = pickle.loads(pickle.dumps(env))
    assert (again.reset() == env.reset()).all()
    assert again.vocab == env.vocab
    assert again.task == env.task


def test_a_ready_bank_is_used_and_shared() -> None:
    bank = addition().bank.share_memory()
    env = atrl_envs.make("atrl/Addition-v0", bank=bank)
    assert env.bank.prompts.data_ptr() == bank.prompts.data_ptr()
    assert bank.prompts.is_shared()
    with pytest.raises(ValueError, match="the given bank was made with"):
        other = atrl_envs.Vocab.from_tokenizer(env.vocab.tokenizer, size=500)
        atrl_envs.make("atrl/Addition-v0", bank=bank, vocab=other)


def _judge_here(bank: ProblemBank, queue: Any) -> None:
    queue.put(_own_verdicts(bank))


def _own_verdicts(bank: ProblemBank) -> list[int]:
    """Each problem's answer, half of them with a digit too many."""
    texts = [text + "7" * (i % 2) for i, text in enumerate(bank.answer_texts)]
    ids = [[*bank.vocab.encode(text), bank.vocab.eos_id] for text in texts]
    width = max(map(len, ids))
    tokens = torch.tensor([row + [bank.vocab.pad_id] * (width - len(row)) for row in ids])
    length = torch.tensor([len(row) for row in ids])
    start = torch.zeros_like(length)
    found = bank.verifier(tokens, start, bank.answers, end=length)
    return [int(verdict) for verdict in found]


def test_a_bank_that_was_sent_to_processes_judges_there_and_here() -> None:
    """Sending moves tensors into shared memory, under the feet of whatever looks at them."""
    env = addition()
    bank = ProblemBank.build(env.task, env.vocab, size=40).share_memory()
    wanted = [int(Verdict.CORRECT), int(Verdict.WRONG)] * 20
    assert _own_verdicts(bank) == wanted
    context = torch.multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    jobs = [context.Process(target=_judge_here, args=(bank, queue), daemon=True) for _ in range(2)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(120)
    assert [job.exitcode for job in jobs] == [0, 0]
    assert [queue.get() for _ in jobs] == [wanted, wanted]
    rubbish = [torch.full((n,), 255, dtype=torch.uint8) for n in (101, 404, 1000, 10_000, 1_000_000) * 20]
    assert _own_verdicts(bank) == wanted
    del rubbish


def test_step_and_reset_ask_nothing_of_an_accelerator() -> None:
    """On the meta device any look at a value raises, so what runs there cannot wait for a GPU."""
    env = addition(num_envs=6, group_size=2, block_size=3)
    state = type_block(env, env.reset())
    meta = state.to("meta")
    env.__dict__["_device"] = torch.device("meta")
    env._place(
        replace(env.bank, verifier=lambda tokens, *_, **__: tokens[:, 0].to(torch.int8)), seed=0, place=0
    )
    fresh = env._reset(TensorDict({"_reset": torch.ones(6, 1, dtype=torch.bool, device="meta")}, [6]))
    assert fresh[keys.TOKENS].device.type == "meta"
    after = env._step(meta)
    assert after[keys.TOKENS].device.type == "meta"
    assert after[keys.REWARD].shape == (6, 1)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_gpu_gives_the_same_episodes_without_a_sync() -> None:
    on_cpu = play(addition(num_envs=8, group_size=4, block_size=3), 32)
    env = addition(num_envs=8, group_size=4, block_size=3, device="cuda")
    state = env.reset()
    action = torch.full((8, 3), 5, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        env._reset(TensorDict({"_reset": torch.ones(8, 1, dtype=torch.bool, device="cuda")}, [8]))
        env._step(state.set(keys.ACTION, action))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    env.set_seed(0)
    on_gpu = play(env, 32)
    shared = on_cpu.keys() & on_gpu.keys()
    assert len(shared) >= 24
    assert all(on_cpu[key] == on_gpu[key] for key in shared)
