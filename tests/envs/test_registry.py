"""Ids: found in every kind of process, and errors that say what to import."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import atrl_envs
from atrl_envs import EnvMaker, UnknownEnvError

DOUBLING = '''
import numpy
import atrl_envs

class Doubling(atrl_envs.Task):
    """Twice a number below `limit`."""
    limit: int = 100

    def problem(self, rng: numpy.random.Generator) -> atrl_envs.Problem:
        n = int(rng.integers(self.limit))
        return atrl_envs.Problem(prompt=f"2*{n}=", answer=str(2 * n))

atrl_envs.register("my/Doubling-v0", Doubling, max_new_tokens=6)
'''


def run(code: str, folder: Path, name: str = "script.py") -> str:
    """Run a script from a file in `folder` and return what it prints."""
    script = folder / name
    script.write_text(textwrap.dedent(code))
    paths = [str(folder), str(Path(atrl_envs.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=env)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_listed_ids() -> None:
    listed = [id for id in atrl_envs.list_envs() if id.startswith("atrl/")]
    assert listed == sorted(listed)
    for name in ("Addition", "Countdown", "File", "GSM8K", "WordProblems"):
        assert f"atrl/{name}-v0" in listed


def test_importing_the_package_is_light(tmp_path: Path) -> None:
    out = run(
        "import sys, atrl_envs; print([m for m in ('torch', 'transformers') if m in sys.modules])", tmp_path
    )
    assert out.strip() == "[]"


def test_an_unknown_id_names_near_ids_and_the_import() -> None:
    with pytest.raises(UnknownEnvError) as caught:
        atrl_envs.make("atrl/Additon-v0")
    message = str(caught.value)
    assert "'atrl/Additon-v0'" in message
    assert "atrl/Addition-v0 (import atrl_envs)" in message
    assert "your_module:atrl/Additon-v0" in message
    for short in ("gsm8k", "GSM8K-v1", "my/Gsm8k-v0"):
        with pytest.raises(UnknownEnvError, match=r"Near: atrl/GSM8K-v0 \(import atrl_envs\)"):
            atrl_envs.make(short)
    with pytest.raises(ValueError, match="json:json/Thing-v0"):
        atrl_envs.make("json/Thing-v0")  # a package of that name exists: it is what to import
    with pytest.raises(UnknownEnvError, match="cannot import 'no_such_module'"):
        atrl_envs.make("no_such_module:my/Doubling-v0")
    with pytest.raises(UnknownEnvError, match="no environment is registered as 'my/Nothing-v0'"):
        atrl_envs.make("json:my/Nothing-v0")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"num_envs": 10, "group_size": 4},
            ValueError,
            "num_envs=10 is not a multiple of group_size=4; nearest: 8 and 12",
        ),
        ({"num_envs": 2, "group_size": 4}, ValueError, "nearest: 4"),
        ({"num_envs": 0}, ValueError, "num_envs must be at least 1, got 0"),
        ({"block_size": 0}, ValueError, "block_size must be at least 1"),
        ({"max_new_tokens": 0}, ValueError, "max_new_tokens must be at least 1"),
        ({"worker": 2, "num_workers": 2}, ValueError, r"worker must lie in \[0, num_workers=2\), got 2"),
        ({"start_group": -1}, ValueError, "start_group must not be negative"),
        ({"split": "valid"}, ValueError, "split must be one of train, test"),
        ({"hgih": 5}, TypeError, "Addition has no parameter 'hgih'; did you mean 'high'"),
        ({"num_env": 5}, TypeError, "Addition has no parameter 'num_env'; did you mean 'num_envs'"),
        ({"high": 1.5}, TypeError, "high must be int, got 1.5"),
        ({"low": 5, "high": 4}, ValueError, "low <= high"),
        ({"high": 10**26}, ValueError, r"-2\*\*63 <= high < 2\*\*63.*got high=1000"),
        ({"low": -(2**63) - 1}, ValueError, r"got low=-9223372036854775809"),
        ({"seed": "a"}, TypeError, "seed must be int, got 'a' .str"),
        ({"seed": 1.5}, TypeError, "seed must be int, got 1.5 .float"),
        ({"num_envs": True}, TypeError, "num_envs must be int, got True"),
        ({"num_envs": "4"}, TypeError, "num_envs must be int, got '4'"),
        ({"shuffle": "no"}, TypeError, "shuffle must be bool, got 'no'"),
        ({"bank_size": "5"}, TypeError, "bank_size must be int"),
        ({"max_prompt_length": "5"}, TypeError, "max_prompt_length must be int"),
        ({"test_fraction": "5"}, TypeError, "test_fraction must be float"),
        (
            {"max_prompt_length": 4},
            ValueError,
            r"problem \d+ .* has 6 tokens, the limit is max_prompt_length=4",
        ),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        atrl_envs.make("atrl/Addition-v0", **options)


@pytest.mark.parametrize("id", [None, 3, atrl_envs.Task])
def test_an_id_is_a_text(id: Any) -> None:
    with pytest.raises(TypeError, match="an id is a text like 'atrl/Addition-v0', got"):
        atrl_envs.make(id)


def test_the_widest_ranges() -> None:
    for name in ("Addition", "Subtraction", "Multiplication", "SumSteps"):
        env = atrl_envs.make(f"atrl/{name}-v0", low=-(2**63), high=2**63 - 1, bank_size=3)
        assert len(env.bank) == 3
    many = atrl_envs.get_spec("atrl/Addition-v0").build_task(operands=10**12)
    assert many.problems() is None  # and nobody works out 90 ** 10 ** 12
    with pytest.raises(ValueError, match="finite spread"):
        atrl_envs.make("atrl/SumSteps-v0", spread=float("inf"))
    assert len(atrl_envs.make("atrl/SumSteps-v0", spread=1e4, bank_size=20).bank) == 20


def test_sizes_are_checked_where_the_maker_is_made() -> None:
    with pytest.raises(ValueError, match="not a multiple"):
        EnvMaker("atrl/Addition-v0", num_envs=10, group_size=4)
    with pytest.raises(TypeError, match="no parameter"):
        EnvMaker("atrl/Addition-v0").replace(hgih=3)


def test_a_taken_id_is_refused_and_the_same_class_replaced() -> None:
    class First(atrl_envs.Task):
        def problem(self, rng: Any) -> atrl_envs.Problem:
            return atrl_envs.Problem("1=", "1")

    class Second(First):
        pass

    atrl_envs.register("test/Taken-v0", First)
    atrl_envs.register("test/Taken-v0", First, max_new_tokens=9)
    assert atrl_envs.get_spec("test/Taken-v0").max_new_tokens == 9
    with pytest.raises(ValueError, match="'test/Taken-v0' is already .*First"):
        atrl_envs.register("test/Taken-v0", Second)


def test_registered_defaults_and_their_precedence() -> None:
    atrl_envs.register("test/Small-v0", "atrl_envs.tasks.addition:Addition", low=0, high=3, max_new_tokens=5)
    assert atrl_envs.make("test/Small-v0").task.high == 3
    assert atrl_envs.make("test/Small-v0", high=4).task.high == 4
    assert atrl_envs.make("test/Small-v0").max_new_tokens == 5
    assert atrl_envs.make("test/Small-v0", max_new_tokens=7).max_new_tokens == 7
    assert atrl_envs.get_spec("test/Small-v0").parameters() == {"operands": 2, "low": 0, "high": 3}
    assert atrl_envs.make("atrl/Addition-v0").max_new_tokens == 4  # three digits and the end


def test_makers_pickle_and_compare() -> None:
    maker = EnvMaker("atrl/Addition-v0", num_envs=4, low=0, high=9)
    for again in (pickle.loads(pickle.dumps(maker)), cloudpickle.loads(cloudpickle.dumps(maker))):
        assert again == maker
        assert again().bank.prompt_texts == maker().bank.prompt_texts
    assert maker.replace(worker=1, num_workers=2) != maker
    assert "low=0, high=9" in repr(maker)


def test_makers_work_in_torchrl_s_spawned_processes() -> None:
    from torchrl.envs import ParallelEnv

    makers = [EnvMaker("atrl/Addition-v0", low=0, high=9, worker=w, num_workers=2) for w in range(2)]
    env = ParallelEnv(2, makers, mp_start_method="spawn")
    try:
        state = env.reset()
        assert state["group"].flatten().tolist() == [0, 1]
        here = [maker().reset()["tokens"] for maker in makers]
        assert state["tokens"].tolist() == [tokens.tolist() for tokens in here]
    finally:
        env.close()


def test_ids_in_a_fresh_process(tmp_path: Path) -> None:
    (tmp_path / "my_tasks.py").write_text(DOUBLING)
    (tmp_path / "more_tasks.py").write_text(DOUBLING.replace("my/Doubling-v0", "my/More-v0"))
    code = """
        import warnings, gymnasium
        warnings.simplefilter("error")
        gymnasium.make("atrl_envs:atrl/Addition-v0", low=0, high=9)
        gymnasium.make("my_tasks:my/Doubling-v0", limit=50)
        import atrl_envs
        gymnasium.make("atrl/Addition-v0", low=0, high=9)
        atrl_envs.make("atrl_envs:atrl/Addition-v0", low=0, high=9)
        atrl_envs.make("more_tasks:my/More-v0")
        atrl_envs.make("my/More-v0", limit=1000)
        print("made")
        """
    assert run(code, tmp_path).strip() == "made"


def test_a_users_module_is_found_in_a_spawned_worker(tmp_path: Path) -> None:
    (tmp_path / "my_tasks.py").write_text(DOUBLING)
    (tmp_path / "more_tasks.py").write_text(DOUBLING.replace("my/Doubling-v0", "my/More-v0"))
    code = """
        import multiprocessing, gymnasium, atrl_envs

        def single(spec):
            return int(gymnasium.make(spec).reset(seed=1)[0]["length"])

        def use(maker):
            return len(maker().bank), maker.id in atrl_envs.list_envs()

        if __name__ == "__main__":
            import my_tasks, more_tasks
            maker = atrl_envs.EnvMaker("my/Doubling-v0", limit=1000)
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(*pool.apply(use, (maker,)), pool.apply(single, (gymnasium.spec("my/More-v0"),)))
        """
    problems, known, length = run(code, tmp_path).split()
    assert int(problems) > 800
    assert known == "True"
    assert int(length) >= len("2*1=")


def test_a_task_of_the_script_itself_reaches_workers(tmp_path: Path) -> None:
    code = DOUBLING + textwrap.dedent(
        """
        def use(maker):
            return maker().bank.prompt_texts

        if __name__ == "__main__":
            import multiprocessing, subprocess, sys, cloudpickle
            maker = atrl_envs.EnvMaker("my/Doubling-v0")
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                assert pool.apply(use, (maker,)) == maker().bank.prompt_texts
            stranger = "import sys, pickle; print(len(pickle.load(sys.stdin.buffer)().bank))"
            sent = subprocess.run([sys.executable, "-c", stranger], input=cloudpickle.dumps(maker), capture_output=True)
            assert int(sent.stdout) == len(maker().bank), sent.stderr
            print("made")
        """
    )
    assert run(code, tmp_path).strip() == "made"
