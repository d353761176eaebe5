"""Rewards: each component against numbers by hand or an independent reader, and what their sum may not do."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import atrl_envs
from atrl_envs import Problem, Task, keys, rewards
from atrl_envs.bank import ProblemBank
from atrl_envs.judge import Judge
from atrl_envs.rewards import Responses, Reward, Rewards, compose, view_of
from atrl_envs.verify import Verdict
from atrl_envs.verify.text import Spelling
from atrl_envs.vocab import Vocab

VOCAB = Vocab.characters()
SPELLING = Spelling.of(VOCAB)


def responses(texts: list[str], verdicts: list[int] | None = None, limit: int = 40) -> Responses:
    """The texts as responses to the prompt "1+1=", each with its EOS."""
    prompt = VOCAB.encode("1+1=")
    rows = [[*prompt, *VOCAB.encode(text), VOCAB.eos_id] for text in texts]
    width = max(map(len, rows)) + 2
    tokens = torch.tensor([row + [VOCAB.pad_id] * (width - len(row)) for row in rows])
    start = torch.full((len(rows),), len(prompt))
    length = torch.tensor([len(row) for row in rows])
    verdict = torch.tensor(verdicts or [int(Verdict.WRONG)] * len(rows), dtype=torch.int8)
    zero = torch.zeros_like(start)
    return Responses(
        tokens, start, length, verdict, view_of(zero, zero, start, length, verdict), SPELLING, limit
    )


def value(component: Reward, seen: Responses) -> list[float]:
    return Rewards([component], allow_outscoring=True).parts(seen)[:, 0].tolist()


def test_correctness_pays_only_correct() -> None:
    seen = responses(["x"] * len(Verdict), [int(v) for v in Verdict])
    assert value(rewards.correctness(), seen) == [float(v == Verdict.CORRECT) for v in Verdict]


def test_overlong_by_hand() -> None:
    # limit 40, margin a quarter: free up to 30 tokens, then -1/10 a token. A text of n characters is n + 1 tokens.
    seen = responses(["a" * n for n in (1, 29, 30, 34, 39)], limit=40)
    assert value(rewards.overlong(margin=0.25), seen) == pytest.approx([0.0, 0.0, -0.1, -0.5, -1.0])
    with pytest.raises(ValueError, match="margin is a share"):
        rewards.overlong(margin=0.0)


def test_length_by_hand() -> None:
    assert value(rewards.length(), responses(["", "a" * 9, "a" * 39], limit=40)) == pytest.approx(
        [-1 / 40, -0.25, -1.0]
    )


WELL_FORMED = re.compile(
    r"[ \t\r\n]*<think>(.*?)</think>[ \t\r\n]*<answer>(.*?)</answer>[ \t\r\n]*", re.DOTALL
)
TAGS = ("<think>", "</think>", "<answer>", "</answer>")


def reads_well(text: str) -> float:
    """An independent reader of the same rule."""
    match = WELL_FORMED.fullmatch(text)
    once = all(text.count(tag) == 1 for tag in TAGS)
    return float(bool(match) and once and all(part.strip(" \t\r\n") for part in match.groups()))


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("<think>1 and 1</think><answer>2</answer>", 1),
        ("\n<think>a</think>\n <answer> 2 </answer>\n", 1),
        ("<think>a</think><answer>2</answer>.", 0),
        ("so <think>a</think><answer>2</answer>", 0),
        ("<think>a</think> or <answer>2</answer>", 0),
        ("<think>a</think><answer>2</answer><answer>3</answer>", 0),
        ("<think>a<think>b</think></think><answer>2</answer>", 0),
        ("<answer>2</answer><think>a</think>", 0),
        ("<think>a<answer>2</answer></think>", 0),
        ("<think></think><answer>2</answer>", 0),
        ("<think>a</think><answer> </answer>", 0),
        ("<think>a</think><answer>2", 0),
        ("<think>a", 0),
        ("", 0),
    ],
)
def test_format_by_hand(text: str, score: int) -> None:
    assert value(rewards.format(), responses([text])) == [score]
    assert reads_well(text) == score


class Reasoning(Task):
    """Prompts like those of a chat template that begins the reasoning itself."""

    style = "boxed"

    def problems(self) -> list[Problem]:
        return [Problem("1+1=<think>\n", "2", split="train"), Problem("2+2=", "4", split="train")]


def test_a_think_tag_that_ends_the_prompt_begins_the_response() -> None:
    bank = ProblemBank.build(Reasoning(), VOCAB)
    assert bank.begun_reasoning().tolist() == [8, 0]  # type: ignore[union-attr]
    judge = Judge(bank, compose({"correctness": 1.0, "format": 0.1}), max_new_tokens=80)
    texts = [
        "1 and 1</think><answer>\\boxed{2}</answer>",
        "perhaps \\boxed{2}, perhaps not",  # still in its reasoning
        "<think>a</think><answer>\\boxed{2}</answer>",
        bank.response_texts[0],
    ]
    for problem, verdicts, formats in (
        (0, [Verdict.CORRECT, Verdict.MISSING, Verdict.CORRECT, Verdict.CORRECT], [1, 0, 0, 0]),
        (1, [Verdict.WRONG, Verdict.WRONG, Verdict.WRONG, Verdict.WRONG], [0, 0, 1, 0]),
    ):
        start = int(bank.prompt_length[problem])
        prompt = bank.prompts[problem, :start].tolist()
        rows = [[*prompt, *VOCAB.encode(text), VOCAB.eos_id] for text in texts]
        width = max(map(len, rows))
        tokens = torch.tensor([row + [VOCAB.pad_id] * (width - len(row)) for row in rows])
        many = torch.ones(len(rows), dtype=torch.int64)
        judged = judge(
            tokens, many * start, torch.tensor([len(row) for row in rows]), many * problem, many > 0
        )
        assert judged.verdict.tolist() == verdicts
        assert judged.parts[:, 1].tolist() == formats


PIECES = st.sampled_from([*TAGS, " ", "\n", "a", "2", "<", ">", "/", "think", "answer>", "</"])


@given(st.lists(st.lists(PIECES, max_size=9).map("".join), min_size=1, max_size=6))
@settings(max_examples=150, deadline=None)
def test_format_against_an_independent_reader(texts: list[str]) -> None:
    assert value(rewards.format(), responses(texts)) == [reads_well(text) for text in texts]


@pytest.mark.parametrize("name", sorted(rewards.BUILT_IN))
def test_built_in_components_never_look_at_data(name: str) -> None:
    component = rewards.BUILT_IN[name]()
    seen = responses(["<think>a</think><answer>2</answer>", "7"], [0, 1])
    expected = component.function(seen)

    def call(tokens: Tensor, start: Tensor, length: Tensor, verdict: Tensor) -> Tensor:
        problem = TensorDict({}, batch_size=[2])
        return component.function(Responses(tokens, start, length, verdict, problem, SPELLING, 40))

    tensors = (seen.tokens, seen.start, seen.length, seen.verdict)
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*tensors), expected)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        shape = call(*(mode.from_tensor(tensor) for tensor in tensors)).shape
    assert shape == expected.shape


def test_the_sum_weighs_each_component() -> None:
    seen = responses(["<think>a</think><answer>2</answer>", "7"], [0, 1])
    chosen = compose({"correctness": 1.0, "format": 0.25})
    parts = chosen.parts(seen)
    assert parts.tolist() == [[1.0, 1.0], [0.0, 0.0]]
    assert chosen.total(parts).tolist() == [1.25, 0.0]
    assert chosen.names == ("correctness", "format")
    assert chosen.bounds == (0.0, 1.25)


@given(
    st.lists(
        st.sampled_from(["<think>a</think><answer>2</answer>", "2", "a" * 39, "", "<answer>2"]),
        min_size=2,
        max_size=8,
    ),
    st.tuples(*[st.floats(0, 1)] * 3),
)
@settings(max_examples=60, deadline=None)
def test_no_wrong_answer_outscores_a_right_one(texts: list[str], weights: tuple[float, float, float]) -> None:
    others = dict(zip(("format", "overlong", "length"), weights, strict=True))
    try:
        chosen = compose({"correctness": 1.0, **others})
    except ValueError:  # refused; the weights would have to say so
        assert sum(weights) >= 1
        return
    half = len(texts) // 2
    seen = responses(texts, [int(Verdict.CORRECT)] * half + [int(Verdict.WRONG)] * (len(texts) - half))
    earned = chosen.total(chosen.parts(seen))
    assert chosen.margin > 0
    assert float(earned[:half].min()) >= float(earned[half:].max()) + chosen.margin - 1e-5


def test_weights_that_let_wrong_answers_win_must_say_so() -> None:
    with pytest.raises(ValueError, match="a wrong answer can earn as much as a right one"):
        compose({"correctness": 1.0, "overlong": 0.9, "format": 0.1})
    assert compose({"correctness": 1.0, "overlong": 1.0}, allow_outscoring=True).margin == 0.0


def test_bad_rewards_are_named() -> None:
    with pytest.raises(ValueError, match=r"unknown reward 'corectness'; known: correctness, format"):
        compose({"corectness": 1.0})
    with pytest.raises(ValueError, match="cannot import 'no_such_module'"):
        compose({"no_such_module:fn": 1.0})
    with pytest.raises(ValueError, match="no rewards"):
        compose([])
    with pytest.raises(ValueError, match="a name of its own"):
        compose(["length", "length"])
    with pytest.raises(TypeError, match="a reward is a name"):
        compose([3])
    with pytest.raises(ValueError, match="must be a number"):
        compose({"length": "much"})  # type: ignore[dict-item]


def even_length(tokens: Tensor, problem: TensorDict) -> Tensor:
    return ((problem[keys.LENGTH] - problem[keys.PROMPT_LENGTH]) % 2 == 0).float()


def wrong_shape(tokens: Tensor, problem: TensorDict) -> Tensor:
    return tokens.float()


def brevity(completions: list[str], **columns: object) -> list[float]:
    """A function with TRL's signature."""
    return [-float(len(text)) for text in completions]


def play(env: atrl_envs.VerifiableEnv, texts: list[str]) -> TensorDict:
    """Answer the first problems with the texts; what the step returned."""
    state = env.reset()
    block = torch.full((env.num_envs, env.block_size), env.vocab.pad_id)
    for row, text in enumerate(texts):
        ids = [*env.vocab.encode(text), env.vocab.eos_id][: env.block_size]
        block[row, : len(ids)] = torch.tensor(ids)
    return env.step(state.set(keys.ACTION, block))[keys.NEXT]


def make(**options: object) -> atrl_envs.VerifiableEnv:
    return atrl_envs.make(
        "atrl/Addition-v0", num_envs=2, block_size=8, max_new_tokens=8, shuffle=False, bank_size=20, **options
    )


def test_an_env_pays_the_sum_and_shows_the_parts() -> None:
    env = make(
        rewards=["correctness", Reward("even", lambda r: even_length(r.tokens, r.problem), 0.5, (0, 1))]
    )
    gold = env.bank.answer_texts[0]
    after = play(env, [gold, gold + "0" * (len(gold) % 2)])
    even = [float((len(gold) + 1) % 2 == 0), float((len(gold) + len(gold) % 2 + 1) % 2 == 0)]
    assert after[keys.REWARD_PARTS].tolist() == [[1.0, even[0]], [float(len(gold) % 2 == 0), even[1]]]
    assert after[keys.REWARD][0].item() == 1.0 + 0.5 * even[0]
    assert after[keys.SCORED].all()
    assert (after[keys.TICKET] == -1).all()


def test_a_callable_of_the_wrong_shape_is_named() -> None:
    with pytest.raises(ValueError, match="reward 'wrong_shape' must return a tensor"):
        play(make(rewards=["correctness", wrong_shape]), ["1", "2"])


def test_a_reward_on_texts_runs_on_the_host() -> None:
    env = make(rewards=["correctness", rewards.texts(f"{__name__}:brevity", 0.01)])
    try:
        after = play(env, ["123", "12345"])
        assert after[keys.REWARD_PARTS][:, 1].tolist() == [-3.0, -5.0]
        assert after[keys.SCORED].all()
        assert env.pending == 0
    finally:
        env.close()


def test_deferred_rewards_arrive_by_ticket() -> None:
    env = make(rewards=["correctness", rewards.texts(f"{__name__}:brevity", 0.01)])
    env.defer = True
    try:
        after = play(env, [env.bank.answer_texts[0], "12345"])
        assert sorted(after[keys.TICKET].flatten().tolist()) == [0, 1]
        found: dict[int, tuple[float, int]] = {}
        while env.pending:
            settled = env.settled(wait=1.0)
            for row in settled if settled is not None else ():
                found[int(row[keys.TICKET])] = (float(row[keys.REWARD]), int(row[keys.VERDICT]))
        gold = len(env.bank.answer_texts[0])
        assert found[0] == (pytest.approx(1.0 - 0.01 * gold), int(Verdict.CORRECT))
        assert found[1] == (pytest.approx(-0.05), int(Verdict.WRONG))
    finally:
        env.close()
