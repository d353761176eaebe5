"""Workers in processes: the same episodes, every death named, nothing left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from atrl_collectors import StalenessPolicy, WeightMailbox, WorkerDied, make_buffer, make_collector
from atrl_collectors.episodes import response_tokens
from atrl_collectors.process import ProcessCollector
from atrl_collectors.staleness import CLOSED, WORKER_DIED
from atrl_envs import keys
from tests.collectors.toy_rollouts import (
    MakeEnv,
    MakePolicy,
    RaisingPolicy,
    S,
    ToyPolicy,
    toy_weights,
    true_length,
)

PATIENCE = 60.0  # seconds, for a busy machine; a quiet one needs a tenth of it
ROOT = Path(__file__).parents[2]


def start(
    tmp_path: Path,
    staleness: int,
    env: MakeEnv | None = None,
    kind: type[ToyPolicy] = ToyPolicy,
    seconds: float = 0.0,
    **options: Any,
) -> ProcessCollector:
    policy = StalenessPolicy(prompts_per_batch=3, samples_per_prompt=2, max_staleness=staleness)
    buffer = make_buffer(policy, S, timeout=PATIENCE)
    mailbox = WeightMailbox.create(tmp_path / "weights", toy_weights(0))
    policy_fn = MakePolicy(mailbox, kind, seconds=seconds)
    options = {"backend": "process", **options}
    collector = make_collector(env or MakeEnv(), policy_fn, buffer=buffer, mailbox=mailbox, **options)
    assert isinstance(collector, ProcessCollector)
    return collector


def step(collector: ProcessCollector, version: int) -> Any:
    assert collector.mailbox is not None
    collector.mailbox.publish(toy_weights(version), version)
    collector.advance(version)
    batch = collector.buffer.sample()
    collector.check_books()
    assert torch.equal(response_tokens(batch), true_length(batch[keys.GROUP], batch[keys.MEMBER]))
    return batch


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def death(collector: ProcessCollector) -> WorkerDied:
    """What `check` raises, soon."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            collector.check()
        except WorkerDied as error:
            return error
        time.sleep(0.01)
    raise AssertionError("nobody noticed")


def finish(collector: ProcessCollector, pids: list[int]) -> None:
    """Close twice; nothing may be left: no process, no file, no token."""
    collector.close()
    collector.close()
    collector.check_books()
    assert not collector.directory.exists()
    assert not {child.pid for child in multiprocessing.active_children()} & set(pids)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_one_worker_without_staleness_gives_the_synchronous_order(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    collector = start(tmp_path, staleness=0, sync=True)
    assert collector.mailbox is not None
    time.sleep(0.2)
    assert collector.status()[0].tokens_generated == 0  # nothing starts before there are weights
    pids = collector.workers.pids
    for version in range(6):
        batch = step(collector, version)
        assert batch[keys.GROUP].tolist() == [g for g in range(3 * version, 3 * version + 3) for _ in (0, 1)]
        assert batch[keys.MEMBER].tolist() == [0, 1] * 3
        assert bool((batch[keys.VERSION][batch[keys.RESPONSE_MASK]] == version).all())
        os.kill(pids[0], signal.SIGINT)  # Ctrl-C is for the trainer
    books = collector.buffer.books
    assert books.generated == books.trained
    assert not +books.dropped
    until(lambda: collector.status()[0].state_name == "waits for admission")
    collector.mailbox.publish(toy_weights(9), 9)
    until(lambda: collector.status()[0].version == 9)
    assert collector.status()[0].fingerprint == collector.mailbox.fingerprint
    assert collector.status()[0].silent_seconds < PATIENCE
    assert "serves version 9" in collector.explain()
    waits = collector.waits()
    assert waits["trainer waits for episodes"] > 0
    assert waits["rollout worker 0 waits for admission"] > 0

    os.kill(pids[0], signal.SIGKILL)  # while idle
    error = death(collector)
    assert (error.worker, error.num_workers, error.pid) == (0, 1, pids[0])
    assert "rollout worker 0 of 1" in str(error)
    assert "SIGKILL" in error.cause
    assert error.phase == "waits for admission"
    assert torch.get_num_threads() == threads
    finish(collector, pids)
    assert torch.get_num_threads() == threads


def test_two_workers_run_ahead_within_bounds_until_one_is_killed_while_decoding(tmp_path: Path) -> None:
    collector = start(tmp_path, staleness=2, num_workers=2, seconds=0.002)
    pids = collector.workers.pids
    seen: set[int] = set()
    for version in range(12):
        batch = step(collector, version)
        assert int(batch["staleness"].max()) <= 2
        assert not set(batch[keys.GROUP].tolist()) & seen
        seen |= set(batch[keys.GROUP].tolist())
    both = collector.status()
    assert all(status.episodes_delivered > 0 for status in both)
    assert {group % 2 for group in seen} == {0, 1}
    os.kill(pids[1], signal.SIGKILL)
    version = 12
    with pytest.raises(WorkerDied, match=r"(?s)rollout worker 1 of 2 \(pid .* died .*SIGKILL"):
        while True:
            step(collector, version)
            version += 1
    with pytest.raises(WorkerDied):
        collector.check()
    collector.check_books()
    dead = collector.status()[1]
    assert collector.buffer.books.dropped[WORKER_DIED] == dead.tokens_in_flight
    finish(collector, pids)
    in_flight = sum(status.tokens_in_flight for status in collector.status())
    assert collector.buffer.books.dropped[CLOSED] == in_flight - dead.tokens_in_flight


def test_a_worker_that_raises_is_quoted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    collector = start(tmp_path, staleness=1, kind=RaisingPolicy)
    pids = collector.workers.pids
    with pytest.raises(WorkerDied, match="(?s)it raised.*in on_block.*RuntimeError: the toy is broken"):
        for version in range(99):
            step(collector, version)
    finish(collector, pids)


@pytest.mark.parametrize(
    ("accident", "message"),
    [
        ("raise", "(?s)rollout worker 1 of 2 .*starting.*it raised.*ValueError: no such toy"),
        ("kill", "(?s)rollout worker 0 of 1 .*starting.*SIGKILL"),
    ],
)
def test_a_worker_that_fails_while_starting_is_named(
    tmp_path: Path, accident: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(WorkerDied, match=message):
        start(tmp_path, staleness=0, num_workers=1 + (accident == "raise"), env=MakeEnv(accident))
    until(lambda: not multiprocessing.active_children())


def test_a_start_that_takes_too_long_ends(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="not ready after 0 s, but live .*longer start_timeout"):
        start(tmp_path, staleness=0, start_timeout=0.3)
    until(lambda: not multiprocessing.active_children())


SCRIPT = """
    import sys
    from pathlib import Path
    from tests.collectors.test_process_collector import start, step

    if __name__ == "__main__":
        collector = start(Path(sys.argv[1]), staleness=1)
        step(collector, 0)
        print(collector.directory, *collector.workers.pids, flush=True)
        if sys.argv[2] == "stay":
            sys.stdin.read()
"""


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"  # dead; its adopter has not looked yet


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks processes up in /proc")
@pytest.mark.parametrize("end", ["stay", "leave"])
def test_workers_leave_with_the_trainer_however_it_ends(tmp_path: Path, end: str) -> None:
    """Killed with SIGKILL, or at the end of a script that forgot to close."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    trainer = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path), end],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert trainer.stdout is not None
    directory, *words = trainer.stdout.readline().split()
    pids = [int(word) for word in words]
    assert len(pids) == 1
    assert list(Path(directory).iterdir())
    if end == "stay":
        assert not gone(pids[0])
        trainer.kill()
        trainer.wait(PATIENCE)
    else:
        assert trainer.wait(PATIENCE) == 0
    until(lambda: all(gone(pid) for pid in pids) and not Path(directory).exists())
    assert end == "leave" or not (tmp_path / "weights").exists(), "a mailbox without a publisher"
    trainer.stdout.close()
    assert trainer.stdin is not None
    trainer.stdin.close()
