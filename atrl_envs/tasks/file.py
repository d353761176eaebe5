"""Problems from a file of your own: a JSONL line {"prompt": "7*6=", "answer": "42"}, or a row of CSV or Parquet."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from atrl_envs.task import Problem, Task
from atrl_envs.tasks.sources import check_source, problems_of
from atrl_envs.tasks.tables import text_of

SAMPLE = str(Path(__file__).with_name("sample.jsonl"))


class File(Task):
    """Prompts and answers from a JSONL, JSON, CSV, TSV or Parquet file, a folder of such files, or `datasets`.

    Example: with the line {"prompt": "Ann has 3 apples and buys 4 more. How many now? ", "answer": "7"} the
        response "7" and its end pay 1.0, anything else pays 0.

    Description: every line or row is a problem. The splits are made by a hash of the prompt, unless the source has a
        train and a test part of its own (train* and test* in a folder, the splits of a data set) or `test_path` names
        the tests. Repeated prompts count once; the same prompt with another answer is an error.
    Action: a block of tokens. Observation: the prompt and the response so far.
    Reward: 1.0 at the end of a correct response, else 0. The style is `plain` unless `make(..., style=)` says
        otherwise: boxed, gsm8k_hash, answer_tag, last_number.
    Start: the prompt. End: end of sequence (terminated) or the length limit (truncated; 64 tokens unless
        `make(..., max_new_tokens=)` says otherwise).
    Arguments: path (a small sample that comes with the package): a file, a folder, or hub:NAME[:CONFIG][@SPLIT];
        test_path (""): likewise, for tests; prompt_field ("prompt"), answer_field ("answer"), response_field (""): a
        field of worked-out gold responses for the warm start, if there is one.
    Versions: v0.
    """

    path: str = SAMPLE
    prompt_field: str = "prompt"
    answer_field: str = "answer"
    response_field: str = ""
    test_path: str = ""

    def __post_init__(self) -> None:
        check_source(self.path, self.test_path)

    def problems(self) -> list[Problem]:
        """All problems in the order of the source; ValueError with file and line for anything malformed."""
        return self._problems

    @cached_property
    def _problems(self) -> list[Problem]:
        return problems_of(self.path, self.test_path, self._problem)

    def _problem(self, where: str, record: dict[str, Any]) -> Problem:
        prompt = text_of(where, record, self.prompt_field, "prompt_field")
        answer = text_of(where, record, self.answer_field, "answer_field")
        response = (
            text_of(where, record, self.response_field, "response_field") if self.response_field else ""
        )
        return Problem(prompt, answer, response, source=where)
