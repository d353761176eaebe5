"""The command `atrl`: one word for what to do, flags for how; bad input ends in one message and exit code 2.

    atrl train --env.id atrl/Addition-v0 --mode async --steps 150 --out runs/mine
    atrl eval runs/mine --samples-per-prompt 8

What a command needs is imported inside it, so that help and complaints come at once.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version

from .complaints import ConfigError, near, raised_in

Command = Callable[[Sequence[str]], int]
UNHEARD = 141  # the shell's code for SIGPIPE


def main(words: Sequence[str] | None = None) -> int:
    """Run `atrl WORDS` (default: the command line) and return the exit code."""
    words = list(sys.argv[1:] if words is None else words)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what a terminal's encoding lacks is shown by its code
            stream.reconfigure(errors="backslashreplace")
    return _flushed(_told(words))


def _told(words: list[str]) -> int:
    """One command; what it raises for a person is told here."""
    try:
        return _run(words)
    except ConfigError as error:
        print(f"atrl: {error}", file=sys.stderr)
        return 2
    except SystemExit as stop:  # from tyro: 0 after --help, 2 after a flag that it refuses
        return stop.code if isinstance(stop.code, int) else 2
    except KeyboardInterrupt:
        print("atrl: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return UNHEARD


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(help_text())
        return 0
    if words[0] == "--version":
        print(f"atrl {version('atrl')}")
        return 0
    name, rest = words[0], words[1:]
    if name not in COMMANDS:
        raise ConfigError(
            f"got 'atrl {name}'; there is no such command; did you mean {near(name, COMMANDS)}?"
        )
    return COMMANDS[name](rest)


def _flushed(code: int) -> int:
    """The exit code, or UNHEARD where the reader of our output, such as `head`, has gone."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for Python's own flush at the exit
        return UNHEARD
    return code


def help_text() -> str:
    """What `atrl --help` prints: every command with the first line of its docstring."""
    width = max(map(len, COMMANDS))
    lines = [
        f"  {name:<{width}}  {(command.__doc__ or '').splitlines()[0]}" for name, command in COMMANDS.items()
    ]
    return "\n".join(
        [
            "usage: atrl COMMAND ...",
            "",
            "Train language models on verifiable math, asynchronously.",
            "",
            *lines,
            "",
            "`atrl COMMAND --help` lists its flags; `@file.toml` among them stands for the flags in that file.",
        ]
    )


def train(words: Sequence[str]) -> int:
    """Train a model: atrl train [grpo] [@file.toml] [--env.id ID] [--mode sync|async] ..."""
    from .arguments import train_config
    from .config_check import resolve

    config = resolve(train_config(words))
    from atrl_collectors import WorkerDied
    from atrl_collectors.samplers import WaitTimeout

    from .learner import Diverged
    from .train import train as run

    try:
        summary = run(config)
    except (
        WorkerDied,
        WaitTimeout,
        Diverged,
    ) as end:  # each names its cause, and the run has saved its state
        print(f"atrl: {end}", file=sys.stderr)
        return 1
    except OSError as error:
        if raised_in(error, (*config.env.modules, *(name.partition(":")[0] for name in config.env.rewards))):
            raise
        place = f"; {error.filename}" if error.filename else ""
        print(
            f"atrl: the run in {config.folder} stopped: {error.strerror or error}{place}; what was saved before is "
            "still there; make room or mend the folder, then go on with --resume",
            file=sys.stderr,
        )
        return 1
    return 130 if summary.get("outcome") == "interrupted" else 0


def evaluate(words: Sequence[str]) -> int:
    """Measure a run or a checkpoint on held-out problems: atrl eval RUN [--samples-per-prompt K] ..."""
    from .eval_command import main as run

    return run(words)


def export(words: Sequence[str]) -> int:
    """Write a run's model as a folder for others, with a model card: atrl export RUN --out DIR [--merge]"""
    from .export_command import main as run

    return run(words)


def play(words: Sequence[str]) -> int:
    """Answer a task's problems yourself and see the verdicts: atrl play ID"""
    from .play import main as run

    return run(words)


def envs(words: Sequence[str]) -> int:
    """List the registered environments: atrl envs [--import MODULE]"""
    from .envs_command import list_main as run

    return run(words)


def check(words: Sequence[str]) -> int:
    """Test an environment's contract: atrl check ID; or an engine's log-probabilities: atrl check --engine vllm ..."""
    if any(word.partition("=")[0] == "--engine" for word in words):
        from .engine_check_command import main as check_engine

        return check_engine(words)
    from .envs_command import check_main as run

    return run(words)


def new(words: Sequence[str]) -> int:
    """Write a small package with a task of your own: atrl new NAME"""
    from .new import main as run

    return run(words)


def plot(words: Sequence[str]) -> int:
    """Draw learning curves: atrl plot RUN [RUN ...] [--out FILE.png]"""
    from .plot import main as run

    return run(words)


def lab(words: Sequence[str]) -> int:
    """Measure what stale data does to each algorithm: atrl lab staleness [--algorithms ...] [--staleness ...]"""
    from .lab import main as run

    return run(list(words))


COMMANDS: dict[str, Command] = {
    "train": train,
    "eval": evaluate,
    "export": export,
    "play": play,
    "envs": envs,
    "check": check,
    "new": new,
    "plot": plot,
    "lab": lab,
}

if __name__ == "__main__":
    sys.exit(main())
