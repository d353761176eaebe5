"""Functions that travel: by name where a worker can import them, by value where it cannot.

name, code = describe(function)          # here; code is empty where the name is enough
function = load(name, code)              # in the worker
"""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Callable
from typing import Any, TypeVar

_PREPARE = "_host_prepare"
_MAINS = (
    "__main__",
    "__mp_main__",
)  # the program itself, and the same in a process that multiprocessing started

F = TypeVar("F", bound=Callable[..., Any])


class CannotLoad(Exception):
    """A worker cannot get hold of a function; the message names it and says what to do."""


def prepared_by(prepare: Callable[[], Any]) -> Callable[[F], F]:
    """Decorator: `prepare()` runs once in each worker before its first job of this function, outside the budgets.

    For slow imports: a job's CPU time should not depend on whether it is the first.
    """

    def mark(function: F) -> F:
        setattr(function, _PREPARE, prepare)
        return function

    return mark


def describe(function: str | Callable[..., Any]) -> tuple[str, bytes]:
    """The name of a function, `module:qualname`, and its pickle where a worker cannot import that name.

    Raises ValueError for a text of another form, TypeError for what is not callable or cannot be pickled.
    """
    if isinstance(function, str):
        module, colon, path = function.partition(":")
        if not (module and colon and path):
            raise ValueError(f"a function is named 'package.module:function', got {function!r}")
        return function, b""
    if not callable(function):
        raise TypeError(f"got {function!r}, want a function or its name 'package.module:function'")
    home = getattr(function, "__module__", None) or type(function).__module__
    path = getattr(function, "__qualname__", None) or type(function).__qualname__
    name = f"{home}:{path}"
    if home not in _MAINS and _found(home, path) is function:
        return name, b""
    return name, _pickled(function, name)


def pack(arguments: tuple[Any, ...], name: str) -> bytes:
    """The arguments of that function as they are now; TypeError where they cannot be sent."""
    try:
        return _by_value(arguments)
    except Exception as error:
        raise TypeError(
            f"the arguments of {name!r} cannot be sent to a worker process: {type(error).__name__}: {error}"
        ) from error


def load(name: str, code: bytes) -> Callable[..., Any]:
    """The function, prepared for its first job; CannotLoad where there is no such function."""
    module, _, path = name.partition(":")
    try:
        if code:
            function = pickle.loads(code)
        else:
            function = importlib.import_module(module)
            for part in path.split("."):
                function = getattr(function, part)
        if not callable(function):
            raise TypeError(f"it is {type(function).__name__}, not a function")
        prepare = getattr(function, _PREPARE, None)
        if prepare is not None:
            prepare()
    except MemoryError:
        raise
    except BaseException as error:
        raise CannotLoad(
            f"cannot load the function {name!r} in a worker process: {type(error).__name__}: {error}; put it "
            "at the top level of a module that can be imported there"
        ) from error
    return function


def _found(module: str, path: str) -> Any:
    """What stands under that name here, None if nothing does."""
    found = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _pickled(function: Callable[..., Any], name: str) -> bytes:
    try:
        return _by_value(function)
    except Exception as error:
        raise TypeError(
            f"cannot send {name!r} to a worker process ({type(error).__name__}: {error}); define it at the top "
            "level of a module and pass it, or its name 'package.module:function'"
        ) from error


def _by_value(thing: Any) -> bytes:
    """A pickle; what is defined in the main program goes with its code, where cloudpickle is there to do it."""
    try:
        import cloudpickle
    except ImportError:
        return pickle.dumps(thing, protocol=5)
    main = sys.modules.get("__mp_main__")
    if main is not None:
        cloudpickle.register_pickle_by_value(main)
    return cloudpickle.dumps(thing, protocol=5)
