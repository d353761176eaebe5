"""What a run is: frozen dataclasses that need no torch; every derived number is a property.

    config = GRPOConfig(env=EnvConfig(id="atrl/Addition-v0"), steps=200, seed=1)
    config = config_check.resolve(config)        # names the run folder, types the task parameters, checks all
    config_file.save(config, config.out)         # DIR/config.json, which `atrl train @DIR/config.json` reads

On the command line a field is a flag: `steps` is `--steps`, `optim.learning_rate` is
`--optim.learning-rate`. `None` always means "derived": the property beside the field says from what.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro

from .loss_config import (
    CISPOLossConfig,
    DAPOLossConfig,
    DrGRPOLossConfig,
    GRPOLossConfig,
    GSPOLossConfig,
    LossConfig,
    M2POLossConfig,
    PPOLossConfig,
)

Mode = Literal["sync", "async"]
InFlight = Literal["keep", "recompute"]
Schedule = Literal["linear", "constant"]
DType = Literal["float32", "bfloat16"]
Engine = Literal["transformers", "vllm"]


def available_cores() -> int:
    """The cores this process may use (its affinity mask, not the machine's size)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _pairs(words: list[str]) -> dict[str, Any]:
    """`["limit=1000", "digits=3"]` as a dict of strings; the task's own types come later."""
    for word in words:
        if "=" not in word:
            raise ValueError(f"got '{word}', a task parameter is written NAME=VALUE, as in high=9")
    return dict(word.split("=", 1) for word in words)


PARAMETERS = tyro.constructors.PrimitiveConstructorSpec(
    nargs="*",
    metavar="NAME=VALUE ...",
    instance_from_str=_pairs,
    is_instance=lambda value: isinstance(value, dict),
    str_from_instance=lambda value: [f"{name}={item}" for name, item in value.items()],
)


def _weights(words: list[str]) -> dict[str, float]:
    """`["correctness=1", "format=0.1"]` as numbers."""
    found = {}
    for word in words:
        name, equals, weight = word.rpartition("=")
        try:
            found[name] = float(weight)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise ValueError(f"got '{word}', a reward is written NAME=WEIGHT, as in format=0.1")
    return found


WEIGHTS = tyro.constructors.PrimitiveConstructorSpec(
    nargs="*",
    metavar="NAME=WEIGHT ...",
    instance_from_str=_weights,
    is_instance=lambda value: isinstance(value, dict),
    str_from_instance=lambda value: [f"{name}={item}" for name, item in value.items()],
)


@dataclass(frozen=True)
class EnvConfig:
    """The environment and how its slots are driven."""

    id: str = "atrl/Addition-v0"
    """A registered id, or `module:id` when importing `module` registers it. `atrl envs` lists them."""
    kwargs: Annotated[dict[str, Any], PARAMETERS, tyro.conf.arg(name="set")] = field(default_factory=dict)
    """Parameters of the task, as in `--env.set high=9`."""
    imports: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(name="import", prefix_name=False)
    ] = ()
    """A module of yours to import first, since importing it registers your tasks."""
    block_size: int = 16
    """Tokens per env step and slot; changes speed, never episodes."""
    num_envs: int | None = None
    """Slots over all workers. None: one for every completion of a batch."""
    max_new_tokens: int | None = None
    """Longest response in tokens. None: as registered with the id."""
    rewards: Annotated[dict[str, float], WEIGHTS] = field(default_factory=dict)
    """What a response earns: correctness, format, overlong, length, module:function of yours. Default: correctness."""
    allow_outscoring: bool = False
    """Accept weights with which a wrong answer can earn as much as a right one."""
    fallback: Literal["auto", "always", "never"] = "auto"
    """Let processes of the host judge answers to golds that are no numbers, or whatever the tensor program may not."""
    curriculum: bool = False
    """Ask half-known difficulties more often than known and hopeless ones."""
    chat: bool = False
    """Wrap prompts by the tokenizer's chat template."""
    system: str = ""
    """System message of the chat template."""

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules to import before the id is looked up."""
        prefix, colon, _ = self.id.rpartition(":")
        return (*self.imports, prefix) if colon else self.imports

    @property
    def name(self) -> str:
        """The id without its module prefix."""
        return self.id.rpartition(":")[2]


@dataclass(frozen=True)
class TinyConfig:
    """The model that `--model tiny` makes: Qwen2-shaped, with random weights."""

    layers: int = 2
    """Transformer layers."""
    width: int = 128
    """Hidden size; a multiple of `heads`."""
    heads: int = 4
    """Attention heads."""


@dataclass(frozen=True)
class LoRAConfig:
    """Train a low-rank adapter and leave the model itself as it is (arXiv 2106.09685)."""

    r: int = 0
    """Rank of the adapter; 0: no adapter, all weights are trained."""
    alpha: float | None = None
    """The adapter's product is scaled by alpha / r. None: 2 r."""
    targets: tuple[str, ...] = ()
    """Names of the linear layers that get one, as in `q_proj v_proj`. None given: all but the output projection."""
    dropout: float = 0.0
    """Share of an adapter's inputs left out in training passes; never in rollouts."""

    @property
    def scale_alpha(self) -> float:
        """`alpha`, or 2 r."""
        return 2.0 * self.r if self.alpha is None else self.alpha


@dataclass(frozen=True)
class OptimConfig:
    """AdamW."""

    learning_rate: float = 5e-4
    """Its peak, after the ramp."""
    schedule: Schedule = "linear"
    """After the ramp: fall linearly to 0 at the last step, or stay constant."""
    ramp_steps: int = 200
    """Updates over which the learning rate rises; 1 for none."""
    weight_decay: float = 0.0
    """Decoupled weight decay."""
    betas: tuple[float, float] = (0.9, 0.99)
    """Decay of the two moments."""
    eps: float = 1e-8
    """Added to the root of the second moment."""
    grad_clip: float = 1.0
    """Largest norm of the gradient; a longer one is scaled down to it."""


@dataclass(frozen=True)
class WarmupConfig:
    """The supervised start on gold answers, `--warmup-steps` long."""

    batch_size: int = 256
    """Problems per step."""
    until: float = 0.12
    """Begin to end once this share of training problems would be answered right; above 1 never does."""
    anneal_steps: int = 60
    """Steps over which the learning rate then falls to 0; they still teach a good deal."""
    learning_rate: float = 7e-4
    """Peak learning rate of the warm start alone."""
    weight_decay: float = 0.0
    """Decoupled weight decay of the warm start alone."""


@dataclass(frozen=True)
class VLLMConfig:
    """The engine of `--engine vllm`. Its dtype is the trainer's; top-p, top-k and penalties are always off."""

    memory_gb: int = 2
    """GB of the KV cache: of RAM on a CPU, of the device's memory elsewhere."""
    enforce_eager: bool = True
    """Run layer by layer; False compiles and captures graphs first, which takes minutes and then is faster."""
    max_model_len: int | None = None
    """Longest sequence in tokens. None: the environment's."""
    max_replacements: int = 3
    """Engines that may die one after the other, without a block between, before the run stops."""
    sleep: bool = False
    """In sync mode, give the device's memory back while the trainer updates; not on a CPU."""


@dataclass(frozen=True)
class ThreadsConfig:
    """CPU threads per process; together no more than the cores, or all slow down."""

    trainer: int | None = None
    """Threads of the trainer. None: what the workers leave."""
    worker: int | None = None
    """Threads of each rollout worker. None: half the cores, shared out."""


@dataclass(frozen=True)
class TrainConfig:
    """A training run, whatever the algorithm."""

    algorithm: ClassVar[str] = ""

    env: EnvConfig = field(default_factory=EnvConfig)
    model: str = "tiny"
    """`tiny` (made from --tiny.*), a folder in transformers' format, a GGUF file, or the name of a model on the Hub."""
    dtype: DType = "float32"
    """Of the model's weights; adapters stay float32. In bfloat16, training all weights rounds small updates away."""
    gradient_checkpointing: bool = False
    """Compute each layer twice instead of keeping its activations: less memory, about a third more time."""
    tiny: TinyConfig = field(default_factory=TinyConfig)
    lora: LoRAConfig = field(default_factory=LoRAConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    warmup: WarmupConfig = field(default_factory=WarmupConfig)
    threads: ThreadsConfig = field(default_factory=ThreadsConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    vllm: VLLMConfig = field(default_factory=VLLMConfig)

    engine: Engine = "transformers"
    """What samples: transformers with our slot cache, or vLLM in processes of its own."""
    mode: Mode = "async"
    """sync: rollouts and updates take turns in one process; async: workers roll out meanwhile."""
    max_staleness: int | None = None
    """Updates a response may lag behind the trainer. None: 0 in sync mode, 1 in async mode."""
    max_uses: int = 1
    """How many batches a completion may be part of."""
    dynamic_sampling: int = 0
    """Batches' worth of groups that all earned the same, replaced by new groups before an update, at most; 0: none."""
    in_flight: InFlight | None = None
    """When weights arrive in mid-response: keep the cache, or recompute it. None: keep; with vllm, recompute."""
    num_workers: int | None = None
    """Rollout processes. None: 0 in sync mode (the trainer rolls out itself), 1 in async mode."""

    steps: int = 1300
    """Updates by reinforcement learning."""
    epochs: int = 1
    """Optimiser steps on each batch."""
    warmup_steps: int = 1200
    """Supervised steps before them, at most (see --warmup.until); 0 for a model that knows the format already."""
    prompts_per_batch: int = 64
    """Groups per update."""
    samples_per_prompt: int = 8
    """Completions per group."""
    micro_batch_tokens: int = 2048
    """Most tokens (rows x padded length) in one forward-backward pass."""
    micro_batches: Literal["sorted", "balanced"] = "sorted"
    """sorted: responses of similar length together, so that little is padded; balanced: passes of equal size."""
    temperature: float = 1.0
    """Of the distribution that is sampled and trained; evaluation is greedy."""
    seed: int = 0
    """Decides problems, weights and sampling."""

    out: Path | None = None
    """Run folder. None: a new one under runs/."""
    resume: bool = False
    """Go on from the checkpoint in --out, with the settings saved there unless given again."""
    overwrite: bool = False
    """Replace the run that is in --out."""
    eval_every: int = 50
    """Steps between evaluations on held-out problems; 0: before and after only."""
    eval_problems: int = 500
    """Held-out problems per evaluation, or all where there are fewer."""
    log_every: int = 25
    """Steps between lines on the console, each with a sample completion."""
    save_every: int = 200
    """Steps between checkpoints; 0: at the end only."""
    loggers: tuple[str, ...] = ()
    """Trackers beside the run folder: tensorboard, wandb, trackio, mlflow, csv."""

    @property
    def completions_per_batch(self) -> int:
        """Rows of a batch: prompts_per_batch x samples_per_prompt."""
        return self.prompts_per_batch * self.samples_per_prompt

    @property
    def staleness_limit(self) -> int:
        """`max_staleness`, or 0 in sync mode and 1 in async mode."""
        return self.max_staleness if self.max_staleness is not None else (0 if self.mode == "sync" else 1)

    @property
    def cache_rule(self) -> InFlight:
        """`in_flight`, or what the engine does: transformers keeps, vLLM knows recomputing alone."""
        return self.in_flight or ("keep" if self.engine == "transformers" else "recompute")

    @property
    def workers(self) -> int:
        """`num_workers`, or 0 (the trainer's own process) in sync mode and 1 in async mode."""
        return self.num_workers if self.num_workers is not None else (0 if self.mode == "sync" else 1)

    @property
    def num_envs(self) -> int:
        """Slots over all workers: `env.num_envs`, or one for every completion of a batch."""
        return self.env.num_envs if self.env.num_envs is not None else self.completions_per_batch

    @property
    def envs_per_worker(self) -> int:
        """Slots of one worker (of the trainer itself where there is none)."""
        return self.num_envs // max(1, self.workers)

    @property
    def worker_threads(self) -> int:
        """Threads of each worker: `threads.worker`, or half the cores shared out among the workers."""
        if self.threads.worker is not None:
            return self.threads.worker
        return max(1, available_cores() // 2 // max(1, self.workers))

    @property
    def trainer_threads(self) -> int:
        """Threads of the trainer: `threads.trainer`, or the cores that the workers leave."""
        if self.threads.trainer is not None:
            return self.threads.trainer
        return max(1, available_cores() - self.workers * self.worker_threads)

    @property
    def folder(self) -> Path:
        """The run folder. Errors: RuntimeError before `config_check.resolve` has named it."""
        if self.out is None:
            raise RuntimeError("got out=None; a run needs a folder; call config_check.resolve(config) first")
        return self.out


@dataclass(frozen=True)
class GRPOConfig(TrainConfig):
    """Group relative policy optimisation (arXiv 2402.03300)."""

    algorithm: ClassVar[str] = "grpo"
    loss: GRPOLossConfig = field(default_factory=GRPOLossConfig)


@dataclass(frozen=True)
class DrGRPOConfig(TrainConfig):
    """GRPO without its two biases (arXiv 2503.20783)."""

    algorithm: ClassVar[str] = "dr-grpo"
    loss: DrGRPOLossConfig = field(default_factory=DrGRPOLossConfig)


@dataclass(frozen=True)
class DAPOConfig(TrainConfig):
    """Clip-higher, token-level mean and dynamic sampling (arXiv 2503.14476); add its penalty by `--env.rewards`."""

    algorithm: ClassVar[str] = "dapo"
    loss: DAPOLossConfig = field(default_factory=DAPOLossConfig)
    dynamic_sampling: int = 10


@dataclass(frozen=True)
class GSPOConfig(TrainConfig):
    """Group sequence policy optimisation (arXiv 2507.18071)."""

    algorithm: ClassVar[str] = "gspo"
    loss: GSPOLossConfig = field(default_factory=GSPOLossConfig)


@dataclass(frozen=True)
class CISPOConfig(TrainConfig):
    """Clipped importance-sampling weights (arXiv 2506.13585)."""

    algorithm: ClassVar[str] = "cispo"
    loss: CISPOLossConfig = field(default_factory=CISPOLossConfig)


@dataclass(frozen=True)
class M2POConfig(TrainConfig):
    """Second-moment trust policy optimisation (arXiv 2510.01161)."""

    algorithm: ClassVar[str] = "m2po"
    loss: M2POLossConfig = field(default_factory=M2POLossConfig)


@dataclass(frozen=True)
class PPOConfig(TrainConfig):
    """Proximal policy optimisation with a critic (arXiv 1707.06347)."""

    algorithm: ClassVar[str] = "ppo"
    loss: PPOLossConfig = field(default_factory=PPOLossConfig)


ALGORITHMS: dict[str, type[TrainConfig]] = {
    kind.algorithm: kind
    for kind in (GRPOConfig, DrGRPOConfig, DAPOConfig, GSPOConfig, CISPOConfig, M2POConfig, PPOConfig)
}
