"""A reward function on texts as a job of the host pool, one response at a time.

job = TextReward("my_module:brevity")
pool.submit(job, {"prompts": "2+2=", "completions": "4", "completion_ids": [7], "answer": "4"})
"""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any


class TextReward:
    """Calls a function with TRL's signature; each column arrives as a list of one.

    Columns that the function has no parameter for are left out. None, its way of saying "not applicable", is 0. A name
    "module:function" is imported where the job runs, while it is loaded.
    ValueError: the function returned something else than one finite number.
    """

    def __init__(self, function: Callable[..., Any] | str) -> None:
        self.function = function

    def __setstate__(self, state: dict[str, Any]) -> None:
        function = state["function"]
        if isinstance(function, str):
            module, _, name = function.partition(":")
            function = getattr(importlib.import_module(module), name)
        self.function = function

    def __call__(self, columns: Mapping[str, Any]) -> float:
        function = self.function
        assert callable(function), "a name becomes a function when the job is loaded"
        parameters = inspect.signature(function).parameters
        takes_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
        wanted = {name: [value] for name, value in columns.items() if takes_all or name in parameters}
        returned = function(**wanted)
        try:
            (value,) = returned
            number = 0.0 if value is None else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(
                f"the reward must be a list of one finite number for one response, got {returned!r}"
            )
        return number
