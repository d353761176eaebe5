"""School word problems as GSM8K writes them: {"question": "...", "answer": "6*7=<<6*7=42>>42\\n#### 42"}."""

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

SAMPLE = str(Path(__file__).with_name("gsm8k_sample.jsonl"))
_ANNOTATION = re.compile(r"<<[^<>]*>>")
_GROUPED = re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?![\d,])")


class GSM8K(Task):
    """Word problems with worked-out answers, in the form of GSM8K (arXiv:2110.14168).

    Example: prompt "A crate holds 12 jars of plums. How many jars do 4 crates hold?\\n", answer "48", gold response
        "4 crates hold 4*12=48 jars.\\n#### 48".

    Description: records with the fields `question` and `answer`, from JSONL, JSON, CSV, Parquet, a folder of such
        files, or `datasets`. The answer ends in "#### 48": what stands there is the gold answer, without separators of
        thousands; what stands before it, without the calculator's notes <<4*12=48>>, is the gold response's steps.
        The splits are made by a hash of the prompt, unless the source has a train and a test part of its own (train*
        and test* in a folder, the splits of a data set) or `test_path` names the tests.
    Action: a block of tokens. Observation: the prompt and the response so far.
    Reward: 1.0 at the end of a correct response, else 0. Verification is exact; the style is `gsm8k_hash`: the answer
        stands after the last "####".
    Start: the prompt. End: end of sequence (terminated) or the length limit (truncated).
    Arguments: path (40 problems of our own that come with the package): a file, a folder, or hub:openai/gsm8k:main;
        test_path (""): likewise, for tests; template ("{}\\n"): the prompt, with {} for the question.
    Versions: v0.
    """

    style = "gsm8k_hash"

    path: str = SAMPLE
    test_path: str = ""
    template: str = "{}\n"

    def __post_init__(self) -> None:
        check_template(self.template)
        check_source(self.path, self.test_path)

    def problems(self) -> list[Problem]:
        """All problems in the order of the source; ValueError with file and line for anything malformed."""
        return self._problems

    @cached_property
    def _problems(self) -> list[Problem]:
        return problems_of(self.path, self.test_path, self._problem, keep_first=True)

    def _problem(self, where: str, record: dict[str, Any]) -> Problem:
        question = text_of(where, record, "question").strip()
        steps, mark, gold = text_of(where, record, "answer").rpartition("####")
        if not mark or not gold.strip():
            raise ValueError(
                f"{where}: 'answer' must end in '#### ' and the number, got ...{(steps + gold)[-40:]!r}"
            )
        steps = _ANNOTATION.sub("", steps).strip()
        answer = _GROUPED.sub(lambda match: match[0].replace(",", ""), gold.strip())
        return Worked(filled(self.template, question), answer, source=where, steps=steps)
