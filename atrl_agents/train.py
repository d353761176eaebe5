"""The run: warm start, then one loop of sample, update, publish, whatever the mode.

    summary = train(GRPOConfig(mode="async", steps=200, out=Path("runs/mine")))

Synchronous, one step off and asynchronous are settings of the same loop: the staleness limit says how
many groups may be started ahead of the trainer, and the backend says in which process.
"""

from __future__ import annotations

import shutil
import signal
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDictBase

from atrl_collectors import StalenessPolicy, WeightMailbox, make_buffer, make_collector
from atrl_collectors.samplers import STALENESS
from atrl_collectors.workers import WorkerDied
from atrl_envs import keys
from atrl_envs.rewards import BUILT_IN
from atrl_envs.verify import Verdict

from . import checkpoint, lora, models, spawning
from .claim import claimed
from .complaints import PASS_SIZES, ConfigError, bad_input, enough_memory
from .config import LoRAConfig, TrainConfig
from .config_check import CHECKPOINT, check_folder, resolve
from .engine_recipe import FOLDER, EngineRecipe, check_served, engine_folder, published
from .evaluate import Evaluation, Evaluator
from .interrupts import Interrupted, Interrupts
from .learner import Learner
from .meters import Meters
from .report import Reporter
from .warmup import warm_up
from .workers import EnvRecipe, PolicyRecipe, sampling_policy


def train(config: TrainConfig) -> dict[str, Any]:
    """Run a config to its end and return what summary.json holds.

    Raises:
        ConfigError: a setting that cannot work, before anything is built; or another run has the folder.
        WorkerDied: a rollout worker died.
        WaitTimeout: no episodes came for ten minutes, though every worker lives.
        Diverged: a number of the training is no longer finite.
        OSError: the run folder cannot be written to.

    Whatever ends it, an error of a task of yours too: once the run is past its warm start, the state after the last
    finished step is saved in the run folder before the error goes on.
    """
    config = resolve(config)
    spawning.check(config)
    torch.set_num_threads(config.trainer_threads)
    with claimed(config.folder), Reporter(config, config.folder) as report, Interrupts() as interrupts:
        check_folder(config)  # under the claim: nobody has begun a run there meanwhile
        with bad_input(), enough_memory():
            run = Run(config, report, interrupts)
        try:
            return run.go()
        finally:
            run.close()


class Run:
    """The parts of one run and their order."""

    def __init__(self, config: TrainConfig, report: Reporter, interrupts: Interrupts) -> None:
        self.config, self.report, self.interrupts = config, report, interrupts
        self.folder: Path = config.folder
        state: dict[str, Any] = {}
        if config.resume:
            self.model, self.vocab, state = checkpoint.load(self.folder / CHECKPOINT, config.dtype)
            self._check_adapter(state)
        else:
            self.model, self.vocab = models.begin(config)
        if config.gradient_checkpointing:
            models.compute_layers_twice(self.model)
        self.step: int = state.get("step", 0)
        self.accuracy_before: float | None = state.get("accuracy_before")
        self.interval_before: list[float] | None = state.get("interval_before")
        self.warm = False  # whether there is something worth saving
        self.policy_rules = StalenessPolicy(
            prompts_per_batch=config.prompts_per_batch,
            samples_per_prompt=config.samples_per_prompt,
            max_staleness=config.staleness_limit,
            max_uses=config.max_uses,
            dynamic_sampling=config.dynamic_sampling,
        )
        start_group = state["data"]["next_group"] if state else 0
        self.env_recipe = EnvRecipe(config, self.vocab, start_group)
        self.env = self.env_recipe(num_workers=max(1, config.workers))
        if set(self.env.rewards.names) - set(BUILT_IN):
            self.env.judge.rehearse()
        models.check_length(self.model, self.env.sequence_length, self.env.max_new_tokens)
        check_served(config, self.model)
        self.evaluator = Evaluator(
            replace(config.env, max_new_tokens=self.env.max_new_tokens),
            self.vocab,
            problems=config.eval_problems,
            seed=config.seed,
        )
        self.actor = sampling_policy(self.model, self.vocab, config, self.env.max_new_tokens)
        self.learner = Learner(self.actor, config, self.env.max_new_tokens)
        self.buffer = make_buffer(
            self.policy_rules, self.env.sequence_length, reward_parts=len(self.env.rewards.names)
        )
        if state:
            self._restore(state)
        self._progress: dict[str, Any] = {}  # where the data stood after the last finished step
        self._mark()
        self.mailbox: WeightMailbox | None = None
        self.collector: Any = None
        self.engine: Any = None  # the policy, where it is vLLM's and in this process
        self.meters = Meters(self.buffer, state.get("meters"), self.env.rewards.names)

    def _check_adapter(self, state: dict[str, Any]) -> None:
        now, before = asdict(self.config.lora), state.get("lora", asdict(LoRAConfig()))
        if now != before:
            raise ConfigError(
                f"got --resume with --lora settings {now}; the run in {self.folder} began with {before}; leave them as "
                "they were, or begin a new run in another --out"
            )

    def _restore(self, state: dict[str, Any]) -> None:
        try:
            self.learner.load_state_dict(state["learner"])
            self.buffer.restore(state["data"])
            if self.env.curriculum is not None and state["curriculum"] is not None:
                self.env.curriculum.load_state_dict(state["curriculum"])
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            raise checkpoint.damaged(self.folder / CHECKPOINT, error) from error

    # -- the run ---------------------------------------------------------------------------------

    def go(self) -> dict[str, Any]:
        """Warm start, evaluate, train, evaluate, save."""
        config = self.config
        self.report.start(self._info(), step=self.step if config.resume else None)
        outcome = "finished"
        try:
            if not config.resume:
                self._warm_start()
                self.learner.begin()
            self.warm = True
            if self.accuracy_before is None:
                self._evaluate_before()
            if config.save_every and not config.resume:
                self._save()  # a kill in the first steps shall not cost the warm start
            self._start_collecting()
            while self.step < config.steps:
                self._one_step()
        except Interrupted:
            outcome = "interrupted"
        except WorkerDied as death:
            # A scheduler that ends a job sends SIGTERM to all of its processes, in any order.
            if not (death.signal == signal.SIGTERM and self.interrupts.wait(1.0)):
                self._fail("worker died", death, str(death))
                raise
            outcome = "interrupted"
        except Exception as error:
            self._fail("failed", error, f"{type(error).__name__}: {error}")
            raise
        return self._finish(outcome, evaluate=outcome == "finished", cause=self.report.unheard)

    def _fail(self, outcome: str, error: Exception, cause: str) -> None:
        """Save what there is; an error in doing so must not hide the first."""
        self.report.note(f"stopped: {cause}")
        try:
            self._finish(outcome, evaluate=False, cause=cause)
        except Exception as second:
            error.add_note(f"and then: {second}")

    def _heed(self) -> None:
        """Interrupted where somebody asked the run to stop, or nobody listens to it any more."""
        self.interrupts.check()
        if self.report.unheard:
            raise Interrupted

    def _evaluate_before(self) -> None:
        self.report.phase(f"evaluating {self.evaluator.problems} held-out problems")
        before = self.evaluator(self.model, on_block=self._heed)
        self.accuracy_before, self.interval_before = before.accuracy, list(before.interval)
        self.report.step(self.step, {"accuracy": before.accuracy})
        self.report.note(f"before: {_accuracy(before)}")

    def close(self) -> None:
        """Stop the workers and remove what they shared."""
        if self.collector is not None:
            self.collector.close()
        if self.engine is not None:
            self.engine.close()
        shutil.rmtree(self.folder / FOLDER, ignore_errors=True)
        if self.mailbox is not None:
            self.mailbox.closed = True
            Path(self.mailbox.path).unlink(missing_ok=True)
            self.mailbox = None

    def _warm_start(self) -> None:
        config = self.config
        if not config.warmup_steps:
            return

        def on_step(step: int, loss: float) -> None:
            self._heed()
            if step % 10 == 0 or step == config.warmup_steps:
                self.report.phase(
                    f"warm start on gold answers: step {step} of {config.warmup_steps}, loss {loss:.3f}"
                )

        settings = {"steps": config.warmup_steps, "seed": config.seed}
        with enough_memory():
            warm_up(self.actor, self.env.bank, config.warmup, **settings, on_step=on_step)

    def _start_collecting(self) -> None:
        config = self.config
        self.report.phase("starting the rollout workers" if config.workers else "starting")
        if config.workers or config.engine == "vllm":
            weights = published(config, self.model, self.vocab)
            self.mailbox = WeightMailbox.create(self.folder / ".weights", weights)
        self._publish()
        recipe: Any = self._recipe()
        if config.workers:
            self.collector = make_collector(
                self.env_recipe,
                recipe,
                buffer=self.buffer,
                mailbox=self.mailbox,
                backend="process",
                num_workers=config.workers,
                threads_per_worker=config.worker_threads,
            )
        else:
            policy: Any = self.actor
            if isinstance(recipe, EngineRecipe):
                policy = self.engine = recipe()
            self.collector = make_collector(
                self.env, policy, buffer=self.buffer, mailbox=self.mailbox, backend="direct"
            )
        self.collector.interrupt = self._heed
        self.collector.advance(self.step)
        self._mark()
        self.report.phase("")
        self.meters.start()

    def _recipe(self) -> EngineRecipe | PolicyRecipe | None:
        """How a policy that is not the trainer's own is built."""
        config, model = self.config, self.model
        if config.engine == "vllm":
            folder = engine_folder(model, self.folder / FOLDER)
            return EngineRecipe.of(config, model, self.vocab, self.env, folder, self.mailbox)
        if self.mailbox is None:
            return None
        return PolicyRecipe.of(config, model, self.vocab, self.env.max_new_tokens, self.mailbox)

    def _one_step(self) -> None:
        config = self.config
        self._heed()
        batch = self.buffer.sample()
        if self.engine is not None:
            self.engine.sleep()
        with enough_memory(PASS_SIZES):
            metrics = self.learner.update(batch)
        self.step += 1
        self._publish()
        self.collector.advance(self.step)
        metrics |= self.meters.step(batch, self.collector.status()) | {keys.VERSION: self.step}
        self._mark()
        try:
            if config.eval_every and self.step % config.eval_every == 0 and self.step < config.steps:
                began = time.monotonic()
                metrics["accuracy"] = self.evaluator(self.model, on_block=self._heed).accuracy
                metrics["eval_seconds"] = time.monotonic() - began
        finally:  # an interrupted evaluation does not undo the step
            self.report.step(self.step, metrics)
        if self.step % config.log_every == 0 or self.step == config.steps:
            self.report.sample(self.step, self._sample(batch))
        if config.save_every and self.step % config.save_every == 0:
            self._save()

    def _publish(self) -> None:
        """Give the weights of this step to whoever samples; the version is the number of updates."""
        if self.mailbox is not None:
            self.mailbox.publish(published(self.config, self.model, self.vocab), self.step)
        self.actor.set_version(self.step)

    def _mark(self) -> None:
        """Note where the data stands after a finished step: there a resumed run goes on, with all of the next batch."""
        self._progress = {
            "data": self.buffer.progress(),
            # Workers measure success for themselves, anew after a resume.
            "curriculum": None if self.config.workers else self.env.state_dict().get("curriculum"),
        }

    # -- what it leaves --------------------------------------------------------------------------

    def _finish(self, outcome: str, *, evaluate: bool, cause: str = "") -> dict[str, Any]:
        self.meters.stop()
        self.close()
        if self.warm:
            self._save()
        else:
            self.report.note("stopped during the warm start: nothing to resume; start again with --overwrite")
        after: Evaluation | None = None
        if evaluate:
            self.report.phase(f"evaluating {self.evaluator.problems} held-out problems")
            try:
                after = self.evaluator(self.model, on_block=self._heed)
                self.report.step(self.step, {"accuracy": after.accuracy})
            except Interrupted:
                outcome = "interrupted"
        summary: dict[str, Any] = {
            "outcome": outcome,
            "accuracy_before": self.accuracy_before,
            "accuracy_before_interval": self.interval_before,
            "accuracy_after": after.accuracy if after else None,
            "accuracy_after_interval": list(after.interval) if after else None,
            "eval_problems": self.evaluator.problems,
            "steps": self.step,
            **self.meters.summary(),
        }
        if cause:
            summary["cause"] = cause
        return self.report.finish(summary)

    def _save(self) -> None:
        if not all(bool(torch.isfinite(parameter).all()) for parameter in self.model.parameters()):
            self.report.note(
                "not saved: the weights are no longer finite; an earlier checkpoint stays as it is"
            )
            return
        state = {
            "step": self.step,
            "accuracy_before": self.accuracy_before,
            "interval_before": self.interval_before,
            "lora": asdict(self.config.lora),
            "learner": self.learner.state_dict(),
            **self._progress,
            "meters": self.meters.state_dict(),
        }
        checkpoint.save(self.folder / CHECKPOINT, self.model, self.vocab, state)

    def _info(self) -> dict[str, Any]:
        bank = self.env.bank
        return {
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "trained_parameters": sum(p.numel() for p in lora.trainable(self.model).values()),
            "train_problems": len(bank),
            "held_out_problems": self.evaluator.problems,
            "max_new_tokens": self.env.max_new_tokens,
            "torch": torch.__version__,
        }

    def _sample(self, batch: TensorDictBase) -> dict[str, Any]:
        """One completion of the batch, another place in it each time."""
        row = batch[(self.step * 7919) % batch.shape[0]]
        start, end, problem = int(row[keys.PROMPT_LENGTH]), int(row[keys.LENGTH]), int(row[keys.PROBLEM])
        return {
            "prompt": self.env.bank.prompt_texts[problem],
            "completion": self.vocab.decode(row[keys.TOKENS][start:end].tolist()),
            "answer": self.env.bank.answer_texts[problem],
            keys.VERDICT: Verdict(int(row[keys.VERDICT])).name,
            keys.REWARD: float(row[keys.REWARD]),
            keys.REWARD_PARTS: dict(
                zip(self.env.rewards.names, row[keys.REWARD_PARTS].tolist(), strict=True)
            ),
            keys.GROUP: int(row[keys.GROUP]),
            keys.MEMBER: int(row[keys.MEMBER]),
            keys.VERSION: int(row[keys.VERSION][start]),
            STALENESS: int(row[STALENESS]),
        }


def _accuracy(result: Evaluation) -> str:
    low, high = result.interval
    return f"{result.accuracy:.1%} of {result.problems} held-out problems (95 % interval {low:.1%} to {high:.1%})"
