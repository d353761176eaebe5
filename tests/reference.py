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


# -- tokens one by one, as functions of log-probabilities that autograd can follow ------------------------


def bounded(difference):
    """The log-ratio kept in +-20."""
    if difference > 20:
        return torch.full_like(difference, 20.0)
    if difference < -20:
        return torch.full_like(difference, -20.0)
    return difference


def _inside(ratio, low, high):
    if ratio < low:
        return torch.full_like(ratio, low)
    if ratio > high:
        return torch.full_like(ratio, high)
    return ratio


def unclipped(d, a):
    return torch.exp(bounded(d)) * a


def clip(d, a, low=0.2, high=0.2):
    ratio = torch.exp(bounded(d))
    plain, clipped = ratio * a, _inside(ratio, 1 - low, 1 + high) * a
    return plain if plain <= clipped else clipped


def dual(d, a, low=0.2, high=0.2, limit=3.0):
    value = clip(d, a, low, high)
    if a < 0 and value < limit * a:
        return torch.zeros_like(d) * 0 + limit * a
    return value


def cispo(log_prob, d, a, low=0.0, high=5.0):
    weight = min(max(math.exp(float(bounded(d.detach()))), low), high)
    return weight * a * log_prob


def per_token(function, mask, *tensors):
    """`function` of each response token's numbers, `[N, T]`; 0 elsewhere."""
    rows = []
    for n in range(mask.shape[0]):
        row = []
        for t in range(mask.shape[1]):
            if mask[n, t]:
                row.append(function(*(tensor[n, t] for tensor in tensors)))
            else:
                row.append(torch.zeros((), dtype=torch.float64))
        rows.append(torch.stack(row))
    return torch.stack(rows)


def gspo(log_ratio, advantage, mask, low, high, token_form=False):
    rows = []
    for n in range(mask.shape[0]):
        used = [t for t in range(mask.shape[1]) if mask[n, t]]
        mean = sum(log_ratio[n, t] for t in used) / len(used) if used else None
        row = []
        for t in range(mask.shape[1]):
            if t not in used:
                row.append(torch.zeros((), dtype=torch.float64))
            elif token_form:
                d = mean.detach() + log_ratio[n, t] - log_ratio[n, t].detach()
                row.append(clip(d, advantage[n, t], low, high))
            else:
                row.append(clip(mean, advantage[n, t], low, high))
        rows.append(torch.stack(row))
    return torch.stack(rows)


def kl(log_prob, reference, estimator, log_ratio=None):
    d = reference - log_prob
    if estimator == "k1":
        return -d
    if estimator == "k2":
        return d * d / 2
    value = torch.exp(bounded(d)) - bounded(d) - 1
    return torch.exp(bounded(log_ratio)) * value if estimator == "unbiased_k3" else value


def value_error(value, target, before=None, limit=None):
    error = (value - target) ** 2
    if limit is not None:
        moved = value - before
        near = before + (limit if moved > limit else -limit if moved < -limit else moved)
        other = (near - target) ** 2
        error = error if error >= other else other
    return error / 2


def reduced(values, mask, how, max_tokens):
    rows = [[values[n, t] for t in range(mask.shape[1]) if mask[n, t]] for n in range(mask.shape[0])]
    zero = torch.zeros((), dtype=torch.float64)
    used = [row for row in rows if row]
    if how == "sequence":
        return sum((sum(row) / len(row) for row in used), zero) / max(1, len(used))
    total = sum((v for row in used for v in row), zero)
    if how == "token":
        return total / max(1, sum(len(row) for row in used))
    return total / (max(1, len(used)) * max_tokens)


# -- M2PO ---------------------------------------------------------------------------------------------


def harmful(d, a):
    return (a > 0 and d > 0) or (a < 0 and d < 0)


def second_moment_mask(log_ratio, advantage, mask, budget, variant, gamma=4.0):
    """Kept tokens as a set of (n, t)."""
    tokens = [(n, t) for n in range(mask.shape[0]) for t in range(mask.shape[1]) if mask[n, t]]
    d = {place: float(log_ratio[place]) for place in tokens}
    if variant == "ratio":
        return {place for place in tokens if math.exp(2 * d[place]) <= gamma}
    candidates = [p for p in tokens if variant == "areal" or harmful(d[p], float(advantage[p]))]
    if variant == "authors":
        limit = second_moment_limit([d[p] ** 2 for p in candidates], budget)
        return {p for p in tokens if p not in candidates or abs(d[p]) <= limit}
    remaining = sorted(candidates, key=lambda p: (d[p] ** 2, p))
    while remaining and sum(d[p] ** 2 for p in remaining) / len(remaining) > budget:
        remaining.pop()
    return {p for p in tokens if p not in candidates or p in remaining}


def second_moment_limit(moments, budget):
    """T by bisection on T^2."""
    if not moments or sum(moments) / len(moments) <= budget:
        return math.inf
    low, high = 0.0, max(moments)
    for _ in range(200):
        middle = (low + high) / 2
        if sum(min(m, middle) for m in moments) <= budget * len(moments):
            low = middle
        else:
            high = middle
    return math.sqrt(low)


# -- advantages with a critic ------------------------------------------------------------------------------


def gae(reward, value, mask, gamma, lam, truncated=None, after=None):
    advantage = torch.zeros(mask.shape, dtype=torch.float64)
    target = torch.zeros(mask.shape, dtype=torch.float64)
    for n in range(mask.shape[0]):
        used = [t for t in range(mask.shape[1]) if mask[n, t]]
        following, next_value = 0.0, float(after[n]) if truncated is not None and truncated[n] else 0.0
        for place, t in enumerate(reversed(used)):
            earned = float(reward[n]) if place == 0 else 0.0
            delta = earned + gamma * next_value - float(value[n, t])
            following = delta + gamma * lam * following
            next_value = float(value[n, t])
            advantage[n, t], target[n, t] = following, following + float(value[n, t])
    return advantage, target


def batch_normalised(values, valid, eps=1e-6):
    flat = [float(v) for v, ok in zip(values.flatten(), valid.flatten(), strict=True) if ok]
    if not flat or max(flat) == min(flat):
        return torch.zeros(values.shape, dtype=torch.float64)
    mean = sum(flat) / len(flat)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in flat) / len(flat))
    out = [(float(v) - mean) / (deviation + eps) if ok else 0.0
           for v, ok in zip(values.flatten(), valid.flatten(), strict=True)]  # fmt: skip
    return torch.tensor(out, dtype=torch.float64).view(values.shape)


# -- corrections ---------------------------------------------------------------------------------------------


def quantity(kind, scope, first, second, mask, n, t, group=None):
    """q of the token (n, t): plain numbers, written scope by scope."""
    if scope == "token":
        places = [(n, t)]
    elif scope in ("sequence", "product"):
        places = [(n, u) for u in range(mask.shape[1]) if mask[n, u]]
    elif scope == "group":
        places = [(m, u) for m in range(mask.shape[0]) if group[m] == group[n]
                  for u in range(mask.shape[1]) if mask[m, u]]  # fmt: skip
    else:
        places = [(m, u) for m in range(mask.shape[0]) for u in range(mask.shape[1]) if mask[m, u]]

    def of(place):
        d = first[place] - second[place]
        if kind == "squared":
            return d * d
        if kind == "probability":
            return torch.exp(first[place]) - torch.exp(second[place])
        return d

    total = sum(of(place) for place in places)
    value = total if scope == "product" else total / len(places)
    return torch.exp(bounded(value)) if kind == "ratio" else value


def corrected(rules, current, behaviour, proximal, advantage, mask, group=None):
    """Weight, kept and penalty, token by token; rules are dicts of the fields of a rule."""
    weight = torch.ones(mask.shape, dtype=torch.float64)
    kept = mask.clone()
    penalty = [
        [torch.zeros((), dtype=torch.float64) for _ in range(mask.shape[1])] for _ in range(mask.shape[0])
    ]
    for rule in rules:
        for n in range(mask.shape[0]):
            for t in range(mask.shape[1]):
                a = float(advantage[n, t])
                concerned = {"any": True, "positive": a > 0, "negative": a < 0}[rule["when"]]
                if not mask[n, t] or not concerned:
                    continue
                first = current if rule["of"] == "current" else proximal
                q = quantity(rule["quantity"], rule["scope"], first, behaviour, mask, n, t, group)
                if rule["action"] == "penalise":
                    penalty[n][t] = penalty[n][t] + rule["coefficient"] * q
                elif rule["action"] == "mask":
                    if float(q) < rule["low"] or float(q) > rule["high"]:
                        kept[n, t] = False
                elif rule["action"] == "truncate":
                    weight[n, t] *= min(float(q), rule["high"])
                else:
                    weight[n, t] *= min(max(float(q), rule["low"]), rule["high"])
    return weight, kept, torch.stack([torch.stack(row) for row in penalty])
