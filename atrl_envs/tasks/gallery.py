"""A worked example of every task that comes with the package, kept in GALLERY.md beside this file.

    python -m atrl_envs.tasks.gallery          # writes it again

Everything is drawn at seed 0 with the default parameters, so the same code writes the same file.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch

from atrl_envs.bank import collect_problems
from atrl_envs.registry import TaskSpec, get_spec, list_envs
from atrl_envs.task import Problem, Task, styled_answer
from atrl_envs.verify import Verdict
from atrl_envs.vocab import Vocab

PATH = Path(__file__).with_name("GALLERY.md")
_DRAWN = 200
_HEAD = """# Gallery

Every task that comes with the package: its parameters with their defaults, an easy and a hard problem with the gold
response, and what the verifier says. `\\n` is a new line. Written by `python -m atrl_envs.tasks.gallery`. The data sets
of reasoning-gym are not among them; `atrl envs reasoning_gym` lists those.
"""


def gallery() -> str:
    """The text of GALLERY.md."""
    vocab = Vocab.characters()
    ours = [id for id in list_envs() if id.startswith("atrl/")]
    return "\n".join([_HEAD, *(_entry(get_spec(id), vocab) for id in ours)])


def _entry(spec: TaskSpec, vocab: Vocab) -> str:
    cls = spec.task_class()
    style = spec.style or cls.style
    shown = ", ".join(f"{name}={_default(value)}" for name, value in spec.parameters().items())
    lines = [
        f"## {spec.id}",
        "",
        (cls.__doc__ or "").strip().splitlines()[0],
        "",
        f"- Parameters: {shown or 'none'}. Style: {style}.",
    ]
    if dataclasses.MISSING not in spec.parameters().values():
        lines += _examples(spec.build_task(), style, vocab)
    return "\n".join([*lines, ""])


def _examples(task: Task, style: str, vocab: Vocab) -> list[str]:
    problems = collect_problems(task, split="train", seed=0, size=_DRAWN)
    order = sorted(problems, key=lambda problem: (problem.difficulty, len(problem.prompt)))
    easy, hard = order[0], order[-1]
    lines = [
        f"- {name} (difficulty {problem.difficulty}): {_code(problem.prompt)} {_code(problem.gold_response(style))}"
        for name, problem in (("Easy", easy), ("Hard", hard))
    ]
    right, wrong = hard.gold_response(style), styled_answer(task.corrupt(hard.answer), style)
    verdicts = _verdicts(task, style, vocab, hard, [right, wrong])
    told = f"the gold response is {verdicts[0]}, {_code(wrong)} is {verdicts[1]}"
    return [*lines, f"- To the hard one: {told}."]


def _verdicts(task: Task, style: str, vocab: Vocab, problem: Problem, responses: list[str]) -> list[str]:
    verifier = task.verifier(vocab, style)
    rows = [[*ids, vocab.eos_id] for ids in vocab.encode_batch(responses)]
    width = max(map(len, rows))
    tokens = torch.tensor([row + [vocab.pad_id] * (width - len(row)) for row in rows])
    answers = verifier.encode_answers([problem.answer] * len(rows))
    found = verifier(tokens, torch.zeros(len(rows), dtype=torch.int64), answers)
    return [Verdict(verdict).name for verdict in found.tolist()]


def _code(text: str) -> str:
    return "`" + text.replace("\n", "\\n") + "`"


def _default(value: Any) -> str:
    """A default, without the folder where the package happens to lie."""
    if value is dataclasses.MISSING:
        return "(to be given)"
    if isinstance(value, str) and Path(value).is_relative_to(PATH.parent):
        return repr(str(Path(value).relative_to(PATH.parent)))
    return repr(value)


if __name__ == "__main__":
    PATH.write_text(gallery(), encoding="utf-8")
    print(f"wrote {PATH}")
