"""The bare work of an update, the simplest way: decode a batch until every row has ended, then train on it.

    python benchmarks/bare.py --model-folder warm/checkpoint --env-id atrl/Addition-v0 --updates 20

One transformers model with its dynamic cache, rows padded to one length, a token at a time for all rows until the
last one has ended, then one padded forward and backward pass and AdamW. No environment, no verifier, no buffer, no
messages. Prints a JSON list with a row per update: seconds, completions, tokens.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro
from torch import Tensor
from transformers import AutoModelForCausalLM, DynamicCache

import atrl_envs


@dataclass(frozen=True)
class BareOptions:
    """What is run."""

    model_folder: Path
    env_id: str = "atrl/Addition-v0"
    task: str = "{}"
    """Further arguments of the environment, as JSON; only its prompts and its length limit are used."""
    prompts_per_batch: int = 64
    samples_per_prompt: int = 8
    updates: int = 20
    threads: int = 2


def main(options: BareOptions) -> None:
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(options.model_folder, dtype=torch.float32)
    env = atrl_envs.make(options.env_id, **json.loads(options.task))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-9)
    rows = []
    for _ in range(options.updates):
        problem = torch.randint(len(env.bank), (options.prompts_per_batch,))
        problem = problem.repeat_interleave(options.samples_per_prompt)
        ids, mask = left_padded(env.bank.prompts[problem], env.bank.prompt_length[problem])
        start = time.perf_counter()
        tokens, mask = decode(model, ids, mask, env.vocab.eos_id, env.max_new_tokens)
        train(model, optimizer, tokens, mask, ids.shape[1])
        seconds = time.perf_counter() - start
        rows.append(
            {"seconds": seconds, "completions": len(ids), "tokens": int(mask[:, ids.shape[1] :].sum())}
        )
    print(json.dumps(rows))


def left_padded(prompts: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """Right-padded prompts `[B, P]` moved to the right edge, with their mask."""
    width = int(length.max())
    column = torch.arange(width) - (width - length).unsqueeze(1)
    return prompts.gather(1, column.clamp(min=0)), (column >= 0).long()


@torch.no_grad()
def decode(model: Any, ids: Tensor, mask: Tensor, eos: int, longest: int) -> tuple[Tensor, Tensor]:
    """Sample until every row has ended: tokens and mask `[B, P + T]`, the mask 0 after a row's end."""
    cache, live, fed = DynamicCache(), torch.ones(len(ids), dtype=torch.bool), ids
    tokens = ids
    for _ in range(longest):
        position = mask.cumsum(1)[:, -fed.shape[1] :].sub(1).clamp(min=0)
        logits = model(
            input_ids=fed,
            attention_mask=mask,
            position_ids=position,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        fed = torch.multinomial(logits.softmax(-1), 1)
        tokens, mask = torch.cat([tokens, fed], 1), torch.cat([mask, live.long().unsqueeze(1)], 1)
        live = live & (fed.squeeze(1) != eos)
        if not live.any():
            break
    return tokens, mask


def train(model: Any, optimizer: Any, tokens: Tensor, mask: Tensor, prompt: int) -> None:
    """A policy-gradient step on all rows, with advantages of either sign in place of rewards."""
    position = mask.cumsum(1).sub(1).clamp(min=0)
    logits = model(input_ids=tokens, attention_mask=mask, position_ids=position, use_cache=False).logits
    log_probs = logits[:, prompt - 1 : -1].log_softmax(-1).gather(-1, tokens[:, prompt:, None]).squeeze(-1)
    response = mask[:, prompt:]
    advantage = torch.where(torch.arange(len(tokens)) % 2 == 0, 1.0, -1.0)
    objective = (log_probs * response).sum(1) / response.sum(1) * advantage
    optimizer.zero_grad()
    (-objective.mean()).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


if __name__ == "__main__":
    main(tyro.cli(BareOptions, description=__doc__))
