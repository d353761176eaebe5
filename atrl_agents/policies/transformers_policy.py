"""Any transformers causal LM as a TorchRL policy that answers in blocks of tokens.

    policy = TransformersPolicy(model, vocab, block_size=16, temperature=1.0)
    tensordict = policy(env.reset())       # writes action, log_prob and version, each [B, K]

Rows share one model call whatever their lengths. What was computed for a row is kept in a slot cache
and trusted only while it matches the row (decision 'the KV cache is a memo'); new weights are taken
before a block, never inside one.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from atrl_envs import streams
from atrl_envs.keys import (
    ACTION,
    GROUP,
    LENGTH,
    LOG_PROB,
    MEMBER,
    PROBLEM,
    PROMPT_LENGTH,
    RESPONSE_MASK,
    TOKENS,
    VERSION,
)
from atrl_envs.vocab import Vocab

from ..heads import logits_at
from ..log_probs import ResponseLogProbs, response_log_probs
from .attention_check import check_attention
from .bands import banded, bands_of
from .sampling import sample
from .slots import Memo, SlotCache

InFlight = Literal["keep", "recompute"]
_EPISODE_STRIDE = 1 << 20  # members of a group, at most; (group, member) -> one episode number
NO_WEIGHTS = -1  # the version of a policy that waits for its first publication
_ROUND = 32  # columns of the working cache come in multiples of this, so that it is seldom made anew
_COMPACT_BELOW = 0.8  # share of live rows under which the working cache is rewritten without the others


class Mailbox(Protocol):
    """Where new weights come from: `poll` gives a complete, checked update or None."""

    def poll(self, newer_than: int) -> Any: ...


@dataclass
class _Rows:
    """The rows a block decodes; every tensor is `[n]`, one entry a row of the working cache."""

    slot: Tensor
    length: Tensor  # tokens so far, prompt included
    limit: Tensor  # the length at which the episode is cut
    group: Tensor
    member: Tensor
    prompt_length: Tensor
    live: Tensor  # bool: still being decoded

    def take(self, index: Tensor) -> _Rows:
        return _Rows(*(getattr(self, field.name)[index] for field in fields(self)))


class TransformersPolicy(TensorDictModuleBase):
    """Sample (or take greedily) a block of K tokens per slot from a transformers causal LM.

    Reads `tokens`, `length`, `prompt_length`, `problem`, `group`, `member`; writes `action` (right-padded
    with the pad id after EOS or the limit), `log_prob` (of the tempered distribution that was sampled,
    0 in the padding) and `version` (-1 in the padding), all `[B, K]`. Rows without an episode
    (`group` < 0) cost nothing.

    Args:
        model: a transformers causal LM with SDPA attention that sees all earlier tokens; see attention_check.py.
        vocab: for the EOS and pad ids.
        block_size: K, tokens per call.
        temperature: of sampling, > 0.
        greedy: take the most likely token.
        seed: of the sampling noise; the noise of a token is a function of (seed, group, member, position).
        max_new_tokens: stop a row there (the env would ignore more); None for the end of `tokens`.
        in_flight: what happens to a half-finished row when new weights arrive: `keep` its cache, or
            `recompute` it from its tokens.
        mailbox: polled before each block for newer weights.
    """

    def __init__(
        self,
        model: Any,
        vocab: Vocab,
        *,
        block_size: int = 16,
        temperature: float = 1.0,
        greedy: bool = False,
        seed: int = 0,
        max_new_tokens: int | None = None,
        in_flight: InFlight = "keep",
        mailbox: Mailbox | None = None,
    ) -> None:
        super().__init__()
        if temperature <= 0:
            raise ValueError(
                f"temperature must be above 0, got {temperature}; for the most likely token use greedy=True."
            )
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1 token, got {block_size}.")
        if in_flight not in ("keep", "recompute"):
            raise ValueError(f"in_flight must be 'keep' or 'recompute', got {in_flight!r}.")
        check_attention(model)
        self.in_keys = [TOKENS, LENGTH, PROMPT_LENGTH, PROBLEM, GROUP, MEMBER]
        self.out_keys = [ACTION, LOG_PROB, VERSION]
        self.model = model
        self.vocab = vocab
        self.block_size = block_size
        self.temperature = temperature
        self.greedy = greedy
        self.seed = seed
        self.max_new_tokens = max_new_tokens
        self.in_flight = in_flight
        self.mailbox = mailbox
        self.num_layers = model.config.get_text_config().num_hidden_layers
        self.memo: Memo | None = None
        self.tokens_sampled = 0  # real response tokens, for the books
        self.forwards = 0  # calls of the model
        device = next(model.parameters()).device
        # With a mailbox the model holds no published weights yet, whatever is in it now.
        first = 0 if mailbox is None else NO_WEIGHTS
        self.register_buffer(VERSION, torch.full((1,), first, dtype=torch.int64, device=device))
        self.register_buffer("fingerprint", torch.zeros(1, dtype=torch.int64, device=device))

    # -- weights ---------------------------------------------------------------------------------

    def take_new_weights(self) -> bool:
        """Poll the mailbox and copy newer weights into the model. True if there were any."""
        if self.mailbox is None:
            return False
        update = self.mailbox.poll(newer_than=int(self.version))
        if update is None:
            return False
        parameters = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, tensor in update.tensors.items():
                parameters[name].copy_(tensor)
        self.set_version(update.version, update.fingerprint)
        return True

    def set_version(self, version: int, fingerprint: int = 0) -> None:
        """Say which weights the model holds now, after they changed outside (a shared model)."""
        self.version.fill_(version)
        self.fingerprint.fill_(fingerprint)

    # -- training --------------------------------------------------------------------------------

    def response_log_probs(
        self,
        tokens: Tensor,
        prompt_length: Tensor,
        length: Tensor,
        group: Tensor | None = None,
        *,
        entropy_gradient: bool = False,
    ) -> ResponseLogProbs:
        """Log-probabilities of given responses, with gradient; see log_probs.response_log_probs."""
        return response_log_probs(
            self.model,
            tokens,
            prompt_length,
            length,
            group=group,
            temperature=self.temperature,
            entropy_gradient=entropy_gradient,
        )

    def get_dist(self, tensordict: TensorDictBase, **_: Any) -> Any:
        """The distribution of every response token, as TorchRL's LLM losses ask for it: an LLMMaskedCategorical [N, S].

        Reads `tokens` and `response_mask`; whole logits [N, S, V] are made. With `set_keys(action="tokens",
        sample_log_prob="log_prob")` torchrl.objectives.llm.GRPOLoss takes batches of our buffer.
        """
        from torchrl.modules.distributions import LLMMaskedCategorical

        tokens, mask = tensordict.get(TOKENS), tensordict.get(RESPONSE_MASK)
        # Right-padded and causal: a real token never sees the padding after it, so no mask is needed.
        logits = self.model(input_ids=tokens, use_cache=False).logits.float() / self.temperature
        before = torch.cat([torch.zeros_like(logits[:, :1]), logits[:, :-1]], 1)
        return LLMMaskedCategorical(logits=before, mask=mask)

    # -- acting ----------------------------------------------------------------------------------

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        self.take_new_weights()
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
        slots, size = tokens.shape
        shape = (slots, self.block_size)
        action = tokens.new_full(shape, self.vocab.pad_id)
        log_prob = torch.zeros(shape, dtype=torch.float32, device=tokens.device)
        version = tokens.new_full(shape, -1)
        if self.memo is None or self.memo.episode.shape[0] != slots:
            self.memo = Memo.empty(slots, tokens.device)

        limit = torch.full_like(length, size)
        if self.max_new_tokens is not None:
            limit = torch.minimum(limit, prompt_length + self.max_new_tokens)
        slot = ((group >= 0) & (length < limit)).nonzero().squeeze(-1)
        if slot.numel() == 0:
            return action, log_prob, version
        if int(self.version) == NO_WEIGHTS:
            raise RuntimeError(
                "Asked to act before any weights were published; publish to the mailbox first."
            )
        rows = _Rows(
            slot=slot,
            length=length[slot],
            limit=limit[slot],
            group=group[slot],
            member=member[slot],
            prompt_length=prompt_length[slot],
            live=torch.ones_like(slot, dtype=torch.bool),
        )
        rows, cache, logits = self._open(tokens, problem, rows)
        for k in range(self.block_size):
            token, token_log_prob = sample(logits, temperature=self.temperature, noise=self._noise(rows))
            index = rows.slot[rows.live]
            action[index, k] = token[rows.live]
            log_prob[index, k] = token_log_prob[rows.live]
            version[index, k] = self.version
            self.tokens_sampled += index.shape[0]
            rows.length = rows.length + rows.live.long()  # a row that ended stays where it is
            rows.live = rows.live & (token != self.vocab.eos_id) & (rows.length < rows.limit)
            if k + 1 == self.block_size:
                self._close(rows, cache)
                break
            live = int(rows.live.sum())
            if live == 0:
                break
            if live < _COMPACT_BELOW * rows.live.shape[0]:
                keep = rows.live.nonzero().squeeze(-1)
                rows, token = rows.take(keep), token[keep]
                cache.select(keep)
            logits = self._step(cache, token, rows.length - 1)
        return action, log_prob, version

    def _noise(self, rows: _Rows) -> Tensor | None:
        if self.greedy:
            return None
        return streams.uniform(self.seed, rows.group, rows.member, rows.length - rows.prompt_length)

    # -- the working cache -----------------------------------------------------------------------

    def _open(self, tokens: Tensor, problem: Tensor, rows: _Rows) -> tuple[_Rows, SlotCache, Tensor]:
        """The working cache of these rows and the logits of their next token.

        Rows whose memo matches are loaded and fed their last token; the others are computed from their
        tokens. Returns the rows in the cache's order.
        """
        memo = self.memo
        assert memo is not None
        rows = rows.take(rows.length.argsort(stable=True))
        hit = (memo.episode[rows.slot] == _episode(rows)) & (memo.cached[rows.slot] == rows.length - 1)
        if self.in_flight == "recompute":
            hit &= memo.version[rows.slot] == self.version
        longest = int(rows.length.max())
        room = min(-(-(longest + self.block_size) // _ROUND) * _ROUND, tokens.shape[1])
        misses = (~hit).nonzero().squeeze(-1)
        if misses.numel() == rows.slot.numel():
            cache, logits = self._prefill(tokens, problem, rows, rows.length, room)
            cache.end = longest
            return rows, cache, logits
        cache = SlotCache(self.num_layers, room)
        cache.replace(memo.load(rows.slot, longest - 1, room))
        rest = rows.take(misses)
        if misses.numel() and int(rest.length.max()) > 1:
            # All but the last token, which goes through the model together with that of the other rows.
            fresh, _ = self._prefill(tokens, problem, rest, rest.length - 1, int(rest.length.max()) - 1)
            cache.write(misses, fresh)
        cache.end = longest - 1
        return rows, cache, self._step(cache, tokens[rows.slot, rows.length - 1], rows.length - 1)

    def _prefill(
        self, tokens: Tensor, problem: Tensor, rows: _Rows, upto: Tensor, room: int
    ) -> tuple[SlotCache, Tensor]:
        """Compute the first `upto` [n] tokens of rows; rows that start the same problem share one computation."""
        slot = rows.slot
        fresh = rows.length == rows.prompt_length
        key = torch.where(fresh, problem[slot], -1 - slot)
        distinct, inverse = torch.unique(key, return_inverse=True)
        order = torch.arange(slot.shape[0], device=slot.device)
        first = torch.empty_like(distinct).scatter_(0, inverse, order)
        width = int(upto.max())
        cache = SlotCache(self.num_layers, room)
        cache.end = width
        # Right-padded and causal: a real token never sees the padding after it, so no mask is needed.
        # What the padding leaves in the cache lies beyond the row's length, where decoding masks it.
        ids = tokens[slot[first], :width]
        last = torch.arange(first.shape[0], device=slot.device) * width + (upto[first] - 1).clamp(min=0)
        with logits_at(self.model, last):
            logits = self.model(input_ids=ids, past_key_values=cache, use_cache=True).logits[0]
        self.forwards += 1
        if distinct.shape[0] < slot.shape[0] or not torch.equal(inverse, order):
            cache.select(inverse)
            logits = logits.index_select(0, inverse)
        return cache, logits

    def _step(self, cache: SlotCache, token: Tensor, position: Tensor) -> Tensor:
        """Feed one token a row, each at its own position; the logits of the next, `[n, V]`."""
        cache.positions = position
        cache.end = min(cache.end + 1, cache.room)  # the longest row may have ended while others go on
        visible = torch.arange(cache.end, device=token.device) <= position.unsqueeze(-1)
        with banded(self.model):
            out = self.model(
                input_ids=token.unsqueeze(-1),
                attention_mask=visible[:, None, None, :],
                position_ids=position.unsqueeze(-1),
                past_key_values=cache,
                use_cache=True,
                bands=bands_of(position.cummax(0).values + 1),
            )
        self.forwards += 1
        return out.logits[:, -1]

    def _close(self, rows: _Rows, cache: SlotCache) -> None:
        """Remember the rows that go on: everything but their last token is cached."""
        memo = self.memo
        assert memo is not None
        live = rows.live.nonzero().squeeze(-1)
        rows = rows.take(live)
        memo.keep(rows.slot, live, cache.tensors())
        memo.episode[rows.slot] = _episode(rows)
        memo.cached[rows.slot] = rows.length - 1
        memo.version[rows.slot] = self.version


def _episode(rows: _Rows) -> Tensor:
    return rows.group * _EPISODE_STRIDE + rows.member
