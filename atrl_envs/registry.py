"""The list of environments: an id names a task class and how to make an env of it.

    register("my/Doubling-v0", Doubling, max_new_tokens=6)
    env = make("my/Doubling-v0", num_envs=64, group_size=8, seed=0, limit=1000)   # limit: of the task
    env = make("my_package:my/Doubling-v0")                                       # imports my_package first
    maker = EnvMaker("my/Doubling-v0", num_envs=64)       # make later, elsewhere: picklable, maker() -> env

Registration also tells Gymnasium, so `gymnasium.make` and `gymnasium.make_vec` know the same ids.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import importlib.util
import inspect
import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from atrl_envs.options import EnvOptions
from atrl_envs.task import Task

if TYPE_CHECKING:
    from atrl_envs.env import VerifiableEnv


class UnknownEnvError(LookupError, ValueError):
    """An id that nothing was registered under; the message names near ids and what to import."""


@dataclass(frozen=True)
class TaskSpec:
    """What an id stands for.

    task: the class, or "module:Class" to import it when first needed. module: what to import to have the id.
    max_new_tokens: longest response in tokens; None: as long as the longest gold response and its end.
    max_prompt_length: longest prompt in tokens; None: no limit. style: None: the task's own.
    defaults: parameters of the task that differ from the class's own defaults.
    """

    id: str
    task: type[Task] | str
    module: str
    max_new_tokens: int | None = None
    max_prompt_length: int | None = None
    style: str | None = None
    defaults: dict[str, Any] = field(default_factory=dict)

    def task_class(self) -> type[Task]:
        """The task's class, imported where the registration named it by text."""
        if not isinstance(self.task, str):
            return self.task
        module, _, name = self.task.partition(":")
        return getattr(importlib.import_module(module), name)

    def parameters(self) -> dict[str, Any]:
        """Every parameter of the task with the value it has when `make` is not told otherwise."""
        return {**self.task_class().parameters(), **self.defaults}

    def build_task(self, **parameters: Any) -> Task:
        """The task with its parameters; TypeError for an unknown, missing or mistyped one."""
        cls = self.task_class()
        chosen = {**self.defaults, **parameters}
        missing = [n for n, v in cls.parameters().items() if v is dataclasses.MISSING and n not in chosen]
        cls.check_parameters(chosen)
        if missing:
            raise TypeError(f"{self.id} needs {', '.join(missing)}: make({self.id!r}, {missing[0]}=...)")
        return cls(**chosen)


_registry: dict[str, TaskSpec] = {}


def register(
    id: str,
    task: type[Task] | str,
    *,
    max_new_tokens: int | None = None,
    max_prompt_length: int | None = None,
    style: str | None = None,
    **defaults: Any,
) -> TaskSpec:
    """Give a task an id ("name-v0" or "space/name-v0") for `make`, `gymnasium.make` and the command line.

    task: a subclass of Task, or "module:Class". For the options see TaskSpec; what remains are parameters of the
    task. Registering the same class again replaces it; another class under a taken id is a ValueError.
    """
    if not isinstance(task, str):
        _check_class(id, task, defaults)
    module = sys._getframe(1).f_globals.get("__name__", "__main__")
    spec = TaskSpec(id, task, module, max_new_tokens, max_prompt_length, style, defaults)
    known = _registry.get(id)
    if known is not None and _name_of(known) != _name_of(spec):
        raise ValueError(
            f"{id!r} is already {_name_of(known)}, so it cannot also be {_name_of(spec)}; choose another id"
        )
    add(spec)
    return spec


def add(spec: TaskSpec) -> None:
    """Enter a spec here and in Gymnasium's registry (used where a spec arrives in another process)."""
    _registry[spec.id] = spec
    tell_gymnasium(spec.id, spec.module)


def tell_gymnasium(id: str, module: str) -> None:
    """Make `gymnasium.make` know an id; where that is still unknown here, `module` will be imported first."""
    import gymnasium

    gymnasium.registry.pop(id, None)  # replaced on purpose: no warning about it
    gymnasium.register(
        id=id,
        entry_point="atrl_envs.gym_env:TokenEnv",
        vector_entry_point="atrl_envs.gym_env:TokenVectorEnv",
        kwargs={"env_id": id, "module": module},
    )


def get_spec(id: str, module: str | None = None) -> TaskSpec:
    """The spec of an id; "package:id", or `module` for an unknown id, imports first.

    UnknownEnvError for an id that is not registered, TypeError for what is no text.
    """
    if not isinstance(id, str):
        raise TypeError(f"an id is a text like 'atrl/Addition-v0', got {id!r} ({type(id).__name__})")
    before, colon, name = id.rpartition(":")
    if colon:
        _import(before, id)
    elif id not in _registry and module not in (None, "__main__", "__mp_main__"):
        _import(str(module), id)
    if name not in _registry:
        from atrl_envs import discovery

        discovery.find(name)
    if name not in _registry:
        raise UnknownEnvError(_unknown_id(name))
    return _registry[name]


def list_envs() -> list[str]:
    """All ids that `make` takes, sorted: registered ones, those of installed distributions, and of families."""
    from atrl_envs import discovery

    return sorted({*discovery.known(), *_registry})  # in this order: the first may register some


def is_registered(id: str) -> bool:
    """Whether an id is registered already, without looking further."""
    return id in _registry


def make(id: str, **options: Any) -> VerifiableEnv:
    """A TorchRL environment of `num_envs` slots for a registered task.

    Options (defaults in brackets): num_envs [1] slots; group_size [1] attempts at each problem; block_size [1]
    tokens per step; split ["train"] or "test"; seed [0]; vocab [characters]; device ["cpu"]; max_new_tokens
    [registered]; worker [0] of num_workers [1] that share the stream of groups from start_group [0] on; shuffle
    [True]; bank [built], a ready ProblemBank; style, max_prompt_length [registered]; bank_size [10000, test 1000,
    or all of a finite task]; test_fraction [0.1]; rewards [correctness], see `atrl_envs.rewards`; allow_outscoring
    [False]; curriculum [None], True or a `Curriculum`; chat [False]: prompts through the tokenizer's chat template,
    after the text `system` [""]; fallback ["auto"]: processes of the host judge answers to golds that are no numbers,
    "always": whatever is UNDECIDED, or "never". All others are parameters of the task.
    """
    return EnvMaker(id, **options)()


class EnvMaker:
    """A recipe that makes the same environment anywhere: pickle it, send it, call it.

        maker = EnvMaker("atrl/Addition-v0", num_envs=64, group_size=8)
        second = maker.replace(worker=1, num_workers=2)
        env = second()

    It carries the task's class, so a process that never imported the user's module can still make the env.
    Options are those of `make`; an unknown id or option is reported here, not in the worker.
    """

    def __init__(self, id: str | TaskSpec, **options: Any) -> None:
        self.spec = id if isinstance(id, TaskSpec) else get_spec(id)
        self.options = options
        self.spec.task_class().check_parameters(self.task_parameters(), also=env_options())
        sizes = {field.name for field in dataclasses.fields(EnvOptions)} & set(options)
        EnvOptions(**{"max_new_tokens": 1, **{n: options[n] for n in sizes if options[n] is not None}})

    @property
    def id(self) -> str:
        return self.spec.id

    def replace(self, **options: Any) -> EnvMaker:
        """The same recipe with other options."""
        return EnvMaker(self.spec, **{**self.options, **options})

    def task_parameters(self) -> dict[str, Any]:
        """The options that belong to the task."""
        return {name: value for name, value in self.options.items() if name not in env_options()}

    def __call__(self) -> VerifiableEnv:
        from atrl_envs.env import make_env

        if self.spec.id not in _registry:
            add(self.spec)
        ours = {name: value for name, value in self.options.items() if name in env_options()}
        return make_env(self.spec, self.spec.build_task(**self.task_parameters()), **ours)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EnvMaker):
            return NotImplemented
        return (self.spec, self.options) == (other.spec, other.options)

    def __hash__(self) -> int:
        return hash((self.id, *sorted(self.options)))  # option values need not be hashable

    def __repr__(self) -> str:
        return f"EnvMaker({', '.join([repr(self.id), *(f'{k}={v!r}' for k, v in self.options.items())])})"


def env_options() -> tuple[str, ...]:
    """Names of the options of `make` that are not parameters of a task."""
    return _ENV_OPTIONS


_ENV_OPTIONS = (
    "num_envs", "group_size", "block_size", "split", "seed", "vocab", "device", "max_new_tokens", "worker",
    "num_workers", "start_group", "shuffle", "bank", "style", "max_prompt_length", "bank_size", "test_fraction",
    "fallback", "rewards", "allow_outscoring", "curriculum", "chat", "system",
)  # fmt: skip


def _check_class(id: str, task: type[Task], defaults: dict[str, Any]) -> None:
    if not (inspect.isclass(task) and issubclass(task, Task)):
        raise TypeError(f"register({id!r}, ...) wants a subclass of atrl_envs.Task, got {task!r}")
    if not task.is_concrete():
        raise TypeError(f"{task.__name__} must define problem(self, rng) or problems(self)")
    taken = sorted(set(task.parameters()) & set(_ENV_OPTIONS))
    if taken:
        raise TypeError(
            f"{task.__name__}: {', '.join(taken)} is an option of make; name the parameter otherwise"
        )
    task.check_parameters(defaults)


def _name_of(spec: TaskSpec) -> str:
    if isinstance(spec.task, str):
        return spec.task
    # A script's module has another name in a spawned process, where it is run again.
    module = spec.task.__module__.replace("__mp_main__", "__main__")
    return f"{module}:{spec.task.__qualname__}"


def _import(module: str, id: str) -> None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0] and error.name != module:
            raise  # the module is there; something that it imports is not
        raise UnknownEnvError(
            f"cannot import {module!r}, which should register {id.rpartition(':')[2]!r}; is it installed, or its "
            "folder on PYTHONPATH?"
        ) from error


def _bare(id: str) -> str:
    """What is between namespace and version, in lower case: `atrl/GSM8K-v0` and `gsm8k` are both gsm8k."""
    return re.sub(r"-v\d+$", "", id.rpartition("/")[2].lower())


def _unknown_id(id: str) -> str:
    from atrl_envs import discovery

    if why := discovery.failure(id):
        return f"no environment is registered as {id!r}: {why}"
    known = list_envs()
    same = [name for name in known if _bare(name) == _bare(id)]
    near = [*dict.fromkeys([*same, *difflib.get_close_matches(id, known, n=3, cutoff=0.5)])][:3]
    lines = [f"no environment is registered as {id!r}."]
    if near:
        places = {name: f" (import {spec.module})" for name, spec in _registry.items()}
        lines.append("Near: " + ", ".join(name + places.get(name, "") for name in near) + ".")
    else:
        lines.append(f"Registered: {', '.join(sorted(_registry))}.")
    package = id.partition("/")[0] if "/" in id else ""
    try:
        found = bool(package.isidentifier() and importlib.util.find_spec(package))
    except (ImportError, ValueError):
        found = False
    module = package if found and package != "atrl_envs" else "your_module"
    lines.append(f"If it is your own, import the module that registers it first, or write '{module}:{id}'.")
    return " ".join(lines)
