"""A critic: a number for every beginning of a response, from a transformer of its own or from the actor's.

critic = ValueModel.own(actor.model)          # a copy of the actor's transformer, and a head of its own
critic = ValueModel.on(actor.model)           # a head on the actor's own transformer
critic.values(tokens, prompt_length, length)  # [N, S + 1]
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from .heads import hidden_at
from .log_probs import forward_costs
from .packing import Packing, rows_sharing_prompts


class ValueModel(nn.Module):
    """V(prompt and the response so far).

    Args:
        model: a transformers causal LM; its vocabulary projection is not used.
        shared: whether the model belongs to somebody else (the actor), whose parameters then count as that one's.
    """

    def __init__(self, model: Any, *, shared: bool) -> None:
        super().__init__()
        self.shared = shared
        # A list hides the module: parameters of a shared transformer are the actor's, here and in state_dict.
        self._model = [model]
        if not shared:
            self.trunk = model
        width = model.config.get_text_config().hidden_size
        parameter = next(model.parameters())
        self.head = nn.Linear(width, 1, dtype=torch.float32, device=parameter.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    @classmethod
    def own(cls, model: Any) -> ValueModel:
        """A critic with a copy of the model; the copy is trained apart from it.

        Where only an adapter is trained, the copy has an adapter of its own and shares the frozen weights.
        """
        frozen = {id(p): p for p in model.parameters() if not p.requires_grad}
        trunk = copy.deepcopy(model, memo=frozen)
        head = trunk.get_output_embeddings()
        # An untied projection would be copied, kept and optimised for nothing.
        tied = head.weight is trunk.get_input_embeddings().weight
        if not tied:
            for parameter in head.parameters():
                parameter.requires_grad_(False)
        return cls(trunk, shared=False)

    @classmethod
    def on(cls, model: Any) -> ValueModel:
        """A critic that reads the model itself; the value loss moves it, too."""
        return cls(model, shared=True)

    def values(
        self, tokens: Tensor, prompt_length: Tensor, length: Tensor, group: Tensor | None = None
    ) -> Tensor:
        """Values `[N, S + 1]` float32: before the token in that column, for columns prompt_length to length (the last
        is the value of the finished response); 0 elsewhere. Arguments as for `response_log_probs`.
        """
        model = self._model[0]
        wide = torch.nn.functional.pad(
            tokens, (0, 1)
        )  # the value after the last token stands one column further
        if group is None:
            row = torch.arange(tokens.shape[0], device=tokens.device)
        else:
            linear, attention = forward_costs(model)
            row = rows_sharing_prompts(
                group, prompt_length, length + 1, linear_cost=linear, attention_cost=attention
            )
        plan = Packing.of(wide, prompt_length, length + 1, row)
        arguments = {"input_ids": plan.ids, "position_ids": plan.position, "use_cache": False}
        if plan.mask is not None:
            arguments["attention_mask"] = plan.mask
        with hidden_at(model, plan.source) as hidden:
            model(**arguments)
        value = self.head(hidden().float()).squeeze(-1)
        return value.new_zeros(wide.shape).index_put((plan.sample, plan.column), value)
