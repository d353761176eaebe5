"""Scratch directories: gone with their owner, or swept by the next one where nobody was left to remove them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from atrl_collectors import mapped

SCRIPT = """
import os, signal, sys
from atrl_collectors import mapped
path = mapped.scratch_directory()
(path / "rows").write_bytes(b"1234")
print(path, flush=True)
if sys.argv[1] == "die":
    os.kill(os.getpid(), signal.SIGKILL)
sys.stdin.read()
"""


def owner(act: str) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, act],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert process.stdout is not None
    path = Path(process.stdout.readline().strip())
    assert path.is_dir()
    return process, path


def test_what_a_killed_group_of_processes_left_is_swept_and_a_living_one_is_not() -> None:
    killed, left = owner("die")
    killed.wait(60)
    living, in_use = owner("live")
    young = mapped.scratch_directory()
    try:
        assert left.is_dir(), "it is young: its owner may be about to lock it"
        for path in (left, in_use):
            os.utime(path, (time.time() - 3600,) * 2)
        mapped.discard(mapped.scratch_directory())
        assert not left.exists()
        assert (in_use / "rows").exists()
        assert young.is_dir()
    finally:
        mapped.discard(young)
        living.kill()
        living.wait(60)
        mapped.discard(in_use)
    assert not young.exists()


def test_a_file_or_a_link_of_that_name_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "atrl.file").touch()
    (tmp_path / "atrl.link").symlink_to(tmp_path / "kept")
    for name in ("atrl.file", "atrl.link"):
        os.utime(tmp_path / name, (0, 0), follow_symlinks=False)
    mapped._sweep(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
