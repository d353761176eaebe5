"""How functions get to the workers: by name, by value, or with a message that says what to do."""

from __future__ import annotations

import functools
import threading

import pytest

from atrl_envs.host import HostPool
from atrl_envs.host.functions import CannotLoad, describe, load
from tests.envs.host import jobs


def test_importable_functions_go_by_name() -> None:
    assert describe(jobs.echo) == ("tests.envs.host.jobs:echo", b"")
    assert describe("package.module:Class.method") == ("package.module:Class.method", b"")
    assert load("tests.envs.host.jobs:echo", b"") is jobs.echo
    assert load("pathlib:Path.cwd", b"")().is_dir()


def test_others_go_by_value() -> None:
    addend = 5
    for function in (lambda x: x + addend, functools.partial(pow, 2)):
        name, code = describe(function)
        assert code and load(name, code)(3) == 8


def test_what_cannot_go_is_named_at_once() -> None:
    lock = threading.Lock()
    with pytest.raises(TypeError, match="top level of a module"):
        describe(lambda: lock)
    with pytest.raises(ValueError, match=r"package\.module:function"):
        describe("no colon")
    with pytest.raises(TypeError, match="want a function"):
        describe(3)  # type: ignore[arg-type]
    with HostPool() as pool, pytest.raises(TypeError, match="arguments of .*echo"):
        pool.submit(jobs.echo, lock)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no_such_module:f", "ModuleNotFoundError"),
        ("tests.envs.host.jobs:nothing", "AttributeError"),
        ("tests.envs.host.jobs:prepared", "not a function"),
    ],
)
def test_what_cannot_be_loaded_is_an_error_that_names_it(name: str, why: str) -> None:
    with pytest.raises(CannotLoad, match=why):
        load(name, b"")
    with HostPool() as pool:
        pool.submit(name)
        (outcome,) = pool.collect(wait=30.0)
        assert outcome.status == "error" and repr(name) in outcome.error and why in outcome.error
        assert pool.counts["retries"] == 0
