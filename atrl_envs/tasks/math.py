"""Competition problems as MATH writes them: {"problem": "...", "solution": "... \\boxed{4}", "level": "Level 3"}."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import Any

from atrl_envs.task import Problem, Task
from atrl_envs.tasks.sources import check_source, problems_of
from atrl_envs.tasks.tables import text_of
from atrl_envs.tasks.template import check_template, filled
from atrl_envs.tasks.worked import Worked
from atrl_envs.verify.formulas.excerpt import excerpt

SAMPLE = str(Path(__file__).with_name("math_sample.jsonl"))
_SUBJECTS = ("type", "subject")


class MATH(Task):
    """Competition problems with solutions in LaTeX, in the form of MATH (arXiv:2103.03874).

    Example: prompt "What is the sum of the roots of $x^2-7x+10=0$?\\n", answer "7", gold response "By Vieta's
        formulas the sum is $\\boxed{7}$."

    Description: records with the fields `problem`, `solution`, and if there are any `level` ("Level 3", or 3) and
        `type` or `subject`, from JSONL, JSON, CSV, Parquet, a folder of such files, or `datasets`. The gold answer is
        what stands in the last box of the solution, or in the field `answer` where there is no box. Answers that are no
        numbers, such as $2\\sqrt{3}$ or $(1,2)$, need `make(..., fallback=True)`, the default. The splits are made by a
        hash of the prompt, unless the source has a train and a test part of its own (train* and test* in a folder, the
        splits of a data set) or `test_path` names the tests. Difficulty: the level, 0 where it is not known.
    Action: a block of tokens. Observation: the prompt and the response so far.
    Reward: 1.0 at the end of a correct response, else 0. The style is `boxed`: the answer stands in the last box.
    Start: the prompt. End: end of sequence (terminated) or the length limit (truncated).
    Arguments: path (40 problems of our own that come with the package): a file, a folder, or hub:NAME[:CONFIG][@SPLIT];
        test_path (""): likewise, for tests; subject (""): only problems of these subjects, as in "algebra, geometry";
        template ("{}\\n"): the prompt, with {} for the problem.
    Versions: v0.
    """

    style = "boxed"

    path: str = SAMPLE
    test_path: str = ""
    subject: str = ""
    template: str = "{}\n"

    def __post_init__(self) -> None:
        check_template(self.template)
        check_source(self.path, self.test_path)

    def problems(self) -> list[Problem]:
        """All problems in the order of the source; ValueError with file and line for anything malformed."""
        return self._problems

    @cached_property
    def _problems(self) -> list[Problem]:
        subjects: dict[str, str] = {}

        def state(where: str, record: dict[str, Any]) -> Problem:
            problem = self._problem(where, record)
            subjects[problem.prompt] = next((str(record[name]) for name in _SUBJECTS if record.get(name)), "")
            return problem

        found = problems_of(self.path, self.test_path, state, keep_first=True)
        wanted = {_plain(name): name.strip() for name in self.subject.split(",") if name.strip()}
        known = {_plain(name): name for name in sorted(set(subjects.values())) if name}
        if unknown := [name for plain, name in wanted.items() if plain not in known]:
            raise ValueError(
                f"{self.path}: no problem of subject {', '.join(unknown)}; it has {', '.join(known.values()) or 'none'}"
            )
        return [p for p in found if not wanted or _plain(subjects[p.prompt]) in wanted]

    def _problem(self, where: str, record: dict[str, Any]) -> Problem:
        question = text_of(where, record, "problem").strip()  # not a key
        steps = text_of(where, record, "solution").strip() if record.get("solution") else ""
        boxed = excerpt(steps, "boxed")
        if boxed is None and "answer" not in record:
            raise ValueError(f"{where}: no \\boxed{{}} in 'solution', and no field 'answer'")
        answer = text_of(where, record, "answer") if boxed is None else boxed
        if not answer.strip():
            raise ValueError(f"{where}: the box in 'solution' is empty")
        return Worked(
            filled(self.template, question),
            answer.strip(),
            source=where,
            difficulty=_level(record.get("level")),
            steps=steps,
            marked="boxed" if f"{{{boxed}}}" in steps else "",
        )


def _level(value: Any) -> int:
    """3 for "Level 3" and 3; 0 for what has no number ("Level ?")."""
    found = re.search(r"\d+", str(value))
    return int(found[0]) if found else 0


def _plain(subject: str) -> str:
    """One spelling of a subject: counting_and_probability is Counting & Probability."""
    return re.sub(r"[^a-z0-9]", "", subject.lower().replace("&", "and"))
