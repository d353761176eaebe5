"""Whoever ends, and however: no process of a pool is left over, and none ends too soon."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from atrl_envs.host import HostPool
from tests.envs.host import jobs
from tests.envs.host.processes import alive, vanish, zombies

ROOT = Path(__file__).resolve().parents[3]
# No guard and nothing to import from: what a person types first.
SCRIPT = """
import os, sys, time
from atrl_envs.host import HostPool

def square(x):
    return x * x

pool = HostPool(workers=2)
pool.submit(square, 12)
(outcome,) = pool.collect(wait=30)
pool.submit(time.sleep, 60)
pool.submit(time.sleep, 60)
print(outcome.value, *pool.pids, flush=True)
"""


def script(tmp_path: Path, ending: str) -> subprocess.Popen[str]:
    path = tmp_path / "program.py"
    path.write_text(SCRIPT + ending)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True, env=environment)


def said(process: subprocess.Popen[str]) -> list[int]:
    assert process.stdout is not None
    value, *pids = map(int, process.stdout.readline().split())
    assert value == 144
    return pids


@pytest.mark.parametrize("ending", ["", "raise SystemExit(3)", "1/0"])
def test_the_exit_of_the_program_ends_them(tmp_path: Path, ending: str) -> None:
    process = script(tmp_path, ending)
    pids = said(process)
    process.communicate(timeout=30)
    assert len(pids) == 2 and vanish(pids)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_parent_killed_by_hand_takes_them_along(tmp_path: Path, number: signal.Signals) -> None:
    process = script(tmp_path, "time.sleep(60)")
    pids = said(process)
    assert len(alive(pids)) == 2
    process.send_signal(number)
    process.communicate(timeout=30)
    assert vanish(pids)


def _in_a_daemon(results: multiprocessing.SimpleQueue[tuple[int, list[int]]]) -> None:
    pool = HostPool()
    pool.submit(jobs.echo, 42)
    results.put((pool.collect(wait=30.0)[0].value, pool.pids))


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_inside_a_daemonic_process(method: str) -> None:
    context = multiprocessing.get_context(method)
    results = context.SimpleQueue()
    process = context.Process(target=_in_a_daemon, args=(results,), daemon=True)
    process.start()
    value, pids = results.get()
    process.join(timeout=30)
    assert value == 42 and vanish(pids)


def test_a_forked_copy_has_workers_of_its_own() -> None:
    with HostPool() as pool:
        pool.submit(jobs.whoami)
        (outcome,) = pool.collect(wait=30.0)
        mine = pool.pids
        pool.submit(jobs.sleeps, 0.5)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                fresh = pool.pending == 0
                pool.submit(jobs.whoami)
                (other,) = pool.collect(wait=30.0)
                status = 0 if fresh and other.status == "ok" and other.value != outcome.value else 2
                pool.close()
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert pool.pids == mine and pool.collect(wait=30.0)[0].value == 0.5
    assert zombies() == []


def test_workers_outlive_the_thread_that_started_them() -> None:
    with HostPool() as pool:
        thread = threading.Thread(target=lambda: pool.submit(jobs.sleeps, 0.5))
        thread.start()
        thread.join()
        assert [outcome.status for outcome in pool.collect(wait=30.0)] == ["ok"]
        assert pool.counts["restarts"] == 0
