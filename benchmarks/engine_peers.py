"""Four ways to sample the same responses: slots of ours, transformers' generate and continuous batching, vLLM.

    work = Work(model=folder, prompts=16, samples_per_prompt=8)
    go = ENGINES["generate"](work).ready(work.lengths())    # the model is loaded, the requests are made
    made = go()                                              # [P, G]: tokens of each response

A response ends after the number of tokens that was drawn for it, whatever they are: an EOS that is sampled earlier
ends nothing. Every engine is given the same prompts as token ids and samples at temperature 1 from all tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import GenerationConfig, StoppingCriteria

import atrl_envs
from atrl_agents import models
from atrl_agents.policies import TransformersPolicy
from atrl_collectors import StalenessPolicy, make_buffer, make_collector
from atrl_envs import keys

Go = Callable[[], Tensor]


@dataclass(frozen=True)
class Work:
    """A batch of responses: P prompts, G samples of each, of lengths that are log-normal and cut at `longest`."""

    model: str
    dtype: str = "float32"
    env_id: str = "atrl/WordProblems-v0"
    prompts: int = 16
    samples_per_prompt: int = 8
    rows: int = 32
    median: float = 24.0
    sigma: float = 1.0
    longest: int = 256
    block_size: int = 8
    threads: int = 2
    seed: int = 0

    def lengths(self) -> Tensor:
        """Tokens of each response, [P, G] int64: a function of the seed."""
        generator = torch.Generator().manual_seed(self.seed)
        normal = torch.randn(self.prompts, self.samples_per_prompt, generator=generator)
        return (self.median * (self.sigma * normal).exp()).round().clamp(1, self.longest).long()


class Engine(Protocol):
    """An engine with the model of a work in it."""

    def __init__(self, work: Work) -> None: ...

    def ready(self, lengths: Tensor) -> Go:
        """What samples the first prompts' responses, of these lengths [p, G]."""
        ...


class Sampler:
    """Model, vocabulary and prompts, the same for every engine."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model, self.vocab = models.load(work.model, dtype=work.dtype)  # type: ignore[arg-type]
        self.model = model.to(self.device)
        self.bank = self.env(work.samples_per_prompt).bank

    def env(self, num_envs: int, bank: Any = None) -> Any:
        """The env of the work; its groups 0, 1, ... have the same problems with any number of slots."""
        work = self.work
        return atrl_envs.make(
            work.env_id,
            num_envs=num_envs,
            group_size=work.samples_per_prompt,
            block_size=work.block_size,
            max_new_tokens=work.longest,
            vocab=self.vocab,
            split="train",
            seed=0,
            bank=bank,
            device=self.device,
        )

    def requests(self, lengths: Tensor) -> list[list[int]]:
        """The prompt of each response, in the order of `lengths.flatten()`."""
        first = self.env(lengths.numel(), self.bank).reset()
        return [
            row[:length].tolist()
            for row, length in zip(first[keys.TOKENS], first[keys.PROMPT_LENGTH].flatten(), strict=True)
        ]


# -- ours --------------------------------------------------------------------------------------------


class FixedLengths(TransformersPolicy):
    """The slot engine, with a length for every response: it is cut there, and its last token is EOS for the env."""

    def __init__(self, model: Any, vocab: Any, lengths: Tensor, **options: Any) -> None:
        # No token is the end of a response to the engine.
        super().__init__(model, SimpleNamespace(pad_id=vocab.pad_id, eos_id=-1), **options)
        self.lengths, self.eos, self.other = lengths, vocab.eos_id, (vocab.eos_id + 1) % vocab.size

    def decode(
        self,
        tokens: Tensor,
        length: Tensor,
        prompt_length: Tensor,
        problem: Tensor,
        group: Tensor,
        member: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        self.max_new_tokens = self.lengths[group.clamp(min=0), member.clamp(min=0)]
        block = super().decode(tokens, length, prompt_length, problem, group, member)
        action = block[0].masked_fill_(block[0] == self.eos, self.other)
        last = prompt_length + self.max_new_tokens - 1 - length  # column of a row's last token
        ending = ((group >= 0) & (last < self.block_size)).nonzero().squeeze(-1)
        action[ending, last[ending]] = self.eos
        return block


class Slots(Sampler):
    """A synchronous rollout as `atrl train` has it: env, verifier, collector and buffer around the slot engine."""

    def ready(self, lengths: Tensor) -> Go:
        work, (prompts, samples) = self.work, lengths.shape
        env = self.env(min(work.rows, lengths.numel()), self.bank)
        policy = FixedLengths(
            self.model, self.vocab, lengths.to(self.device), block_size=work.block_size, seed=work.seed
        )
        buffer = make_buffer(StalenessPolicy(prompts, samples), env.sequence_length)
        collector = make_collector(env, policy, buffer=buffer)

        def go() -> Tensor:
            batch = buffer.sample()
            made = torch.zeros_like(lengths)
            place = batch[keys.GROUP].flatten(), batch[keys.MEMBER].flatten()
            made[place] = (batch[keys.LENGTH] - batch[keys.PROMPT_LENGTH]).flatten()
            collector.close()
            return made

        return go


# -- transformers ------------------------------------------------------------------------------------


def plain_sampling(pad_id: int, longest: int) -> GenerationConfig:
    """Temperature 1, all tokens, no end."""
    return GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=longest,
        pad_token_id=pad_id,
        eos_token_id=None,
    )


class EndAt(StoppingCriteria):
    """A row has ended when it has so many columns, [rows]."""

    def __init__(self, columns: Tensor) -> None:
        self.columns = columns

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        return input_ids.shape[1] >= self.columns


class Generate(Sampler):
    """`model.generate` on batches of `rows` prompts, one batch after the other, in the order of the groups."""

    def ready(self, lengths: Tensor) -> Go:
        torch.manual_seed(self.work.seed)
        self.model.generation_config = plain_sampling(self.vocab.pad_id, int(lengths.max()))
        wanted, prompts = lengths.flatten(), self.requests(lengths)
        batches = self.order(wanted).split(self.work.rows)

        def go() -> Tensor:
            made = torch.zeros_like(wanted)
            for batch in batches:
                made[batch] = self.generate([prompts[i] for i in batch.tolist()], wanted[batch])
            return made.view_as(lengths)

        return go

    def order(self, wanted: Tensor) -> Tensor:
        return torch.arange(wanted.numel())

    def generate(self, prompts: list[list[int]], wanted: Tensor) -> Tensor:
        width = max(map(len, prompts))
        ids = torch.tensor([[self.vocab.pad_id] * (width - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        out = self.model.generate(
            ids.to(self.device),
            attention_mask=mask.to(self.device),
            stopping_criteria=[EndAt((width + wanted).to(self.device))],
        )
        return wanted.clamp(max=out.shape[1] - width)


class GenerateSorted(Generate):
    """The same with rows of similar length in a batch, which nobody can know before they are sampled."""

    def order(self, wanted: Tensor) -> Tensor:
        return wanted.argsort(descending=True, stable=True)


class ContinuousBatching(Sampler):
    """transformers' own: a thread that computes whatever rows there are, with a paged cache."""

    PAGE = 32  # tokens; its 256 would leave prompts as short as these unshared
    BATCH_TOKENS = 1024

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        from transformers import ContinuousBatchingConfig

        longest = work.longest + self.bank.max_prompt_length
        # Without these it would take nine tenths of the memory for its cache.
        pages = work.rows * (-(-longest // self.PAGE) + 1)
        self.config = ContinuousBatchingConfig(
            page_size=self.PAGE,
            num_blocks=pages,
            max_batch_tokens=self.BATCH_TOKENS,
            max_requests_per_batch=work.rows,
            seed=work.seed,
        )

    def ready(self, lengths: Tensor) -> Go:
        sampling = plain_sampling(self.vocab.pad_id, int(lengths.max()))
        manager = self.model.init_continuous_batching(sampling, self.config)
        wanted, prompts = lengths.flatten().tolist(), self.requests(lengths)
        manager.start()

        def go() -> Tensor:
            for number, (prompt, count) in enumerate(zip(prompts, wanted, strict=True)):
                manager.add_request(prompt, str(number), max_new_tokens=count, eos_token_id=-1)
            made = torch.zeros(len(wanted), dtype=torch.int64)
            for _ in wanted:
                out = self.result(manager)
                made[int(out.request_id)] = len(out.generated_tokens)
            manager.stop(block=True)
            return made.view_as(lengths)

        return go

    @staticmethod
    def result(manager: Any) -> Any:
        while True:
            out = manager.get_result(timeout=1.0)
            if out is not None and out.error is not None:
                raise RuntimeError(out.error)
            if out is not None:
                return out
            if not manager.is_running():
                raise RuntimeError("the generation thread of continuous batching ended")


# -- vLLM --------------------------------------------------------------------------------------------


class VLLM(Sampler):
    """The engine behind `--engine vllm`, in a process of its own."""

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        from atrl_agents.policies.vllm_engine import Engine as OurEngine
        from atrl_agents.policies.vllm_engine import EngineOptions

        self.model = None  # the engine has its own
        self.engine = OurEngine(
            EngineOptions(
                work.model,
                dtype=work.dtype,
                max_model_len=work.longest + self.bank.max_prompt_length,
                max_rows=work.rows,
                threads=work.threads,
            )
        )

    def ready(self, lengths: Tensor) -> Go:
        from atrl_agents.policies.vllm_engine import Request

        wanted = lengths.flatten().tolist()
        requests = [
            Request(prompt, seed=number, room=room)
            for number, (prompt, room) in enumerate(zip(self.requests(lengths), wanted, strict=True))
        ]

        def go() -> Tensor:
            answers = self.engine.ask(requests, temperature=1.0, stop=None)
            return torch.tensor([len(answer.tokens) for answer in answers]).view_as(lengths)

        return go


ENGINES: dict[str, type[Any]] = {
    "atrl slots": Slots,
    "generate": Generate,
    "generate, sorted": GenerateSorted,
    "continuous batching": ContinuousBatching,
    "vllm": VLLM,
}
