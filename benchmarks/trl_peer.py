"""The peer: TRL's GRPOTrainer on the same model, task, batch and optimiser, as fast as it goes on a CPU.

    python benchmarks/trl_peer.py --model-folder warm/ --env-id atrl/Addition-v0 \
        --updates 200 --seconds 120 --target 0.9 --out trl.json --threads 2

Runs in an environment that has `trl` beside atrl (extra `bench`). The model folder is a transformers folder,
usually a warm-started checkpoint, so that both sides begin with equal weights. The clock counts training only:
loading and evaluation stand still on it. One row a update and one a evaluation go to `--out` as JSON.
"""

from __future__ import annotations

import importlib
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import tyro
from datasets import Dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PrinterCallback,
    TrainerCallback,
)
from transformers.utils import logging as transformers_logging
from trl import GRPOConfig, GRPOTrainer

import atrl_envs
from atrl_envs.vocab import Vocab


@dataclass(frozen=True)
class PeerOptions:
    """What the peer runs.

    The defaults of the speed settings suit short responses. With long-tailed ones TRL is three times as fast with
    `--generation-rows 32 --micro-batch 32`, and faster still with `--sort-prompts`: a pass then waits for, and
    pads to, the longest of 32 rows rather than of all.
    """

    model_folder: Path
    """Folder of a transformers causal language model: the weights both sides begin with."""
    env_id: str = "atrl/Addition-v0"
    task: str = "{}"
    """Further arguments of the environment, as JSON: '{"digits": 2}'."""
    imports: tuple[str, ...] = ()
    """Modules to import first, since importing them registers tasks."""
    lora_r: int = 0
    """Rank of the adapter that is trained on all linear layers, dropout 0; 0: all weights are trained."""
    lora_alpha: float = 16.0
    out: Path = Path("trl.json")
    updates: int = 100
    """Stop after this many updates."""
    seconds: float | None = None
    """Stop after this many seconds of training; None is no limit."""
    target: float | None = None
    """Stop when the held-out greedy accuracy reaches this share (0.9 is 90 %)."""
    prompts_per_batch: int = 64
    samples_per_prompt: int = 8
    lr: float = 2e-4
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    loss_type: str = "grpo"
    seed: int = 0
    eval_every: int = 10
    """Updates between two evaluations."""
    eval_problems: int = 512
    """Held-out problems of an evaluation, at most."""
    threads: int = 2
    generation_rows: int | None = None
    """Rows generated together; None is the whole batch."""
    micro_batch: int | None = None
    """Rows of one forward and backward pass; None is the whole batch. Gradients are accumulated."""
    sort_prompts: bool = False
    """Order each batch's prompts by length, so that rows of one pass are alike and less is padded."""
    attention: str = "sdpa"
    cache: str | None = None
    """transformers' cache implementation for generation; None is the dynamic cache."""
    continuous_batching: str | None = None
    """Generate with transformers' continuous batching; its settings as JSON: '{"num_blocks": 64}'."""
    compile: bool = False
    """Compile the training forward pass with torch.compile."""

    @property
    def rows_per_batch(self) -> int:
        """Completions of one update."""
        return self.prompts_per_batch * self.samples_per_prompt


@dataclass
class Record:
    """What is written: a row per update and per evaluation, and the seconds of each part of an update."""

    updates: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[dict[str, float]] = field(default_factory=list)
    parts: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    train_seconds: float = 0.0
    eval_seconds: float = 0.0  # of the evaluations during training, but the last
    seconds_to_target: float | None = None

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Add the seconds of the block to `parts[name]`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.parts[name] += time.perf_counter() - start


class Judge:
    """The environment's own verifier over lists of completion ids: one tensor call a batch."""

    def __init__(self, env: Any) -> None:
        self.verifier, self.answers, self.pad_id = env.verifier, env.bank.answers, env.vocab.pad_id

    def __call__(self, completions: list[list[int]], problems: list[int]) -> torch.Tensor:
        """Rewards `[B]` float32, 1.0 where the completion is correct, of the problems' indices `[B]`."""
        rows = [torch.tensor(ids, dtype=torch.int64) for ids in completions]
        tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.pad_id)
        verdicts = self.verifier(
            tokens,
            torch.zeros(len(rows), dtype=torch.int64),
            self.answers[torch.tensor(problems)],
            end=torch.tensor([len(ids) for ids in completions]),
        )
        return (verdicts == int(atrl_envs.Verdict.CORRECT)).float()


class TimedTrainer(GRPOTrainer):
    """GRPOTrainer, unchanged but for a stopwatch around its parts."""

    record: Record

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        with self.record.part("generate"):
            return super()._generate_single_turn(*args, **kwargs)

    def _generate_and_score_completions(self, *args: Any, **kwargs: Any) -> Any:
        with self.record.part("rollout"):
            return super()._generate_and_score_completions(*args, **kwargs)

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Any:
        with self.record.part("reward"):
            return super()._calculate_rewards(*args, **kwargs)

    def _compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        with self.record.part("forward"):
            return super()._compute_loss(*args, **kwargs)

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        with self.record.part("training_step"):
            return super().training_step(*args, **kwargs)


class Clock(TrainerCallback):
    """Writes a row per update, evaluates now and then with the clock standing still, and stops the run."""

    def __init__(self, options: PeerOptions, record: Record, evaluate: Callable[[], float]) -> None:
        self.options, self.record, self.evaluate = options, record, evaluate
        self.completions = self.tokens = 0
        self.rewards = 0.0

    def saw(self, completions: list[list[int]], rewards: torch.Tensor) -> None:
        """Count what one reward call was given."""
        self.completions += len(completions)
        self.tokens += sum(map(len, completions))
        self.rewards += float(rewards.sum())

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.measure(0)
        self.mark = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        options, record = self.options, self.record
        seconds = time.perf_counter() - self.mark
        record.train_seconds += seconds
        record.updates.append(
            {
                "update": state.global_step,
                "seconds": seconds,
                "completions": self.completions,
                "tokens": self.tokens,
                "reward": self.rewards / max(1, self.completions),
            }
        )
        self.completions, self.tokens, self.rewards = 0, 0, 0.0
        limit = options.seconds
        over = state.global_step >= options.updates or (limit is not None and record.train_seconds >= limit)
        if over or state.global_step % options.eval_every == 0:
            began = time.perf_counter()
            accuracy = self.measure(state.global_step)
            if options.target is not None and accuracy >= options.target:
                record.seconds_to_target, over = record.train_seconds, True
            else:
                record.eval_seconds += time.perf_counter() - began
        control.should_training_stop = over
        self.mark = time.perf_counter()

    def measure(self, update: int) -> float:
        """Held-out greedy accuracy, written down with the training seconds at which it holds."""
        accuracy = self.evaluate()
        self.record.evaluations.append(
            {"update": update, "train_seconds": self.record.train_seconds, "accuracy": accuracy}
        )
        print(
            f"trl  update {update:4d}  {self.record.train_seconds:7.1f} s  accuracy {accuracy:.3f}",
            flush=True,
        )
        return accuracy


@torch.no_grad()
def greedy_accuracy(model: Any, env: Any, problems: int, rows: int = 512) -> float:
    """Share of `problems` drawn from all of the environment's bank that greedy decoding answers correctly."""
    tokenizer, judge = env.vocab.tokenizer, Judge(env)
    settings = GenerationConfig(
        do_sample=False,
        max_new_tokens=env.max_new_tokens,
        eos_token_id=env.vocab.eos_id,
        pad_token_id=env.vocab.pad_id,
        disable_compile=True,
    )
    texts = env.bank.prompt_texts
    chosen = torch.randperm(len(texts), generator=torch.Generator().manual_seed(0))[:problems].tolist()
    correct = 0.0
    model.eval()
    for start in range(0, len(chosen), rows):
        part = chosen[start : start + rows]
        inputs = tokenizer([texts[i] for i in part], padding=True, padding_side="left", return_tensors="pt")
        inputs.pop("token_type_ids", None)
        ids = model.generate(**inputs, generation_config=settings)[:, inputs["input_ids"].shape[1] :]
        correct += float(judge(ids.tolist(), part).sum())
    model.train()
    return correct / len(chosen)


def grpo_config(options: PeerOptions, max_new_tokens: int, folder: str) -> GRPOConfig:
    """TRL's settings: GRPO without KL, one update a batch, and nothing that costs time and gives nothing here."""
    micro = options.micro_batch or options.rows_per_batch
    generated = options.generation_rows or options.rows_per_batch
    for name, whole, piece in (
        ("generation_rows", options.rows_per_batch, generated),
        ("micro_batch", generated, micro),
    ):
        if whole % piece:
            raise ValueError(f"--{name.replace('_', '-')} is {piece}; it must divide {whole} rows")
    return GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=options.rows_per_batch // micro,
        generation_batch_size=generated,
        num_generations=options.samples_per_prompt,
        num_iterations=1,
        max_completion_length=max_new_tokens,
        max_steps=options.updates,
        shuffle_dataset=False,
        temperature=1.0,
        beta=0.0,
        loss_type=options.loss_type,
        mask_truncated_completions=False,
        learning_rate=options.lr,
        lr_scheduler_type="constant",
        weight_decay=options.weight_decay,
        max_grad_norm=options.max_grad_norm,
        optim="adamw_torch_fused",
        seed=options.seed,
        use_cpu=True,
        # TRL turns these two on by default: half precision is emulated on most CPUs, and recomputing
        # activations costs a second forward pass that a small model does not need.
        bf16=False,
        gradient_checkpointing=False,
        torch_compile=options.compile,
        cache_implementation=options.cache,
        use_transformers_continuous_batching=options.continuous_batching is not None,
        transformers_continuous_batching_config=json.loads(options.continuous_batching or "null"),
        dataloader_num_workers=0,
        dataloader_pin_memory=False,
        logging_strategy="no",
        logging_nan_inf_filter=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def problem_order(options: PeerOptions, lengths: list[int]) -> list[int]:
    """The problems of every update in turn: shuffled epochs, each batch sorted by prompt length where asked.

    TRL shuffles prompts itself, over the whole epoch; the order is fixed here so that a batch can be sorted.
    """
    generator = torch.Generator().manual_seed(options.seed)
    size, wanted = options.prompts_per_batch, options.updates * options.prompts_per_batch
    order: list[int] = []
    while len(order) < wanted:
        order += torch.randperm(len(lengths), generator=generator).tolist()
    batches = (order[start : start + size] for start in range(0, wanted, size))
    if not options.sort_prompts:
        return order[:wanted]
    return [index for batch in batches for index in sorted(batch, key=lengths.__getitem__)]


def adapter(options: PeerOptions) -> Any:
    """peft's settings of the adapter, or None."""
    if not options.lora_r:
        return None
    from peft import LoraConfig

    return LoraConfig(
        r=options.lora_r,
        lora_alpha=options.lora_alpha,  # type: ignore[arg-type]  # others expect whole numbers
        target_modules="all-linear",
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )


def build(options: PeerOptions, folder: str) -> tuple[TimedTrainer, Record]:
    """A trainer over the environment's own prompts, verifier and vocabulary, and the record that it fills."""
    for module in options.imports:
        importlib.import_module(module)
    model = AutoModelForCausalLM.from_pretrained(
        options.model_folder, dtype=torch.float32, attn_implementation=options.attention
    )
    tokenizer = AutoTokenizer.from_pretrained(options.model_folder)
    vocab = Vocab.from_tokenizer(tokenizer, size=model.get_output_embeddings().weight.shape[0])
    task = json.loads(options.task)
    train, test = (
        atrl_envs.make(options.env_id, vocab=vocab, split=split, seed=options.seed, **task)
        for split in ("train", "test")
    )
    texts = train.bank.prompt_texts
    order = problem_order(options, [len(text) for text in texts])
    record, judge = Record(), Judge(train)
    clock = Clock(options, record, lambda: greedy_accuracy(model, test, options.eval_problems))

    def exact(completion_ids: list[list[int]], problem: list[int], **_: Any) -> list[float]:
        rewards = judge(completion_ids, problem)
        clock.saw(completion_ids, rewards)
        return rewards.tolist()

    trainer = TimedTrainer(
        model=model,
        reward_funcs=exact,
        args=grpo_config(options, train.max_new_tokens, folder),
        train_dataset=Dataset.from_dict({"prompt": [texts[i] for i in order], "problem": order}),
        processing_class=train.vocab.tokenizer,
        callbacks=[clock],
        peft_config=adapter(options),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.record = record
    return trainer, record


def summary(options: PeerOptions, record: Record) -> dict[str, Any]:
    """The JSON: settings, versions, totals, seconds of an update's parts, and every row."""
    seconds, parts = record.train_seconds, record.parts
    exclusive = {
        "generate": parts["generate"],
        "reward": parts["reward"],
        "rest of rollout": parts["rollout"] - parts["generate"] - parts["reward"],
        "forward and loss": parts["forward"],
        "backward": parts["training_step"] - parts["rollout"] - parts["forward"],
        "optimiser and loop": seconds - parts["training_step"],
    }
    count = max(1, len(record.updates))
    return {
        "peer": "trl GRPOTrainer",
        "options": asdict(options) | {"model_folder": str(options.model_folder), "out": str(options.out)},
        "versions": {name: version(name) for name in ("trl", "transformers", "torch", "accelerate")},
        "train_seconds": seconds,
        "seconds_to_target": record.seconds_to_target,
        "eval_seconds": record.eval_seconds,
        "completions_per_second": sum(row["completions"] for row in record.updates) / seconds,
        "tokens_per_second": sum(row["tokens"] for row in record.updates) / seconds,
        "accuracy_before": record.evaluations[0]["accuracy"],
        "accuracy_after": record.evaluations[-1]["accuracy"],
        "seconds_per_update": {name: value / count for name, value in exclusive.items()},
        "evaluations": record.evaluations,
        "updates": record.updates,
    }


def main(options: PeerOptions) -> None:
    """Train, then write the JSON."""
    torch.set_num_threads(options.threads)
    transformers_logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        trainer, record = build(options, folder)
        trainer.train()
    result = summary(options, record)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1, default=str) + "\n")
    print(f"trl  {result['completions_per_second']:.0f} completions/s  {options.out}")


if __name__ == "__main__":
    main(tyro.cli(PeerOptions, description=__doc__))
