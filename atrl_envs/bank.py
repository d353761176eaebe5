"""The problems of one split as tensors: reset becomes an index-select.

    bank = ProblemBank.build(task, vocab, split="train", seed=0)
    bank.prompts[i, : bank.prompt_length[i]]          # token ids of problem i
    bank.prompt_texts[i], bank.answer_texts[i]        # the same for people

A problem belongs to a split by a hash of its prompt, so splits are disjoint however small the space is. A bank
never holds the same prompt twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from atrl_envs import keys
from atrl_envs.options import SPLITS, whole
from atrl_envs.streams import generator, mix, permuted_index, split_of
from atrl_envs.task import Problem, Task, styled_answer
from atrl_envs.vocab import SpellingError, Vocab

DRAWN_SIZE = {"train": 10_000, "test": 1_000}
TEST_FRACTION = 0.1
THINK = "<think>"
_TAIL = 16  # tokens at the end of a prompt among which a `<think>` is looked for


@dataclass(frozen=True, eq=False)
class ProblemBank:
    """M problems of one task and split.

    data: TensorDict [M] of `prompts` [M, P] int64 (right-padded), `prompt_length`, `difficulty` [M] int64 and `answers`
    (what the verifier encoded). The texts are lists of M strings on the host. verifier: the judge that encoded the
    answers. problem_data: what host scorers need besides, for each problem; empty where no problem has any.
    """

    data: TensorDict
    prompt_texts: list[str]
    answer_texts: list[str]
    response_texts: list[str]
    vocab: Vocab
    style: str
    split: str
    verifier: Any
    problem_data: list[Any] = field(default_factory=list)

    @classmethod
    def build(
        cls,
        task: Task,
        vocab: Vocab,
        *,
        split: str = "train",
        seed: int = 0,
        style: str | None = None,
        size: int | None = None,
        test_fraction: float = TEST_FRACTION,
        max_prompt_length: int | None = None,
        fallback: bool = False,
        chat: bool = False,
        system: str = "",
    ) -> ProblemBank:
        """Draw or list the split's problems, and tokenise them.

        size: at most so many problems; None: all of a task that lists its problems, else 10,000 (test: 1,000).
        fallback: keep golds that only the host can judge. chat: wrap each prompt by the tokenizer's chat template, with
        a system message if `system` is given.
        ValueError, naming the problem, for a prompt longer than `max_prompt_length` tokens, and for a prompt,
        answer or response that the vocabulary cannot spell.
        """
        if max_prompt_length is not None:
            max_prompt_length = whole("max_prompt_length", max_prompt_length)
        problems = collect_problems(task, split=split, seed=seed, size=size, test_fraction=test_fraction)
        style = style or task.style
        verifier = task.verifier(vocab, style)
        if fallback and hasattr(verifier, "with_fallback"):
            verifier = verifier.with_fallback()
        texts = [p.prompt for p in problems]
        if chat or system:
            from atrl_envs.chat import chat_prompt

            texts = [chat_prompt(vocab, text, system) for text in texts]
        prompts = _spell(vocab, "prompt", texts, problems)
        _spell(vocab, "answer", [p.answer for p in problems], problems)
        # Where the prompt has begun the reasoning, an answer stands behind its end.
        ends = ["</think>" if style != "plain" and text.rstrip().endswith(THINK) else "" for text in texts]
        responses = [end + p.gold_response(style) for end, p in zip(ends, problems, strict=True)]
        _spell(vocab, "response", responses, problems)
        answers = [p.answer for p in problems]
        tokens, lengths = _pad(prompts, vocab.pad_id, max_prompt_length, problems)
        encoded = _encode_answers(verifier, answers)
        columns = {"prompts": tokens, keys.PROMPT_LENGTH: lengths, "answers": encoded}
        columns["difficulty"] = torch.tensor([p.difficulty for p in problems])
        data = TensorDict(columns, batch_size=[len(problems)])
        extra = [p.data for p in problems] if any(p.data is not None for p in problems) else []
        return cls(data, texts, answers, responses, vocab, style, split, verifier, extra)

    @property
    def prompts(self) -> Tensor:
        return self.data["prompts"]

    @property
    def prompt_length(self) -> Tensor:
        return self.data[keys.PROMPT_LENGTH]

    @property
    def difficulty(self) -> Tensor:
        return self.data["difficulty"]

    def data_of(self, problem: int) -> Any:
        """What the task keeps for host scorers of this problem, or None."""
        return self.problem_data[problem] if self.problem_data else None

    def begun_reasoning(self) -> Tensor | None:
        """[M] int64: tokens at the end of each prompt that hold the `<think>` with which the response's reasoning has
        begun, 0 where it has not; None where no prompt ends so, as only some chat templates do.
        """
        if not any(self.begins_reasoning(problem) for problem in range(len(self))):
            return None
        known: dict[tuple[int, ...], int] = {}
        rows, lengths = self.prompts.cpu(), self.prompt_length.tolist()
        counts = []
        for problem, length in enumerate(lengths):
            tail = tuple(rows[problem, max(0, length - _TAIL) : length].tolist())
            if tail not in known:
                known[tail] = next(
                    (k for k in range(1, len(tail) + 1) if THINK in self.vocab.decode(tail[-k:])), 0
                )
            counts.append(known[tail] if self.begins_reasoning(problem) else 0)
        return torch.tensor(counts, device=self.prompts.device)

    def begins_reasoning(self, problem: int) -> bool:
        """Whether the prompt ends in `<think>`."""
        return self.prompt_texts[problem].rstrip().endswith(THINK)

    @property
    def answers(self) -> Any:
        return self.data["answers"]

    @property
    def max_prompt_length(self) -> int:
        """Width P of the prompts."""
        return self.prompts.shape[1]

    def __len__(self) -> int:
        return len(self.prompt_texts)

    def __repr__(self) -> str:
        return (
            f"ProblemBank({len(self)} problems, split={self.split!r}, style={self.style!r}, {self.vocab!r})"
        )

    def gold_sequences(self, problems: Iterable[int] | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Prompt, gold response and EOS of these problems (None: of all): tokens [M, S], prompt_length, length [M]."""
        vocab, chosen = self.vocab, range(len(self)) if problems is None else list(problems)
        prompts = [vocab.encode(self.prompt_texts[problem]) for problem in chosen]
        responses = [[*vocab.encode(self.response_texts[problem]), vocab.eos_id] for problem in chosen]
        start = torch.tensor([len(ids) for ids in prompts])
        length = start + torch.tensor([len(ids) for ids in responses])
        tokens = torch.full((len(prompts), int(length.max())), vocab.pad_id, dtype=torch.int64)
        for row, ids in enumerate(p + r for p, r in zip(prompts, responses, strict=True)):
            tokens[row, : len(ids)] = torch.tensor(ids)
        return tokens, start, length

    def longest_response(self) -> int:
        """Tokens in the longest gold response, with its end of sequence."""
        return 1 + max(map(len, self.vocab.encode_batch(list(set(self.response_texts)))))

    def longest_answer(self) -> tuple[int, int]:
        """Tokens in the longest answer in the bank's style, without end of sequence; and its problem."""
        styled = self.vocab.encode_batch([styled_answer(answer, self.style) for answer in self.answer_texts])
        return max((len(ids), index) for index, ids in enumerate(styled))

    def to(self, device: torch.device | str) -> ProblemBank:
        """The bank with its tensors, and its verifier where that has a device, on `device`."""
        verifier = self.verifier.to(device) if hasattr(self.verifier, "to") else self.verifier
        return replace(self, data=self.data.to(device), verifier=verifier)

    def share_memory(self) -> ProblemBank:
        """Move the tensors to shared memory, so that worker processes read the same pages."""
        self.data.share_memory_()
        return self


def collect_problems(
    task: Task, *, split: str, seed: int, size: int | None = None, test_fraction: float = TEST_FRACTION
) -> list[Problem]:
    """Distinct problems of a split, in a fixed order; ValueError where there is none."""
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    seed = whole("seed", seed)
    if isinstance(test_fraction, bool) or not isinstance(test_fraction, (int, float)):
        raise TypeError(
            f"test_fraction must be float, got {test_fraction!r} ({type(test_fraction).__name__})"
        )
    if not 0 <= test_fraction <= 1:
        raise ValueError(f"test_fraction must lie in [0, 1], got {test_fraction}")
    if size is not None and whole("bank_size", size) < 1:
        raise ValueError(f"bank_size must be at least 1, got {size}")
    listed = task.problems()
    if listed is None:
        wanted = DRAWN_SIZE[split] if size is None else size
        found = list(_draw(task, split, seed, wanted, test_fraction))
    else:
        distinct: dict[str, Problem] = {}
        for problem in map(partial(_checked, task), listed):
            if (problem.split or split_of(problem.prompt, test_fraction)) == split:
                distinct.setdefault(problem.prompt, problem)
        found = list(distinct.values())
        if size is not None and size < len(found):
            chosen = permuted_index(mix(seed, 3), torch.arange(size), len(found))
            found = [found[i] for i in chosen.tolist()]
    if not found:
        raise ValueError(
            f"{type(task).__name__} has no problem in the split {split!r} (test_fraction={test_fraction}); "
            "problems belong to a split by a hash of their prompt: let the task state more problems (a wider range, a "
            "longer file), or give another test_fraction"
        )
    return found


def _checked(task: Task, problem: Any) -> Problem:
    if not isinstance(problem, Problem):
        raise TypeError(
            f"{type(task).__name__} gave {problem!r} ({type(problem).__name__}) for a problem; its `problem` returns, "
            "and its `problems` yields, atrl_envs.Problem(prompt=..., answer=...)"
        )
    return problem


def _draw(task: Task, split: str, seed: int, wanted: int, test_fraction: float) -> Iterator[Problem]:
    """Draw until there are enough, or until nothing new comes: then the space is as good as exhausted."""
    seen: set[str] = set()
    misses, index = 0, 0
    while len(seen) < wanted and misses < max(1_000, min(20 * len(seen), 20_000)):
        problem = _checked(task, task.problem(generator(seed, split, index)))
        index += 1
        if problem.prompt in seen or split_of(problem.prompt, test_fraction) != split:
            misses += 1
            continue
        misses = 0
        seen.add(problem.prompt)
        yield problem


def _spell(vocab: Vocab, role: str, texts: list[str], problems: list[Problem]) -> list[list[int]]:
    distinct = list(dict.fromkeys(texts))
    try:
        ids = dict(zip(distinct, vocab.encode_batch(distinct), strict=True))
        return [ids[text] for text in texts]
    except SpellingError as error:
        index = texts.index(error.text)
        raise ValueError(f"{_name(problems, index)}: the {role} cannot be tokenised: {error}") from error


def _encode_answers(verifier: Any, answers: list[str]) -> Any:
    """What the verifier makes of each answer; equal answers, of which sums have many, are encoded once."""
    row = {answer: index for index, answer in enumerate(dict.fromkeys(answers))}
    return verifier.encode_answers(list(row))[torch.tensor([row[answer] for answer in answers])]


def _pad(
    rows: list[list[int]], pad_id: int, limit: int | None, problems: list[Problem]
) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
    longest = int(lengths.max())
    if int(lengths.min()) == 0:
        raise ValueError(
            f"{_name(problems, int(lengths.argmin()))}: the prompt is empty; write at least one token"
        )
    if limit is not None and longest > limit:
        index = int(lengths.argmax())
        raise ValueError(
            f"{_name(problems, index)}: the prompt has {longest} tokens, the limit is max_prompt_length={limit}; "
            f"shorten it or pass max_prompt_length={longest}"
        )
    width = longest if limit is None else limit
    padded = [row + [pad_id] * (width - len(row)) for row in rows]
    return torch.tensor(padded, dtype=torch.int64), lengths


def _name(problems: list[Problem], index: int) -> str:
    problem = problems[index]
    where = f" ({problem.source})" if problem.source else ""
    text = problem.prompt if len(problem.prompt) <= 60 else problem.prompt[:57] + "..."
    return f"problem {index}{where} {text!r} with answer {problem.answer!r}"
