"""vLLM as the policy of an env: the interface of TransformersPolicy, the tokens from an engine in other processes.

    policy = VLLMPolicy(EngineOptions(folder, max_model_len=64), vocab, block_size=64, mailbox=mailbox)
    tensordict = policy(env.reset())       # writes action, log_prob and version, each [B, K]
    policy.close()

Tokens go in and tokens come out; they are the truth, and what the engine remembers is a memo. So an engine that dies
is replaced by a new one with the weights in the mailbox, and is asked again.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from atrl_envs import streams
from atrl_envs.keys import ACTION, GROUP, LENGTH, LOG_PROB, MEMBER, PROBLEM, PROMPT_LENGTH, TOKENS, VERSION
from atrl_envs.vocab import Vocab

from ..canary import canary_tokens, differs
from .transformers_policy import NO_WEIGHTS
from .vllm_engine import Answer, Engine, EngineDied, EngineOptions, Request

Result = TypeVar("Result")
_SEEDS = (1 << 63) - 1
_LOOKS = 4  # publications that may overtake a reader before it goes on with what it has


class WrongWeights(RuntimeError):
    """The engine does not compute with the weights that were published; the message names the fault."""


@dataclass(frozen=True)
class Adapter:
    """Rank and alpha of the LoRA adapter that is published; r 0: whole weights are."""

    r: int = 0
    alpha: float = 1.0


class VLLMPolicy(TensorDictModuleBase):
    """Sample (or take greedily) a block of K tokens per slot from a vLLM engine.

    Reads and writes what TransformersPolicy does: `tokens`, `length`, `prompt_length`, `problem`, `group`, `member`;
    `action`, `log_prob` (of the tempered distribution), `version`, `[B, K]`.

    Determinism: the noise of a request is a function of (seed, group, member, position of the block in the response),
    so an episode does not depend on its slot, its neighbours' order or the worker. It does depend on the block size,
    since each block is a request with noise of its own, and, in the last bits of its logits, on what is computed
    beside it: two runs may part where two tokens are nearly equally good.

    Weights: polled before each block, never taken inside one. Cache rule: nothing computed with older weights is
    used again. Whole weights: every request is salted with the version and the prefix cache is emptied. Adapters: every
    version has a name and a number of its own, which are part of the cache's keys; the older one is removed. A
    half-finished response is therefore computed anew with the new weights (`in_flight` is always "recompute"); while
    the weights stay, the prefix cache makes its next block cheap.

    Every publication is checked: the names, the fingerprint of what the engine's process read, and the canary (see
    canary.py). WrongWeights says which of them failed.

    Args:
        options: of the engine; with `options.r` the mailbox brings adapters to the weights in the folder.
        vocab: for the EOS and pad ids.
        block_size, temperature, greedy, seed, max_new_tokens: as in TransformersPolicy; greedy needs temperature 1.
        mailbox: a WeightMailbox, or None to serve the folder's weights as version 0.
        alpha: of the adapter: its product is scaled by alpha / options.r.
        names: of the tensors that a publication must have; None to take what comes.
        max_replacements: engines that may die one after the other without a block between.
    """

    def __init__(
        self,
        options: EngineOptions,
        vocab: Vocab,
        *,
        block_size: int = 16,
        temperature: float = 1.0,
        greedy: bool = False,
        seed: int = 0,
        max_new_tokens: int | None = None,
        mailbox: Any = None,
        alpha: float = 1.0,
        names: Sequence[str] | None = None,
        max_replacements: int = 3,
    ) -> None:
        super().__init__()
        if temperature <= 0:
            raise ValueError(
                f"temperature must be above 0, got {temperature}; for the most likely token use greedy=True."
            )
        if greedy and temperature != 1.0:
            raise ValueError(
                f"got greedy=True with temperature {temperature}; vLLM's greedy log-probabilities are those of "
                "temperature 1; leave the temperature out."
            )
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1 token, got {block_size}.")
        if options.dummy and mailbox is None:
            raise ValueError(
                "got made-up weights (dummy) and no mailbox that would bring others; give one of both."
            )
        self.in_keys = [TOKENS, LENGTH, PROMPT_LENGTH, PROBLEM, GROUP, MEMBER]
        self.out_keys = [ACTION, LOG_PROB, VERSION]
        self.options, self.vocab, self.mailbox = options, vocab, mailbox
        self.block_size, self.temperature, self.greedy, self.seed = block_size, temperature, greedy, seed
        self.max_new_tokens, self.max_replacements = max_new_tokens, max_replacements
        self.adapter = Adapter(options.r, alpha)
        self.names = None if names is None else sorted(names)
        self.engine: Engine | None = None
        self.replaced = 0  # engines that died, all together
        self._in_a_row = 0
        self._number = 0  # of the adapter that is loaded
        self._request: Any = None  # names that adapter in a call; None: the base
        self._folder: Path | None = None
        self._canary: list[float] | None = None  # what the weights before said
        self.tokens_sampled = 0  # real response tokens, for the books
        self.forwards = 0  # blocks asked of the engine
        self.register_buffer(
            VERSION, torch.full((1,), 0 if mailbox is None else NO_WEIGHTS, dtype=torch.int64)
        )
        self.register_buffer("fingerprint", torch.zeros(1, dtype=torch.int64))

    # -- acting ----------------------------------------------------------------------------------

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        action, log_prob, version = self.decode(
            tensordict.get(TOKENS),
            *(tensordict.get(key).squeeze(-1) for key in (LENGTH, PROMPT_LENGTH, PROBLEM, GROUP, MEMBER)),
        )
        tensordict.set(ACTION, action)
        tensordict.set(LOG_PROB, log_prob)
        tensordict.set(VERSION, version)
        return tensordict

    @torch.no_grad()
    def decode(
        self,
        tokens: Tensor,
        length: Tensor,
        prompt_length: Tensor,
        problem: Tensor,
        group: Tensor,
        member: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One block for `tokens` `[B, S]` and per-row scalars `[B]`: action, log_prob, version `[B, K]`."""
        shape = (tokens.shape[0], self.block_size)
        action = tokens.new_full(shape, self.vocab.pad_id)
        log_prob = torch.zeros(shape, dtype=torch.float32, device=tokens.device)
        version = tokens.new_full(shape, -1)
        limit = torch.full_like(length, tokens.shape[1])
        if self.max_new_tokens is not None:
            limit = torch.minimum(limit, prompt_length + self.max_new_tokens)
        slots = ((group >= 0) & (length < limit)).nonzero().squeeze(-1)
        seeds = streams.mix(self.seed, group, member, length - prompt_length) & _SEEDS
        requests = [
            Request(
                tokens[b, : int(length[b])].tolist(),
                int(seeds[b]),
                min(self.block_size, int(limit[b] - length[b])),
            )
            for b in slots.tolist()
        ]
        answers = self._persist(lambda: self._block(requests))
        for b, answer in zip(slots.tolist(), answers, strict=True):
            count = len(answer.tokens)
            action[b, :count] = action.new_tensor(answer.tokens)
            log_prob[b, :count] = log_prob.new_tensor(answer.log_probs)
            version[b, :count] = self.version
            self.tokens_sampled += count
        return action, log_prob, version

    def _block(self, requests: list[Request]) -> list[Answer]:
        engine = self._awake()
        self._take(engine)
        if not requests:
            return []
        if int(self.version) == NO_WEIGHTS:
            raise RuntimeError(
                "Asked to act before any weights were published; publish to the mailbox first."
            )
        temperature = 0.0 if self.greedy else self.temperature
        self.forwards += 1
        answers = engine.ask(
            requests,
            temperature=temperature,
            stop=self.vocab.eos_id,
            adapter=self._request,
            salt=f"v{int(self.version)}",
        )
        self._in_a_row = 0
        return answers

    # -- the engine ------------------------------------------------------------------------------

    def sleep(self) -> bool:
        """Give the device's memory back until the next block; False, and nothing done, on a CPU (see Engine.sleep)."""
        return self.engine is not None and self.engine.sleep()

    def close(self) -> None:
        """End the engine and remove its adapter files; twice is fine."""
        if self.engine is not None:
            self.engine.close()
            self.engine = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _awake(self) -> Engine:
        if self.engine is None:
            self.engine = Engine(self.options)
            self._request, self._number, self._canary = None, 0, None
            if self.mailbox is not None:
                self.set_version(NO_WEIGHTS)  # whatever it was started with
        self.engine.wake()
        return self.engine

    def _persist(self, act: Callable[[], Result]) -> Result:
        """Do it, with a new engine where the old one dies meanwhile."""
        while True:
            try:
                return act()
            except EngineDied as death:
                if self.engine is not None:
                    self.engine.close()
                    self.engine = None
                self.replaced += 1
                self._in_a_row += 1
                if self._in_a_row > self.max_replacements:
                    raise RuntimeError(
                        f"{self._in_a_row} vLLM engines died one after the other, and no block was finished between; "
                        "the last said why on standard error; out of memory? Give a smaller --vllm.memory-gb, "
                        "or use --engine transformers"
                    ) from death

    # -- weights ---------------------------------------------------------------------------------

    def take_new_weights(self) -> bool:
        """Look into the mailbox and let the engine take newer weights. True if there were any."""
        before = int(self.version)
        self._persist(lambda: self._take(self._awake()))
        return int(self.version) != before

    def set_version(self, version: int, fingerprint: int = 0) -> None:
        """Say which weights the engine holds now."""
        self.version.fill_(version)
        self.fingerprint.fill_(fingerprint)

    def _take(self, engine: Engine) -> None:
        """Let the engine take what is newer than it holds, and check that it serves it."""
        if self.mailbox is None or self.mailbox.version <= int(self.version):
            return
        for _ in range(_LOOKS):
            receipt = self._read(engine)
            published = self._label()
            if receipt is None:  # a publisher that laps the reader: go on with what there is
                return
            if receipt["number"] == published[0]:
                break  # else the next publication came meanwhile, or it is not our mailbox
        assert receipt is not None
        self._check_bytes(receipt, published)
        if self.adapter.r:
            self._switch_adapter(engine, receipt)
        else:
            engine.forget()
        self._check_canary(engine, receipt)
        self.set_version(receipt["number"], receipt["fingerprint"])

    def _read(self, engine: Engine) -> dict[str, Any] | None:
        """Let every process of the engine read the mailbox; what the first of them read."""
        path, newer_than = self._source(), int(self.version)
        if self.adapter.r:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="atrl-adapter-"))
            adapter = self.adapter
            return engine.call(
                "atrl_write_adapter", path, newer_than, str(self._folder), adapter.r, adapter.alpha
            )[0]
        return engine.call("atrl_take_weights", path, newer_than)[0]

    def _source(self) -> str:
        return str(self.mailbox.path)

    def _switch_adapter(self, engine: Engine, receipt: dict[str, Any]) -> None:
        assert self._folder is not None
        old = self._number
        # Versions may begin at 0, numbers of adapters at 1.
        name, self._number = f"version-{receipt['number']}", receipt["number"] + 1
        self._request = engine.add_adapter(name, self._number, str(self._folder / name))
        if old and old != self._number:
            engine.remove_adapter(old)
        for other in self._folder.iterdir():
            if other.name != name:
                shutil.rmtree(other, ignore_errors=True)

    def _label(self) -> tuple[int, int]:
        """Version and fingerprint of the last publication, of the same one."""
        while True:
            label = self.mailbox.version, self.mailbox.fingerprint
            if self.mailbox.version == label[0]:
                return label

    def _check_bytes(self, receipt: dict[str, Any], published: tuple[int, int]) -> None:
        """What was read must be what was published: all of the tensors, and every bit of them."""
        number, got = receipt["number"], sorted(receipt["names"])
        absent = receipt["missing"] or sorted(set(self.names or got) - set(got))
        if absent:
            raise WrongWeights(
                f"version {number} is not whole: {len(absent)} tensors were not sent to the engine, among them "
                f"{', '.join(absent[:3])}; publish all parameters that are trained"
            )
        if self.names is not None and got != self.names:
            raise WrongWeights(
                f"version {number} has tensors that this run does not train, among them "
                f"{', '.join(sorted(set(got) - set(self.names))[:3])}; another run publishes in {self._source()}"
            )
        if (number, receipt["fingerprint"]) != published:
            raise WrongWeights(
                f"version {number}: the engine read weights of fingerprint {receipt['fingerprint']}, published was "
                f"version {published[0]} with {published[1]}; it reads another worker's weights ({self._source()}), or "
                "they were damaged on the way"
            )

    def _check_canary(self, engine: Engine, receipt: dict[str, Any]) -> None:
        """The engine must say of the canary what the trainer's model says; WrongWeights where it does not."""
        said = receipt["canary"]
        if said is None:
            return
        tokens = canary_tokens(self.vocab.size, len(said))
        seen = torch.tensor(engine.score(tokens, self._request))
        before, self._canary = self._canary, seen.tolist()
        dtype = self.options.dtype
        apart = differs(torch.tensor(said), seen, dtype)
        if apart is None:
            return
        number = receipt["number"]
        fault = "it computes with other weights"
        if self.adapter.r and differs(torch.tensor(engine.score(tokens)), seen, dtype) is None:
            fault = "the adapter was never applied: it computes with the base model"
        elif before is not None and differs(torch.tensor(before), seen, dtype) is None:
            fault = (
                "the version was raised without the weights: it computes with those it had before; publish after "
                "the update, never before"
            )
        raise WrongWeights(
            f"version {number}: the engine's log-probabilities of the canary are {apart:.3g} from the trainer's (more "
            f"than numerics in {dtype} explain); {fault}"
        )
