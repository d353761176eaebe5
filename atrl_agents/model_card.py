"""A model card: README.md with the Hub's header, from what a run left behind.

card(name="my-model", settings=config, summary=summary, base=None, adapter=False)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .config import EnvConfig
from .model_check import TINY, kind_of


def card(
    *, name: str, settings: Mapping[str, Any], summary: Mapping[str, Any], base: str | None, adapter: bool
) -> str:
    """The text of README.md.

    Args:
        name: of the model.
        settings: the run's config.json; empty: the model is of no run.
        summary: the run's summary.json; empty where it has none.
        base: what the model began with; None: what the settings say.
        adapter: whether the folder holds an adapter that needs its base.
    """
    began = base or str(settings.get("model", ""))
    parts = [_header(settings, began, adapter), f"# {name}", _origin(settings, began, adapter)]
    if settings:
        parts += ["## Task", _task(settings.get("env", {})), "## Results", _results(summary)]
    parts += ["## Use", _use(name, began, adapter)]
    if settings:
        given = json.dumps(settings, indent=2, ensure_ascii=False)
        parts += [
            "## Training",
            f"`atrl train @config.json`, with this `config.json`:\n\n```json\n{given}\n```",
        ]
    return "\n\n".join(parts) + "\n"


def _header(settings: Mapping[str, Any], began: str, adapter: bool) -> str:
    lines = ["---", f"library_name: {'peft' if adapter else 'transformers'}", "pipeline_tag: text-generation"]
    if began and kind_of(began) == "hub":  # a path on somebody's machine says nothing on the Hub
        lines += [f"base_model: {began}", f"base_model_relation: {'adapter' if adapter else 'finetune'}"]
    if settings:
        lines += ["tags:", "- atrl", "- reinforcement-learning", f"- {settings.get('algorithm', '')}"]
        lines += ["- lora"] if settings.get("lora", {}).get("r") else []
    return "\n".join([*lines, "---"])


def _origin(settings: Mapping[str, Any], began: str, adapter: bool) -> str:
    what = "A LoRA adapter for" if adapter else "Made from"
    source = (
        "random weights" if began == TINY else f"`{began if kind_of(began) == 'hub' else Path(began).name}`"
    )
    if not settings:
        return f"{what} {source}."
    warm = " after a supervised start on gold answers" if settings.get("warmup_steps") else ""
    return (
        f"{what} {source}, trained by reinforcement learning ({settings.get('algorithm', '')}){warm} with verifiable "
        "rewards."
    )


def _task(env: Mapping[str, Any]) -> str:
    lines = [f"`{env.get('id', EnvConfig.id)}`"]
    lines += [f"- {name}: {value}" for name, value in env.get("kwargs", {}).items()]
    lines += [f"- reward {name}: weight {weight}" for name, weight in env.get("rewards", {}).items()]
    return lines[0] + ("\n\n" + "\n".join(lines[1:]) if len(lines) > 1 else "")


def _results(summary: Mapping[str, Any]) -> str:
    if not summary:
        return "The run left no summary."
    rows = ["| | held-out accuracy | 95 % interval |", "| --- | --- | --- |"]
    for when in ("before", "after"):
        share, interval = summary.get(f"accuracy_{when}"), summary.get(f"accuracy_{when}_interval")
        told = "not measured" if share is None else f"{share:.1%}"
        rows.append(f"| {when} | {told} | {f'{interval[0]:.1%} to {interval[1]:.1%}' if interval else ''} |")
    problems, steps = summary.get("eval_problems"), summary.get("steps")
    return "\n".join(rows) + f"\n\nGreedy, on {problems} held-out problems, before and after {steps} updates."


def _use(name: str, began: str, adapter: bool) -> str:
    needs = f"\n\nIt loads its base, `{began}`, which must be where this says." if adapter else ""
    return (
        "```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        f'model = AutoModelForCausalLM.from_pretrained("{name}")\n'
        f'tokenizer = AutoTokenizer.from_pretrained("{name}")\n```{needs}'
    )
