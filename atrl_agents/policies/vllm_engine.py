"""One vLLM engine: started with our rules, asked for tokens by tokens, told where its weights are, replaced when dead.

    engine = Engine(EngineOptions(folder, dtype="float32", max_model_len=64))
    answers = engine.ask([Request([5, 6, 7], seed=3, room=16)], temperature=1.0, stop=1)
    answers[0].tokens, answers[0].log_probs

The rules: no top-p, top-k, min-p or penalties, whatever a generation_config.json in the folder says; log-probabilities
are those of the tempered distribution; nothing is turned into text.
"""

from __future__ import annotations

import contextlib
import multiprocessing.util
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import Any

EXTENSION = "atrl_agents.policies.vllm_worker.EngineSide"
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # the ranks that vLLM has kernels for
_NOTICE_SECONDS = 5.0  # how long after an error the death of a process may show


class EngineDied(RuntimeError):
    """A process of the engine ended; what it was asked has no answer."""


@dataclass(frozen=True)
class EngineOptions:
    """What an engine is made of.

    folder: of the model's config.json, and of its weights unless `dummy`.
    dtype: float32, bfloat16 or float16, as the trainer's.
    max_model_len: longest sequence in tokens.
    max_rows: sequences computed at a time.
    memory_gb: of the KV cache.
    threads: of the engine on a CPU.
    dummy: start with made-up weights; the mailbox brings the real ones.
    r: rank of the adapter that will be published; 0 for whole weights.
    """

    folder: str
    dtype: str = "float32"
    max_model_len: int = 2048
    max_rows: int = 256
    memory_gb: int = 2
    enforce_eager: bool = True
    threads: int = 1
    dummy: bool = False
    r: int = 0
    sleep: bool = False


@dataclass(frozen=True)
class Request:
    """A sequence to go on with: its token ids, the seed of its noise, and how many tokens may follow."""

    tokens: list[int]
    seed: int
    room: int


@dataclass(frozen=True)
class Answer:
    """The tokens that follow, EOS included, and the log-probability of each."""

    tokens: list[int]
    log_probs: list[float]


class Engine:
    """Processes of vLLM; every method raises EngineDied when one of them has ended."""

    def __init__(self, options: EngineOptions) -> None:
        self.options = options
        with _environment(options), _without_interrupts():
            from vllm import LLM

            self.llm = LLM(**_arguments(options))
        # Also at the exit of a rollout worker, which runs no atexit: killed, vLLM would leave shared memory behind.
        self._end = multiprocessing.util.Finalize(self, _shut, args=(self.llm,), exitpriority=100)
        self.asleep = False
        self.pids: list[int] = self.call("atrl_watch", os.getpid())
        self.on_cpu = self._on_cpu()

    def call(self, method: str, *arguments: Any) -> list[Any]:
        """The result of a method of EngineSide in each of vLLM's worker processes."""
        with self._alive():
            return list(self.llm.collective_rpc(method, args=arguments))

    def ask(
        self,
        requests: Sequence[Request],
        *,
        temperature: float,
        stop: int | None,
        adapter: Any = None,
        salt: str = "",
    ) -> list[Answer]:
        """Sample what follows each request; temperature 0 takes the most likely token.

        stop: a token that ends an answer; None: every answer fills its room.
        salt: requests with different salts share no cache.
        """
        from vllm import SamplingParams, TokensPrompt

        prompts = [TokensPrompt(prompt_token_ids=r.tokens, cache_salt=salt or "0") for r in requests]
        parameters = [
            SamplingParams(
                temperature=temperature,
                top_p=1.0,
                top_k=-1,
                min_p=0.0,
                seed=r.seed,
                max_tokens=r.room,
                logprobs=0,  # of the token that was taken, and of no other
                detokenize=False,
                ignore_eos=True,  # the model folder may name other ends; ours is the env's
                stop_token_ids=[] if stop is None else [stop],
            )
            for r in requests
        ]
        with self._alive():
            outputs = self.llm.generate(prompts, parameters, use_tqdm=False, lora_request=adapter)
        return [_answer(output.outputs[0]) for output in outputs]

    def score(self, tokens: list[int], adapter: Any = None) -> list[float]:
        """Log-probability of every token after the first, at temperature 1, computed without any cache."""
        from vllm import SamplingParams, TokensPrompt

        parameters = SamplingParams(
            temperature=1.0, top_p=1.0, max_tokens=1, prompt_logprobs=0, detokenize=False, ignore_eos=True
        )
        prompt = TokensPrompt(prompt_token_ids=tokens)
        with self._alive():
            output = self.llm.generate([prompt], [parameters], use_tqdm=False, lora_request=adapter)[0]
        return [
            entry[token].logprob for entry, token in zip(output.prompt_logprobs[1:], tokens[1:], strict=True)
        ]

    def forget(self) -> None:
        """Empty the prefix cache. Errors: RuntimeError when vLLM refuses, since blocks are in use."""
        with self._alive():
            if not self.llm.reset_prefix_cache():
                raise RuntimeError("vLLM did not reset its prefix cache; what it holds is of older weights")

    def add_adapter(self, name: str, number: int, folder: str) -> Any:
        """Load an adapter; the request object to give to `ask`."""
        from vllm.lora.request import LoRARequest

        request = LoRARequest(name, number, folder)
        with self._alive():
            self.llm.llm_engine.add_lora(request)
        return request

    def remove_adapter(self, number: int) -> None:
        """Unload an adapter by its number."""
        with self._alive():
            self.llm.llm_engine.remove_lora(number)

    def sleep(self) -> bool:
        """Give the device's memory back (weights to the host, KV cache dropped). False where vLLM cannot: on a CPU."""
        if self.on_cpu or not self.options.sleep:
            return False
        with self._alive():
            self.llm.sleep(level=1)
        self.asleep = True
        return True

    def wake(self) -> None:
        """Take the memory again; nothing where it is awake."""
        if self.asleep:
            with self._alive():
                self.llm.wake_up()
            self.asleep = False

    def close(self) -> None:
        """End its processes; twice is fine."""
        self.llm = None
        self._end()

    @contextlib.contextmanager
    def _alive(self) -> Iterator[None]:
        if self.llm is None:
            raise EngineDied("the engine was closed")
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            yield
        except EngineDeadError as error:
            raise EngineDied("a process of the vLLM engine ended") from error
        except Exception as error:  # of many kinds, when a worker goes and the core has not noticed
            end = time.monotonic() + _NOTICE_SECONDS
            while time.monotonic() < end:
                if self._dead():
                    raise EngineDied("a process of the vLLM engine ended") from error
                time.sleep(0.1)
            raise

    def _dead(self) -> bool:
        core = self.llm.llm_engine.engine_core
        return bool(core.resources.engine_dead) or not all(map(_runs, self.pids))

    @staticmethod
    def _on_cpu() -> bool:
        from vllm.platforms import current_platform

        return bool(current_platform.is_cpu())


def _shut(llm: Any) -> None:
    llm.llm_engine.engine_core.shutdown()


def _arguments(options: EngineOptions) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "model": options.folder,
        "dtype": options.dtype,
        "max_model_len": options.max_model_len,
        "max_num_seqs": options.max_rows,
        "kv_cache_memory_bytes": options.memory_gb << 30,
        "enforce_eager": options.enforce_eager,
        "skip_tokenizer_init": True,
        "enable_prefix_caching": True,
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",  # and not the folder's, which may bring a top-p of its own
        "worker_extension_cls": EXTENSION,
        "seed": 0,
    }
    if options.dummy:
        arguments["load_format"] = "dummy"
    if options.sleep:
        arguments["enable_sleep_mode"] = True
    if options.r:
        rank = next((rank for rank in _RANKS if rank >= options.r), None)
        if rank is None:
            raise ValueError(
                f"got an adapter of rank {options.r}; vLLM takes up to {_RANKS[-1]}; give a smaller one"
            )
        # Two: the new one is loaded before the old one goes.
        arguments |= {"enable_lora": True, "max_lora_rank": rank, "max_loras": 2}
    return arguments


def _answer(output: Any) -> Answer:
    tokens = list(output.token_ids)
    return Answer(
        tokens, [entry[token].logprob for entry, token in zip(output.logprobs, tokens, strict=True)]
    )


@contextlib.contextmanager
def _environment(options: EngineOptions) -> Iterator[None]:
    """vLLM reads these when it is imported and when its processes start."""
    lasting = {
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # trainer and engine share the cores
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # a fork of a process whose torch has threads may hang
    }
    for name, value in lasting.items():
        os.environ.setdefault(name, value)
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Processes started inside never see Ctrl-C: it is for their owner, who ends them."""
    resource_tracker.ensure_running()  # it would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    # vLLM installs handlers where it may, and that is in the main thread.
    kept = signal.getsignal(signal.SIGTERM) if threading.current_thread() is threading.main_thread() else None
    try:
        yield
    finally:
        if kept is not None:
            signal.signal(signal.SIGTERM, kept)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
