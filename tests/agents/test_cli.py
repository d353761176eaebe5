"""The command: what words mean, what files mean, and one clear message for whatever cannot work."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import atrl_agents
import atrl_envs
from atrl_agents import cli, config_file
from atrl_agents.arguments import train_config
from atrl_agents.config import ALGORITHMS, EnvConfig, GRPOConfig, PPOConfig, TrainConfig, VLLMConfig
from atrl_agents.new import class_name
from atrl_agents.play import play

ROOT = Path(__file__).resolve().parents[2]
TASK = """
import atrl_envs

class Doubling(atrl_envs.Task):
    "Twice a number."
    limit: int = 40

    def problem(self, rng):
        n = int(rng.integers(self.limit))
        return atrl_envs.Problem(prompt=f"2*{n}=", answer=str(2 * n))

atrl_envs.register("my/Doubling-v0", Doubling, max_new_tokens=6)
"""


def atrl(*words: str, folder: Path, input: str = "") -> subprocess.CompletedProcess[str]:
    """`atrl WORDS` in a process of its own, started in `folder` as the installed script is."""
    code = f"import sys; sys.path[0] = {str(ROOT)!r}; from atrl_agents.cli import main; sys.exit(main())"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=folder, input=input, capture_output=True, text=True, env=environment, timeout=120,
    )  # fmt: skip


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[TrainConfig]:
    """The configs that reach the trainer, which is replaced; runs go to a folder of the test's own."""
    configs: list[TrainConfig] = []
    trainer = types.ModuleType("atrl_agents.train")
    trainer.train = lambda config: configs.append(config) or {}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "atrl_agents.train", trainer)
    monkeypatch.chdir(tmp_path)
    return configs


# Words


def test_the_algorithm_is_the_first_word_and_may_be_left_out(trained: list[TrainConfig]) -> None:
    assert cli.main(["train", "grpo", "--steps", "3"]) == 0
    assert cli.main(["train", "--steps", "3"]) == 0
    assert replace(trained[0], out=None) == replace(trained[1], out=None)
    assert isinstance(trained[0], GRPOConfig)
    assert trained[0].steps == 3


def test_the_public_flags(trained: list[TrainConfig], tmp_path: Path) -> None:
    words = (
        "train grpo --env.id atrl/Subtraction-v0 --model tiny --mode sync --max-staleness 0 --steps 7 "
        "--warmup-steps 5 --seed 11 --out here --env.set low=1 high=20 --loss.clip-high 0.28"
    )
    assert cli.main(words.split()) == 0
    (config,) = trained
    assert isinstance(config, GRPOConfig)
    assert config.env == EnvConfig("atrl/Subtraction-v0", kwargs={"low": 1, "high": 20})
    assert (config.model, config.mode, config.max_staleness, config.steps) == ("tiny", "sync", 0, 7)
    assert (config.warmup_steps, config.seed, config.out) == (5, 11, Path("here"))
    assert config.loss.clip_high == 0.28


def test_task_parameters_are_gathered() -> None:
    words = "--env.set high=5 --steps 3 --env.set low=1 --env.set=high=7 --env.set operands=3".split()
    config = train_config(words)
    assert config.env.kwargs == {"high": "7", "low": "1", "operands": "3"}
    assert config.steps == 3


def test_a_new_folder_every_time(trained: list[TrainConfig]) -> None:
    for number in (1, 2):
        assert cli.main(["train"]) == 0
        assert trained[-1].folder == Path(f"runs/addition-grpo-async-{number}")
        assert trained[-1].folder.is_dir()  # taken at once, so runs that start together do not meet


# Files


def test_file_keys_come_before_typed_flags(trained: list[TrainConfig], tmp_path: Path) -> None:
    (tmp_path / "fast.toml").write_text(
        'steps = 5\nseed = 4\nloggers = ["csv"]\nmode = "sync"\n[optim]\nlearning_rate = 2e-4\n[env.set]\nhigh = 20\n'
    )
    (tmp_path / "later.toml").write_text("seed = 5\n")
    assert cli.main("train --steps 9 @fast.toml --env.set low=2 @later.toml".split()) == 0
    (config,) = trained
    assert (config.steps, config.seed, config.mode, config.loggers) == (9, 5, "sync", ("csv",))
    assert config.optim.learning_rate == 2e-4
    assert config.env.kwargs == {"high": 20, "low": 2}


def test_the_config_of_a_run_gives_it_back(trained: list[TrainConfig], tmp_path: Path) -> None:
    assert cli.main("train --steps 9 --env.set high=20 --out first".split()) == 0
    (tmp_path / "first").mkdir()
    config_file.save(trained[0], tmp_path / "first")
    assert cli.main("train @first/config.json --out second".split()) == 0
    first, second = trained
    assert config_file.to_dict(second) == {**config_file.to_dict(first), "out": "second"}


def test_resume_takes_the_runs_own_settings(trained: list[TrainConfig], tmp_path: Path) -> None:
    (tmp_path / "run" / "checkpoint").mkdir(parents=True)
    saved = GRPOConfig(
        steps=33, seed=8, mode="sync", out=Path("run"), env=EnvConfig(kwargs={"low": 0, "high": 9})
    )
    config_file.save(saved, tmp_path / "run")
    assert cli.main("train --resume --out run --steps 66".split()) == 0
    (config,) = trained
    assert (config.steps, config.seed, config.mode, config.resume) == (66, 8, "sync", True)
    assert config.env.kwargs == {"low": 0, "high": 9}


@pytest.mark.parametrize("words", ["--tiny.width 256", "--model elsewhere"])
def test_resume_goes_on_with_its_own_model(
    trained: list[TrainConfig], tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    run = tmp_path / "run"
    (run / "checkpoint").mkdir(parents=True)
    config_file.save(GRPOConfig(out=run), run)
    assert cli.main(["train", "--resume", "--out", str(run), *words.split()]) == 2
    assert "with another --model or --tiny than" in capsys.readouterr().err
    assert not trained


@pytest.mark.parametrize(
    ("saved", "words", "message"),
    [
        (GRPOConfig(), "ppo", "got atrl train ppo --resume"),
        (PPOConfig(), "ppo --loss.critic head", "--loss.critic"),
        (GRPOConfig(), "--loss.kl-weight 0.1", "--loss.kl-weight"),
    ],
)
def test_resume_goes_on_with_its_own_algorithm_critic_and_reference(
    trained: list[TrainConfig],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    saved: TrainConfig,
    words: str,
    message: str,
) -> None:
    run = tmp_path / "run"
    (run / "checkpoint").mkdir(parents=True)
    config_file.save(replace(saved, out=run), run)
    algorithm = [word for word in words.split() if word in ALGORITHMS]
    flags = [word for word in words.split() if word not in ALGORITHMS]
    assert cli.main(["train", *algorithm, "--resume", "--out", str(run), *flags]) == 2
    assert message in capsys.readouterr().err
    assert not trained


# Complaints


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("trian", "did you mean train?"),
        ("train ppu", "no algorithm"),
        ("train --env.id atrl/Adition-v0", "atrl/Addition-v0"),
        ("train --env.id my/Doubling-v0", "import the module"),
        ("train --env.set hihg=3", "'high'"),
        ("train --steps -1", "--steps -1"),
        ("train @none.toml", "none.toml"),
        ("train @bad.toml", "did you mean steps"),
        ("train --out taken", "exists already"),
        ("train --resume --out nowhere", "no checkpoint/"),
        ("train --tiny.width 130", "multiple of 8"),
        ("train --import no_such_module", "no_such_module"),
        ("train --import .", "no whole name"),
        ("train --env.id :", "no whole name"),
        ("train --env.id atrl/File-v0 --env.set path=none.jsonl", "none.jsonl"),
        ("eval nowhere --env.id atrl/Addition-v0", "no checkpoint"),
        ("eval nowhere", "add --env.id"),
        ("eval taken", "no checkpoint"),
        ("eval done --samples-per-prompt 0", "--samples-per-prompt 0"),
        ("eval done --env.set hihg=1", "'high'"),
        ("play atrl/Adition-v0", "got atrl/Adition-v0; "),
        ("play --set high=x", "got --set high=x; "),
        ("check atrl/Addition-v0 --set hihg=3", "got --set hihg=3 for"),
        ("check atrl/Adition-v0", "got atrl/Adition-v0; "),
        ("play atrl/File-v0 --set path=latin.csv", "latin.csv, line 2: not UTF-8"),
        ("train --env.set high=99999999999999999999999999", "high < 2**63"),
        ("train --loss.clip-high nan", "--loss.clip-high nan"),
        ("train --env.num-envs 7", "--env.num-envs 7"),
        ("train --model taken", "it is a run"),
        ("train --out bad.toml/run", "bad.toml is a file"),
        ("plot nowhere", "no metrics.csv"),
        ("plot", "without a run"),
        ("new 3d", "cannot name a module"),
        ("new json", "cannot name a module"),
        ("new numpy", "a module of that name is installed"),
        ("play gsm8k", "Near: atrl/GSM8K-v0"),
        ("new taken", "exists already"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(
    words: str, message: str, trained: list[TrainConfig], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").mkdir()
    config_file.save(GRPOConfig(), tmp_path / "taken")
    (tmp_path / "done" / "checkpoint").mkdir(parents=True)
    config_file.save(GRPOConfig(), tmp_path / "done")
    (tmp_path / "done" / "checkpoint" / "config.json").write_text("{}")
    (tmp_path / "bad.toml").write_text("stepss = 3")
    (tmp_path / "latin.csv").write_bytes("prompt,answer\nZoë,1\n".encode("latin-1"))
    assert cli.main(words.split()) == 2
    out, error = capsys.readouterr()
    assert error.startswith("atrl: ")
    assert message in error
    assert len(error.strip().splitlines()) == 1
    assert out == ""
    assert trained == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train --stepz 3", "--steps"),
        ("train --mode asink", "async"),
        ("train --steps x", "--steps"),
        ("new", "NAME"),
    ],
)
def test_tyro_refuses_flags_with_exit_code_2(
    words: str, message: str, trained: list[TrainConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words.split()) == 2
    captured = capsys.readouterr()
    assert message in captured.err + captured.out
    assert trained == []


@pytest.mark.parametrize("words", [[], ["--help"], ["train", "--help"], ["eval", "--help"], ["plot", "-h"]])
def test_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert "usage: atrl" in out
    if words in ([], ["--help"]):
        assert all(f"  {name} " in out for name in cli.COMMANDS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert re.fullmatch(r"atrl \d+\.\d+\.\d+\n", capsys.readouterr().out)
    assert atrl_envs.__version__ == importlib.metadata.version("atrl")


@pytest.mark.parametrize("word", ["--help", "envs"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_gone_is_no_traceback(word: str, unbuffered: str) -> None:
    code = f"import sys; from atrl_agents.cli import main; sys.exit(main([{word!r}]))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered}
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=writing, stderr=subprocess.PIPE, text=True, env=environment
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_interruption_is_no_traceback(trained: list[TrainConfig], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["atrl_agents.train"], "train", interrupt)
    assert cli.main(["train"]) == 130


def test_a_dead_worker_is_one_message(
    trained: list[TrainConfig], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from atrl_collectors import WorkerDied

    def die(_: Any) -> None:
        raise WorkerDied(0, 1, 123, "stepping", "SIGKILL")

    monkeypatch.setattr(sys.modules["atrl_agents.train"], "train", die)
    assert cli.main(["train"]) == 1
    assert "SIGKILL" in capsys.readouterr().err


def test_an_interrupted_run_says_so_to_the_shell(
    trained: list[TrainConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["atrl_agents.train"], "train", lambda _: {"outcome": "interrupted"})
    assert cli.main(["train"]) == 130


def test_help_and_complaints_need_no_torch(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path[0] = {str(ROOT)!r}\nfrom atrl_agents.cli import main\n"
        "codes = [main(['--help']), main(['train', '--steps', '-1']), main(['train', '--env.id', 'atrl/X-v0'])]\n"
        "print(codes, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[0, 2, 2] False"


# A module of one's own


def test_a_module_of_ones_own_is_found_by_either_form(tmp_path: Path) -> None:
    (tmp_path / "my_tasks.py").write_text(TASK)
    for words in (
        ["envs", "--import", "my_tasks"],
        ["check", "my_tasks:my/Doubling-v0", "--set", "limit=60"],
    ):
        done = atrl(*words, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "my/Doubling-v0" in done.stdout
    listed = atrl("envs", "--import", "my_tasks", folder=tmp_path).stdout.splitlines()
    assert "my/Doubling-v0\tplain\tTwice a number." in listed


def test_a_reward_of_ones_own_is_found_in_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "my_rewards.py").write_text("def short(completions):\n    return [1.0]\n")
    code = """
from atrl_agents.config import EnvConfig
from atrl_agents.config_check import check_env
check_env(EnvConfig(rewards={"correctness": 1.0, "my_rewards:short": 0.1}))
"""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[0] = {str(ROOT)!r}\n{code}"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_an_error_in_ones_own_module_keeps_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "my_tasks.py").write_text("import no_such_dependency")
    done = atrl("envs", "--import", "my_tasks", folder=tmp_path)
    assert done.returncode == 1
    assert "no_such_dependency" in done.stderr
    assert "Traceback" in done.stderr


def test_a_new_package_is_sound(tmp_path: Path) -> None:
    done = atrl("new", "twice_a_number", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "twice_a_number"
    assert {path.name for path in folder.iterdir()} == {
        "README.md",
        "pyproject.toml",
        "tests",
        "twice_a_number.py",
    }
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder, capture_output=True, text=True, env=environment,
    )  # fmt: skip
    assert tested.returncode == 0, tested.stdout
    assert "2 passed" in tested.stdout


def test_class_names() -> None:
    assert [class_name(name) for name in ("doubling", "twice_a_number")] == ["Doubling", "TwiceANumber"]


# Playing, measuring, drawing


def test_play_tells_the_verdict_and_why() -> None:
    import atrl_envs

    env = atrl_envs.make("atrl/Addition-v0", seed=3, low=0, high=9, block_size=4, max_new_tokens=4)
    said: list[str] = []
    answers = iter(["right", "777", "é", "12345", ""])

    def ask(_: str) -> str:
        answer = next(answers)
        prompt = said[-1]
        return str(sum(map(int, prompt.rstrip("=").split("+")))) if answer == "right" else answer

    assert play(env, ask, said.append) == (1, 3)
    text = "\n".join(said)
    assert "CORRECT: it equals" in text
    assert "WRONG: the answer is" in text
    assert "é" in text
    assert "cut: the answer is 6 tokens long" in text


def test_play_ends_with_the_input(tmp_path: Path) -> None:
    done = atrl("play", "--set", "low=0", "high=9", folder=tmp_path, input="1\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1].endswith("of 1 right")


def test_eval_takes_the_runs_task(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[tuple[Any, ...]] = []

    def evaluate_checkpoint(path: Path, env: EnvConfig, **options: Any) -> dict[str, Any]:
        calls.append((path, env, options))
        return {
            "greedy": {"accuracy": 0.8125, "interval": [0.75, 0.875], "verdicts": {"CORRECT": 13, "WRONG": 3}}
        }

    module = types.ModuleType("atrl_agents.evaluate")
    module.evaluate_checkpoint = evaluate_checkpoint  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "atrl_agents.evaluate", module)
    run = tmp_path / "run"
    (run / "checkpoint").mkdir(parents=True)
    (run / "checkpoint" / "config.json").write_text("{}")
    config = GRPOConfig(env=EnvConfig("atrl/Subtraction-v0", kwargs={"high": 30}), dtype="bfloat16")
    config_file.save(config, run)
    out = tmp_path / "result.json"
    assert cli.main(["eval", str(run), "--samples-per-prompt", "4", "--out", str(out)]) == 0
    assert cli.main(["eval", str(run / "checkpoint"), "--env.set", "low=2"]) == 0
    assert (
        cli.main(
            ["eval", str(run / "checkpoint"), "--env.id", "atrl/Multiplication-v0", "--env.set", "high=3"]
        )
        == 0
    )
    assert [call[0] for call in calls] == [run / "checkpoint"] * 3
    assert [(call[1].name, call[1].kwargs) for call in calls] == [
        ("atrl/Subtraction-v0", {"high": 30}),
        ("atrl/Subtraction-v0", {"high": 30, "low": 2}),
        ("atrl/Multiplication-v0", {"high": 3}),
    ]
    assert calls[0][2] == {
        "problems": 1000, "samples_per_prompt": 4, "temperature": 1.0, "seed": 0,
        "engine": "transformers", "dtype": "bfloat16", "vllm": VLLMConfig(),
    }  # fmt: skip
    assert calls[2][2]["dtype"] == "bfloat16"
    assert json.loads(out.read_text())["greedy"]["accuracy"] == 0.8125
    shown = capsys.readouterr().out
    assert "0.8125" in shown
    assert "[0.75, 0.875]" in shown
    assert "CORRECT: 13, WRONG: 3" in shown


def test_plot_draws_where_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.csv").write_text("step,seconds,success_rate\n1,1,0.5\n2,2,0.75\n")
    runs = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert cli.main(["plot", runs[0]]) == 0
    assert cli.main(["plot", *runs, "--out", str(tmp_path / "both.png")]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "a" / "curve.png"), str(tmp_path / "both.png")]
    assert (tmp_path / "both.png").is_file()
    assert cli.main(["plot", runs[0], "--out", "x.svg"]) == 2


# Public names


def test_public_names_are_lazy() -> None:
    assert set(atrl_agents.__all__) <= set(dir(atrl_agents))
    assert atrl_agents.GRPOConfig is GRPOConfig
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = atrl_agents.trian


def test_train_is_the_function_however_it_was_imported() -> None:
    code = "import atrl_agents.train; import atrl_agents; from atrl_agents.train import train; "
    code += "assert atrl_agents.train is train; from atrl_agents import train as again; assert again is train"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
