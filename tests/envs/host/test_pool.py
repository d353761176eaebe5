"""HostPool: every job ends in one outcome, whatever it does, and the pool goes on."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from atrl_envs.host import HostPool, Outcome
from tests.envs.host import jobs
from tests.envs.host.processes import alive, vanish, zombies

JOBS = "tests.envs.host.jobs"


@pytest.fixture
def pool() -> Iterator[HostPool]:
    with HostPool(cpu_seconds=0.5, wall_seconds=2.0) as made:
        yield made
    assert zombies() == []


def finish(pool: HostPool) -> dict[int, Outcome]:
    """All outcomes, by ticket."""
    found: dict[int, Outcome] = {}
    while pool.pending:
        for outcome in pool.collect(wait=5.0):
            assert outcome.ticket not in found
            found[outcome.ticket] = outcome
    return found


def balanced(pool: HostPool, submitted: int) -> bool:
    counts = pool.counts
    return sum(counts[name] for name in ("done", "timeouts", "crashes", "errors")) == submitted


def test_results_come_by_ticket(pool: HostPool) -> None:
    tickets = [pool.submit(f"{JOBS}:echo", i) for i in range(50)]
    assert tickets == list(range(50)) and pool.pending == 50
    found = finish(pool)
    assert [found[ticket].value for ticket in tickets] == list(range(50))
    assert {outcome.status for outcome in found.values()} == {"ok"}
    assert pool.counts == dict(done=50, timeouts=0, crashes=0, errors=0, retries=0, restarts=0)
    assert pool.pending == 0 and pool.collect() == [] and pool.collect(wait=5.0) == []


def test_workers_start_with_the_first_job(pool: HostPool) -> None:
    assert pool.pids == []
    ticket = pool.submit(jobs.whoami)
    assert finish(pool)[ticket].value == pool.pids[0] != os.getpid()


def test_several_workers_share_the_jobs() -> None:
    with HostPool(workers=2) as pool:
        for _ in range(2):
            pool.submit(jobs.sleeps, 0.3)
        pool.submit(jobs.whoami)
        finish(pool)
        assert len(pool.pids) == 2
        pool.submit(jobs.sleeps, 0.3)
        other = pool.submit(jobs.whoami)
        assert finish(pool)[other].value in pool.pids


def test_an_exception_is_an_error_and_is_not_tried_again(pool: HostPool) -> None:
    first, second = pool.submit(jobs.raises, "no such luck"), pool.submit(jobs.leaves)
    found = finish(pool)
    assert found[first].status == found[second].status == "error"
    assert (
        found[first].error.splitlines()[0] == "ValueError: no such luck" and "jobs.py" in found[first].error
    )
    assert found[second].error.startswith("SystemExit: 3")
    assert pool.counts == dict(done=0, timeouts=0, crashes=0, errors=2, retries=0, restarts=0)


def test_cpu_time_is_kept_by_the_kernel() -> None:
    with HostPool(cpu_seconds=0.5, wall_seconds=120) as pool:  # on a busy machine half a second takes long
        ticket, after = pool.submit(jobs.spins), pool.submit(jobs.echo, "next")
        found = finish(pool)
        assert found[ticket].status == "timeout" and "0.5 s of CPU time" in found[ticket].error
        assert "jobs:spins" in found[ticket].error and found[after].value == "next"
        assert pool.counts == dict(done=1, timeouts=1, crashes=0, errors=0, retries=1, restarts=2)


def test_wall_time_is_kept_by_the_parent() -> None:
    with HostPool(wall_seconds=0.4, retries=0) as pool:
        pool.submit(jobs.echo, 0)
        finish(pool)
        ticket, after = pool.submit(jobs.sleeps, 60.0), pool.submit(jobs.echo, "next")
        found = finish(pool)
        assert found[ticket].status == "timeout" and "0.4 s" in found[ticket].error
        assert found[after].value == "next"
        assert pool.counts == dict(done=2, timeouts=1, crashes=0, errors=0, retries=0, restarts=1)


def test_a_dead_process_is_replaced_and_its_job_tried_again(pool: HostPool, tmp_path: Path) -> None:
    tickets = [
        pool.submit(jobs.dies, 7),
        pool.submit(jobs.killed),
        pool.submit(jobs.fails_once, str(tmp_path / "a")),
    ]
    ahead = [pool.submit(jobs.echo, i) for i in range(8)]
    found = finish(pool)
    assert [found[ticket].status for ticket in tickets] == ["crash", "crash", "ok"]
    assert "status 7" in found[0].error and "SIGKILL" in found[1].error
    assert [found[ticket].value for ticket in ahead] == list(range(8))
    assert pool.counts == dict(done=9, timeouts=0, crashes=2, errors=0, retries=3, restarts=5)
    assert balanced(pool, 11)


def test_memory_has_a_limit() -> None:
    with HostPool(memory_mb=600, retries=0) as pool:
        ticket, after = pool.submit(jobs.hoards), pool.submit(jobs.echo, 1)
        found = finish(pool)
        assert found[ticket].status == "crash" and "600 MB" in found[ticket].error
        assert found[after].status == "ok"


def test_large_arguments_and_results_do_not_block(pool: HostPool) -> None:
    data = os.urandom(1 << 20) * 10
    tickets = [pool.submit(jobs.twice, data) for _ in range(3)]
    small = [pool.submit(jobs.echo, i) for i in range(40)]
    found = finish(pool)
    assert all(found[ticket].value == data + data for ticket in tickets)
    assert [found[ticket].value for ticket in small] == list(range(40))


def test_what_a_job_prints_is_no_message(pool: HostPool) -> None:
    tickets = [pool.submit(jobs.prints_rubbish) for _ in range(3)]
    assert [finish_one.value for finish_one in finish(pool).values()] == ["done"] * len(tickets)
    assert pool.counts["restarts"] == 0


def test_results_that_cannot_be_sent_are_errors(pool: HostPool) -> None:
    ticket = pool.submit(jobs.yields)
    assert finish(pool)[ticket].status == "error"


def test_a_worker_killed_by_hand(pool: HostPool) -> None:
    pool.submit(jobs.echo, 1)
    finish(pool)
    first = pool.pids[0]
    os.kill(first, signal.SIGKILL)
    assert vanish([first])
    # The first thread of a process is dead a moment before the process as a whole can be waited for.
    end = time.monotonic() + 10.0
    while pool.pids and time.monotonic() < end:
        assert pool.collect() == []
        time.sleep(0.01)
    assert pool.pids == [] and zombies() == []
    pool.submit(jobs.sleeps, 0.2)
    while pool.pending and not pool.pids:
        pool.collect(wait=0.01)
    os.kill(pool.pids[0], signal.SIGKILL)
    assert [outcome.status for outcome in finish(pool).values()] == ["ok"]
    assert pool.counts["restarts"] == 2 and balanced(pool, 2)


def test_what_a_job_starts_ends_with_it(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    with HostPool(wall_seconds=1.0, retries=0) as pool:
        pool.submit(jobs.starts_a_child, str(note))
        assert [outcome.status for outcome in finish(pool).values()] == ["timeout"]
        assert vanish([int(note.read_text())])


def test_preparation_is_not_part_of_the_budget(pool: HostPool) -> None:
    tickets = [pool.submit(jobs.with_preparation) for _ in range(3)]
    found = finish(pool)
    assert [found[ticket].value for ticket in tickets] == [1, 1, 1]


def test_workers_load_no_torch(pool: HostPool) -> None:
    pool.submit(jobs.modules)
    assert [outcome.value for outcome in finish(pool).values()] == [[]]


def test_submit_waits_when_the_queue_is_full() -> None:
    with HostPool(queue_limit=3) as pool:
        for i in range(20):
            pool.submit(jobs.echo, i)
            assert pool.counts["done"] >= i - 3
        assert sorted(outcome.value for outcome in finish(pool).values()) == list(range(20))


def test_a_pool_pickles_as_its_settings(pool: HostPool) -> None:
    pool.submit(jobs.echo, 1)
    copy: HostPool = pickle.loads(pickle.dumps(pool))
    with copy:
        assert copy.limits == pool.limits and copy.pending == 0 and copy.pids == []
        assert copy.submit(jobs.whoami) == 0
        assert finish(copy)[0].value not in pool.pids
    finish(pool)


def test_close_and_garbage_collection_end_the_processes() -> None:
    pool = HostPool(workers=2)
    for _ in range(4):
        pool.submit(jobs.sleeps, 30.0)
    pids = pool.pids
    assert len(alive(pids)) == 2
    pool.close()
    assert alive(pids) == [] and zombies() == [] and pool.pending == 0
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(jobs.echo, 1)

    pool = HostPool()
    pool.submit(jobs.sleeps, 30.0)
    pids = pool.pids
    del pool
    assert alive(pids) == [] and zombies() == []


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="workers >= 1"):
        HostPool(workers=0)
    with pytest.raises(ValueError, match="above 0"):
        HostPool(cpu_seconds=0.0)
    with pytest.raises(ValueError, match="retries >= 0"):
        HostPool(retries=-1)


def test_workers_that_cannot_start_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with HostPool() as pool, pytest.raises(RuntimeError, match="did not start: .* ended with status 1"):
        pool.submit(jobs.echo, 1)
        finish(pool)
    assert zombies() == []
