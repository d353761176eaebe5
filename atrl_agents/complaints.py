"""Complaints to the person who runs us: what was got, what is wrong with it, what to do; shown without traceback.

raise ConfigError("got --steps -3; it must be at least 0; give --steps 0 or more")
with bad_input():
    env = atrl_envs.make(id, path="sums.csv")       # a missing field in line 7 is a ConfigError
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator

SIZES = (
    "--prompts-per-batch, --samples-per-prompt, --env.num-envs, --env.block-size, --env.max-new-tokens, "
    "--warmup.batch-size, or the model's"
)
PASS_SIZES = (
    "--micro-batch-tokens (the tokens of one forward and backward pass), or add --gradient-checkpointing, or train an "
    "adapter by --lora.r"
)


class ConfigError(ValueError):
    """A setting or an input that cannot work; the command line prints it and exits with code 2."""


def near(name: str, names: Iterable[str]) -> str:
    """The names most like `name`, or all of them when none is like it, for error messages."""
    names = sorted(names)
    return ", ".join(difflib.get_close_matches(name, names, n=3, cutoff=0.5) or names)


@contextlib.contextmanager
def bad_input() -> Iterator[None]:
    """Turn what atrl_envs complains of (ids, files, answers that cannot be spelled) into ConfigError.

    An error raised in somebody's own task passes as it is: its author needs the traceback.
    """
    try:
        yield
    except (ValueError, OSError) as error:
        if isinstance(error, ConfigError) or not _raised_by(error, "atrl_envs"):
            raise
        raise ConfigError(str(error)) from error


@contextlib.contextmanager
def enough_memory(smaller: str = SIZES) -> Iterator[None]:
    """Turn an allocation that fails into ConfigError: a run's sizes are what asks for memory. `smaller`: which ones."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        said = str(error)
        if (
            not isinstance(error, MemoryError)
            and "allocate memory" not in said
            and "not enough memory" not in said
            and "out of memory" not in said
        ):
            raise
        size = said.partition("tried to allocate ")[2].partition(" bytes")[0]
        asked = f" ({int(size) / 2**30:,.1f} GiB at once)" if size.isdigit() else ""
        raise ConfigError(
            f"got sizes that need more memory than there is{asked}; give smaller ones: {smaller}"
        ) from error


def raised_in(error: BaseException, modules: Iterable[str]) -> bool:
    """Whether code of one of these modules was running when the error was raised."""
    names, trace = set(modules), error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") in names:
            return True
        trace = trace.tb_next
    return False


def _raised_by(error: BaseException, package: str) -> bool:
    """Whether the innermost Python frame of the error is code of `package`."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    return name == package or name.startswith(f"{package}.")
