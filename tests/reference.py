"""Plain float64 loops for every formula, written from the papers; imports nothing of ours."""

from __future__ import annotations

import math

import torch


def group_relative(rewards, size, *, valid=None, scale="population", eps=1e-6):
    out = []
    for start in range(0, len(rewards), size):
        rows = list(range(start, start + size))
        used = [i for i in rows if valid is None or valid[i]]
        values = [float(rewards[i]) for i in used]
        mean = sum(values) / len(values) if values else 0.0
        spread = sum((v - mean) ** 2 for v in values)
        if scale == "none":
            divisor = 1.0
        else:
            n = len(values) if scale == "population" else len(values) - 1
            divisor = (math.sqrt(spread / n) if n > 0 else 0.0) + eps
        same = not values or max(values) == min(values)
        for i in rows:
            out.append(0.0 if i not in used or same else (float(rewards[i]) - mean) / divisor)
    return torch.tensor(out, dtype=torch.float64)


def leave_one_out(rewards, size, valid=None):
    out = []
    for start in range(0, len(rewards), size):
        rows = list(range(start, start + size))
        used = [i for i in rows if valid is None or valid[i]]
        for i in rows:
            others = [float(rewards[j]) for j in used if j != i]
            out.append(float(rewards[i]) - sum(others) / len(others) if i in used and others else 0.0)
    return torch.tensor(out, dtype=torch.float64)


def ppo_clip_loss(log_probs, behaviour, advantage, mask, *, low, high, how, max_tokens):
    """The negative objective, built token by token so that autograd gives the reference gradient."""
    rows = []
    for n in range(log_probs.shape[0]):
        terms = []
        for t in range(log_probs.shape[1]):
            if not mask[n, t]:
                continue
            difference = log_probs[n, t] - behaviour[n, t]
            if difference > 20:
                difference = torch.full_like(difference, 20.0)
            if difference < -20:
                difference = torch.full_like(difference, -20.0)
            ratio = torch.exp(difference)
            a = advantage[n, t]
            inside = ratio * a
            clipped = (
                ratio
                if 1 - low <= ratio <= 1 + high
                else ratio.new_tensor(1 + high if ratio > 1 else 1 - low)
            ) * a
            terms.append(inside if inside <= clipped else clipped)
        rows.append(terms)
    total = sum((term for terms in rows for term in terms), torch.zeros((), dtype=log_probs.dtype))
    if how == "sequence":
        used = [terms for terms in rows if terms]
        value = sum((sum(terms) / len(terms) for terms in used), torch.zeros((), dtype=log_probs.dtype))
        return -value / max(1, len(used))
    if how == "token":
        return -total / max(1, sum(len(terms) for terms in rows))
    return -total / (max(1, sum(1 for terms in rows if terms)) * max_tokens)


def response_log_probs(model, tokens, prompt_length, length, temperature):
    """Row by row, no batching, no cache: `[N, S]` log-probabilities, 0 outside the response."""
    rows = []
    for n in range(tokens.shape[0]):
        ids = tokens[n : n + 1, : int(length[n])]
        log_probs = torch.log_softmax(model(input_ids=ids).logits[0].double() / temperature, -1)
        row = [torch.zeros((), dtype=torch.float64)] * tokens.shape[1]
        for t in range(int(prompt_length[n]), int(length[n])):
            row[t] = log_probs[t - 1, ids[0, t]]
        rows.append(torch.stack(row))
    return torch.stack(rows)


def ratio_metrics(log_ratio, mask):
    d = [float(log_ratio[n, t]) for n in range(mask.shape[0]) for t in range(mask.shape[1]) if mask[n, t]]
    r = [math.exp(max(-20.0, min(20.0, v))) for v in d]
    count = max(1, len(d))
    mean, square = sum(r) / count, sum(v * v for v in r) / count
    return {
        "ratio_mean": mean,
        "kl": sum(v - 1 - u for v, u in zip(r, d, strict=True)) / count,
        "ess": mean * mean / square if square else 0.0,
        "chi2": square - 1,
        "m2": sum(u * u for u in d) / count,
    }
