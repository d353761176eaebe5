"""Loss modules: read keys, call a pure function, write keys.

    loss = GRPOLoss(actor)                   # actor: a TransformersPolicy, or whatever has `response_log_probs`
    out = loss(batch)                        # batch: finished episodes with an advantage
    sum(out[name] for name in out.keys() if name.startswith("loss_")).backward()

The formulas are in surrogates.py, second_moment.py, corrections.py and advantages.py; nothing is computed here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.objectives.common import LossModule

from atrl_envs import keys

from .diagnostics import RatioSums
from .log_probs import ResponseLogProbs
from .loss_check import check_batch
from .objectives import Objective, TokenBatch, policy_terms
from .surrogates import Reduction, Totals, value_loss

PROXIMAL = "proximal_log_prob"
REFERENCE = "reference_log_prob"
KEPT = "kept"
LIMIT = "limit"
VALUE = "value"
TARGET = "value_target"


class Actor(Protocol):
    """What a loss needs of a policy: log-probabilities of given responses, with gradient."""

    def response_log_probs(
        self,
        tokens: Tensor,
        prompt_length: Tensor,
        length: Tensor,
        group: Tensor | None = None,
        *,
        entropy_gradient: bool = False,
    ) -> ResponseLogProbs: ...


class Critic(Protocol):
    """What PPO needs of a critic: the value before every token, `[N, S + 1]`; the last one stands at `length`."""

    def values(
        self, tokens: Tensor, prompt_length: Tensor, length: Tensor, group: Tensor | None = None
    ) -> Tensor: ...


@dataclass(frozen=True)
class Outcome:
    """Terms of the loss by name (`objective`, `kl`, `entropy`, `critic`), sums to report, and what else there is."""

    terms: dict[str, Tensor]
    sums: RatioSums
    extra: dict[str, Tensor] = field(default_factory=dict)

    @property
    def total(self) -> Tensor:
        """What is minimised."""
        return torch.stack(list(self.terms.values())).sum()


class PolicyLoss(LossModule):
    """A loss over finished episodes, as an `Objective` says.

    Reads, for N episodes of S columns: `tokens` `[N, S]`, `prompt_length`, `length` `[N]` (or `[N, 1]`),
    `response_mask` `[N, S]` bool, `log_prob` `[N, S]` (of the policy that sampled), `advantage` `[N]` or `[N, S]`; and
    where they are there, or the objective needs them: `group` `[N]`, `version` `[N, S]`, `proximal_log_prob`,
    `reference_log_prob`, `kept` `[N, S]` and `limit`. `in_keys` names what it cannot do without, `optional_keys` what
    else it uses: select both where entries are selected. Writes `loss_*`, to be summed, and detached diagnostics, `[]`.

    KeyError for a key that is missing; ValueError for shapes that disagree and, on the CPU, for log-probabilities or
    advantages that are not finite, and for positive log-probabilities.
    """

    @dataclass
    class _AcceptedKeys:
        tokens: NestedKey = keys.TOKENS
        prompt_length: NestedKey = keys.PROMPT_LENGTH
        length: NestedKey = keys.LENGTH
        group: NestedKey = keys.GROUP
        response_mask: NestedKey = keys.RESPONSE_MASK
        log_prob: NestedKey = keys.LOG_PROB
        advantage: NestedKey = keys.ADVANTAGE
        version: NestedKey = keys.VERSION
        proximal_log_prob: NestedKey = PROXIMAL
        reference_log_prob: NestedKey = REFERENCE
        kept: NestedKey = KEPT
        limit: NestedKey = LIMIT
        value: NestedKey = VALUE
        value_target: NestedKey = TARGET

    tensor_keys: _AcceptedKeys
    _needed: tuple[str, ...] = (
        keys.TOKENS, keys.PROMPT_LENGTH, keys.LENGTH, keys.RESPONSE_MASK, keys.LOG_PROB, keys.ADVANTAGE,
    )  # fmt: skip
    _diagnostics: tuple[str, ...] = (
        "ratio_mean", "clip_fraction", "kept_fraction", "kl", "entropy", "ess", "chi2", "m2",
    )  # fmt: skip
    _reported: tuple[str, ...] = ()  # besides

    def __init__(self, actor: Any, objective: Objective) -> None:
        super().__init__()
        self.actor_network = actor
        self.spec = objective
        self.set_in_keys()

    # -- TorchRL's interface ---------------------------------------------------------------------

    def set_in_keys(self) -> None:
        self._in_keys = [getattr(self.tensor_keys, name) for name in self._reads()]

    @property
    def in_keys(self) -> list[NestedKey]:  # type: ignore[override]
        return self._in_keys

    @in_keys.setter
    def in_keys(self, values: list[NestedKey]) -> None:
        self._in_keys = values

    @property
    def optional_keys(self) -> list[NestedKey]:
        """What is used where it is there: without `kept`, a batch is taken for a whole one."""
        names = (*self._may_read(), keys.GROUP, *((LIMIT,) if KEPT in self._may_read() else ()))
        return [getattr(self.tensor_keys, name) for name in names]

    @property
    def out_keys(self) -> list[NestedKey]:  # type: ignore[override]
        names = [f"loss_{name}" for name in self._terms()]
        return [*names, *self._diagnostics, *self._reported]

    @out_keys.setter
    def out_keys(self, values: list[NestedKey]) -> None:
        raise RuntimeError("the keys that a loss writes follow from its objective")

    def _forward_value_estimator_keys(self, **kwargs: Any) -> None:
        self.set_in_keys()

    def forward(
        self,
        tensordict: TensorDictBase,
        totals: Totals | None = None,
        versions: tuple[float, float] | None = None,
    ) -> TensorDict:
        """The loss of a (micro-)batch.

        Args:
            totals: sizes of the whole batch it is a part of; None: it is the whole.
            versions: of the proximal and the current weights, for A-3PO.
        """
        self.check(tensordict)
        outcome = self.outcome(tensordict, totals, versions)
        out = {f"loss_{name}": term for name, term in outcome.terms.items()}
        reported = outcome.sums.tensors() | outcome.extra
        return TensorDict(out | {name: value.float() for name, value in reported.items()}, [])

    # -- what it computes ------------------------------------------------------------------------

    def outcome(
        self,
        tensordict: TensorDictBase,
        totals: Totals | None = None,
        versions: tuple[float, float] | None = None,
    ) -> Outcome:
        """The terms and their diagnostics as sums, for callers that accumulate micro-batches; nothing is checked.

        Arguments as for `forward`.
        """
        terms = policy_terms(self.spec, self.token_batch(tensordict, versions), totals)
        return Outcome({name: getattr(terms, name) for name in PolicyLoss._terms(self)}, terms.sums)

    def token_batch(
        self, tensordict: TensorDictBase, versions: tuple[float, float] | None = None
    ) -> TokenBatch:
        """The `[N, S]` tensors that the objective reads, after a forward pass of the actor."""
        names, spec = self.tensor_keys, self.spec
        tokens, mask = tensordict.get(names.tokens), tensordict.get(names.response_mask)
        advantage = tensordict.get(names.advantage)
        if advantage.shape != mask.shape:
            advantage = advantage.reshape(-1, 1).expand(mask.shape)
        current = self.actor_network.response_log_probs(
            tokens, *self._rows(tensordict), entropy_gradient=spec.entropy_weight != 0
        )
        limit = tensordict.get(names.limit, None)
        return TokenBatch(
            log_prob=current.log_prob,
            behaviour=tensordict.get(names.log_prob),
            advantage=advantage,
            mask=mask,
            entropy=current.entropy,
            proximal=tensordict.get(names.proximal_log_prob, None),
            reference=tensordict.get(names.reference_log_prob, None),
            kept=tensordict.get(names.kept, None),
            limit=None if limit is None else limit.reshape(-1)[0],
            version=tensordict.get(names.version, None),
            versions=versions,
            group=self._per_row(tensordict, keys.GROUP),
        )

    def check(self, tensordict: TensorDictBase) -> None:
        """See the class."""
        reads, optional = (
            {name: getattr(self.tensor_keys, name) for name in names}
            for names in (self._reads(), self._may_read())
        )
        check_batch(tensordict, reads, optional, type(self).__name__)

    # -- parts -----------------------------------------------------------------------------------

    def _reads(self) -> tuple[str, ...]:
        rules = self.spec.rules
        more = {
            "reference_log_prob": self.spec.kl_weight != 0,
            keys.VERSION: rules.interpolated,
            keys.GROUP: any(rule.scope == keys.GROUP for rule in rules.rules),
        }
        return (*self._needed, *(name for name, needed in more.items() if needed))

    def _may_read(self) -> tuple[str, ...]:
        """Entries that are used where they are there."""
        more = {PROXIMAL: self.spec.rules.decoupled, KEPT: self.spec.surrogate == "m2po"}
        return tuple(name for name, used in more.items() if used)

    def _terms(self) -> list[str]:
        weights = {"kl": self.spec.kl_weight, "entropy": self.spec.entropy_weight}
        return ["objective", *(name for name, weight in weights.items() if weight)]

    def _rows(self, tensordict: TensorDictBase) -> tuple[Tensor, Tensor, Tensor | None]:
        prompt_length, length = (
            self._per_row(tensordict, name) for name in (keys.PROMPT_LENGTH, keys.LENGTH)
        )
        assert prompt_length is not None and length is not None
        return prompt_length, length, self._per_row(tensordict, keys.GROUP)

    def _per_row(self, tensordict: TensorDictBase, name: str) -> Tensor | None:
        found = tensordict.get(getattr(self.tensor_keys, name), None)
        return None if found is None else found.reshape(-1)


class GRPOLoss(PolicyLoss):
    """A clipped surrogate with an advantage per response: GRPO and its family (arXiv 2402.03300, eq. 3).

    For keys and errors see PolicyLoss. Dr.GRPO, DAPO, GSPO and CISPO are settings: their reduction, clip and surrogate.

    Args:
        actor: a policy with `response_log_probs`, such as TransformersPolicy.
        clip_low, clip_high: the ratio is clipped to [1 - clip_low, 1 + clip_high].
        reduction: `sequence` (GRPO), `token` (DAPO) or `constant` (Dr.GRPO, which needs `max_tokens`, the length limit
            of a response, where no `totals` say it); see surrogates.reduce.
        settings: the other fields of `Objective`: surrogate, correction, kl_weight, entropy_weight, ...
    """

    def __init__(
        self,
        actor: Any,
        *,
        clip_low: float = 0.2,
        clip_high: float = 0.2,
        reduction: Reduction = "sequence",
        **settings: Any,
    ) -> None:
        super().__init__(
            actor, Objective(clip_low=clip_low, clip_high=clip_high, reduction=reduction, **settings)
        )


class M2POLoss(PolicyLoss):
    """The policy gradient over the tokens that keep the second moment of the log-ratios within a budget (M2PO, arXiv
    2510.01161).

    The constraint is over the whole training batch. Given a whole batch, the module solves it by itself; given a
    micro-batch, it reads `kept` (and `limit`) of the whole batch, which `objectives.solve` makes.

    Args:
        actor: see GRPOLoss.
        budget: largest mean squared log-ratio.
        variant: `paper`, `authors`, `areal` or `ratio`; see second_moment.second_moment_mask.
        settings: the other fields of `Objective`.
    """

    _reported = (
        "m2_kept",
        "dropped_better_more",
        "dropped_better_less",
        "dropped_worse_more",
        "dropped_worse_less",
    )

    def __init__(self, actor: Any, *, budget: float = 0.04, variant: Any = "paper", **settings: Any) -> None:
        settings = {"reduction": "token", **settings}
        super().__init__(actor, Objective(surrogate="m2po", budget=budget, variant=variant, **settings))

    def outcome(
        self,
        tensordict: TensorDictBase,
        totals: Totals | None = None,
        versions: tuple[float, float] | None = None,
    ) -> Outcome:
        outcome = super().outcome(tensordict, totals, versions)
        return replace(outcome, extra=outcome.sums.trust_tensors())


class PPOLoss(PolicyLoss):
    """PPO with a critic (arXiv 1707.06347, eq. 7 and 9): the clipped surrogate, and a value loss.

    Reads besides what PolicyLoss does: `value_target` `[N, S]`, and `value` `[N, S]`, the values when the update began,
    where the value is clipped; `advantages.gae` makes targets and advantages out of values. Writes `loss_critic`,
    already weighed, and `explained_variance`, 1 - var(target - value) / var(target) over response tokens.

    Args:
        actor: see GRPOLoss.
        critic: a `Critic`, such as value_model.ValueModel.
        value_weight: of the value loss.
        value_clip: how far a value may move in an update before it has no gradient; None: as far as it likes.
        settings: the other fields of `Objective`.
    """

    _reported = ("explained_variance",)

    def __init__(
        self,
        actor: Any,
        critic: Any,
        *,
        clip_low: float = 0.2,
        clip_high: float = 0.2,
        value_weight: float = 0.5,
        value_clip: float | None = 0.2,
        reduction: Reduction = "token",
        **settings: Any,
    ) -> None:
        self.value_weight, self.value_clip = value_weight, value_clip
        super().__init__(
            actor, Objective(clip_low=clip_low, clip_high=clip_high, reduction=reduction, **settings)
        )
        self.critic_network = critic

    def outcome(
        self,
        tensordict: TensorDictBase,
        totals: Totals | None = None,
        versions: tuple[float, float] | None = None,
    ) -> Outcome:
        names, outcome = self.tensor_keys, super().outcome(tensordict, totals, versions)
        mask, target = tensordict.get(names.response_mask), tensordict.get(names.value_target)
        values, before = self.values(tensordict), tensordict.get(names.value, None)
        error = value_loss(values, target, mask, before=before, clip=self.value_clip)
        critic = self.value_weight * self.spec.reduced(error, mask, totals)
        variance = explained_variance(values.detach(), target, mask)
        return Outcome({**outcome.terms, "critic": critic}, outcome.sums, {"explained_variance": variance})

    def values(self, tensordict: TensorDictBase) -> Tensor:
        """V before each token, `[N, S]`, with gradient."""
        tokens = tensordict.get(self.tensor_keys.tokens)
        values: Tensor = self.critic_network.values(tokens, *self._rows(tensordict))
        return values[:, : tokens.shape[1]]

    def _reads(self) -> tuple[str, ...]:
        return (*super()._reads(), "value_target", *(("value",) if self.value_clip is not None else ()))

    def _terms(self) -> list[str]:
        return [*super()._terms(), "critic"]


def explained_variance(value: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """`1 - var(target - value) / var(target)` over response tokens, `[]`; 0 where the targets do not vary."""
    count = mask.sum().clamp(min=1)

    def spread(values: Tensor) -> Tensor:
        values = torch.where(mask, values, 0.0)
        return (values.square().sum() - values.sum().square() / count).clamp(min=0)

    whole, rest = spread(target.double()), spread((target - value).double())
    return torch.where(whole > 1e-12, 1.0 - rest / whole.clamp(min=1e-12), 0.0)
