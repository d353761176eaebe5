"""Does the suite notice? Break the mathematics in one place at a time; some test must fail each time: `make mutants`.

    python -m tests.mutants                # every mutant
    python -m tests.mutants second_moment  # those of files whose name holds this

Each mutant is one replacement of source text in a copy of the project, and the tests that should mind. A mutant that no
test minds is reported, and the exit code is then 1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Mutant:
    """`old`, which stands in the file once, becomes `new`."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def of(file: str, tests: str, *changes: tuple[str, str]) -> list[Mutant]:
    """Mutants of one file that the same tests should mind."""
    paths = tuple(f"tests/agents/test_{name}.py" for name in tests.split())
    return [Mutant(f"atrl_agents/{file}.py", old, new, paths) for old, new in changes]


MUTANTS = [
    *of(
        "surrogates",
        "surrogates family",
        ("value = ratio_of(log_ratio) * advantage", "value = -ratio_of(log_ratio) * advantage"),
        ("value = ratio_of(log_ratio) * advantage", "value = ratio_of(-log_ratio) * advantage"),
        ("slope = value * _moves(log_ratio)", "slope = value * 0"),
        ("slope = value * _moves(log_ratio)", "slope = value"),
        ("slope = plain * ((plain <= clipped)", "slope = plain * ((plain >= clipped)"),
        ("slope = plain * ((plain <= clipped) & _moves(log_ratio))", "slope = plain * _moves(log_ratio)"),
        ("slope = plain * ((plain <= clipped) & _moves(log_ratio))", "slope = plain * (plain <= clipped)"),
        ("ratio.clamp(1.0 - clip_low, 1.0 + clip_high) * advantage", "ratio * advantage"),
        ("clamp(1.0 - clip_low, 1.0 + clip_high)", "clamp(1.0 - clip_high, 1.0 + clip_low)"),
        ("return value + slope * (near", "return value - slope * (near"),
        ("value = torch.minimum(plain, clipped)", "value = torch.maximum(plain, clipped)"),
        ("torch.where(advantage < 0, torch.maximum", "torch.where(advantage > 0, torch.maximum"),
        ("torch.maximum(value, limit * advantage)", "torch.minimum(value, limit * advantage)"),
        ("torch.maximum(value, limit * advantage)", "value"),
        ("mean = row_mean(log_ratio, mask).unsqueeze(1).expand_as", "mean = log_ratio.expand_as"),
        ("mean = row_mean(log_ratio, mask).unsqueeze(1).detach()", "mean = row_mean(log_ratio, mask).unsqueeze(1)"),
        ("mean + (near - near.detach())", "mean + (near - near)"),
        ("weight = ratio_of(log_ratio).clamp(low, high).detach()", "weight = ratio_of(log_ratio).clamp(low, high)"),
        ("weight = ratio_of(log_ratio).clamp(low, high).detach()", "weight = ratio_of(log_ratio).detach()"),
        ("weight = ratio_of(log_ratio).clamp(low, high)", "weight = ratio_of(log_ratio).clamp(1 - low, 1 + high)"),
        ("return weight * advantage * torch.where(mask, wide(log_prob), 0.0)", "return weight * advantage"),
        ("wide(reference) - wide(log_prob)", "wide(log_prob) - wide(reference)"),
        ("return -difference\n", "return difference\n"),
        ("return difference.square() / 2", "return difference.square()"),
        ("k3 = difference.exp() - difference - 1.0", "k3 = difference.exp() - 1.0"),
        ("return ratio_of(torch.where(mask, wide(log_ratio), 0.0)) * k3", "return k3"),
        (
            "return ratio_of(torch.where(mask, wide(log_ratio), 0.0)) * k3",
            "return ratio_of(torch.where(mask, wide(log_ratio), 0.0)).detach() * k3",
        ),
        ("larger = other.square() > error", "larger = other.square() < error"),
        ("near = moved.clamp(-clip, clip)", "near = moved"),
        ("other * (near == moved)", "other"),
        ("error = error / 2", "error = error / 1"),
        ("(values.sum(1) / length.clamp(min=1)).sum() / rows", "values.sum() / rows"),
        ("return values.sum() / tokens", "return values.sum() / values.numel()"),
        ("return values.sum() / (rows * max_tokens)", "return values.sum() / max_tokens"),
        ("values = torch.where(mask, wide(values), 0.0)\n", "values = values * mask\n"),
        ("log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()", "log_ratio.exp()"),
        ("return torch.where(mask, wide(log_ratio), 0.0), torch", "return wide(log_ratio), torch"),
        ("near = by.clamp(-LARGEST, LARGEST)", "near = by"),
        ("return values.to(torch.promote_types(values.dtype, torch.float32))", "return values"),
    ),
    *of(
        "second_moment",
        "second_moment",
        ("mask & (advantage * log_ratio > 0)", "mask & (advantage * log_ratio < 0)"),
        ("mask & (advantage * log_ratio > 0)", "mask & (log_ratio > 0)"),
        ("return mask & (2 * distance <=", "return mask & (distance <="),
        ("return mask & (2 * distance <=", "return mask & (2 * distance >="),
        ("(distance.abs() > limit)", "(distance.abs() < limit)"),
        ('candidates = harmful(log_ratio, advantage, mask) if variant == "paper" else mask', "candidates = mask"),
        ("mean = total / _places(total)", "mean = ordered"),
        ("mean = total / _places(total)", "mean = total"),
        ("room = count - (ordered < border).sum()", "room = count"),
        ("room if earlier is None else room - (earlier == border).sum()", "room"),
        ("kept = (moment < border) | (tie", "kept = (moment <= border) | (tie"),
        ("mask ^ (candidates & (moment > largest))", "mask ^ (candidates & (moment >= largest))"),
        ("if following > border or following == math.inf", "if True"),
        ("return mask & (~candidates | kept)", "return mask & kept"),
        ("return mask & (~candidates | kept)", "return ~candidates | kept"),
        ("capped = total + (size - place).clamp(min=0) * values", "capped = total + size * values"),
        ("square = (budget * size - spent) /", "square = (budget * size) /"),
        ("square.clamp(min=0).sqrt()", "square.clamp(min=0)"),
        ("*everyone[:rank]]", "*everyone[:1]]"),
    ),
    *of(
        "objectives",
        "second_moment corrections losses learner",
        ("objective = -_mean(", "objective = _mean("),
        ("if not spec.divides_by_kept:", "if True:"),
        ("max(totals.kept, 1.0)", "max(totals.tokens, 1.0)"),
        ("constraint = kept\n", "constraint = mask\n"),
        ("moments = proximal - batch.behaviour if rules.decoupled", "moments = off_policy if rules.decoupled"),
        ("values * found.weight * found.kept - found.penalty", "values * found.weight * found.kept + found.penalty"),
        ("values * found.weight * found.kept - found.penalty", "values * found.weight - found.penalty"),
        ("values * found.weight * found.kept - found.penalty", "values * found.kept - found.penalty"),
        ("batch.log_prob - proximal if rules.decoupled else off_policy", "off_policy"),
        ("entropy = -spec.entropy_weight", "entropy = spec.entropy_weight"),
        ("kl = spec.kl_weight *", "kl = -spec.kl_weight *"),
        ("return batch.log_prob.detach() if batch.proximal is None", "return batch.log_prob if batch.proximal is None"),
        ("harmful(log_ratio, advantage, mask) & (log_ratio.abs() > limit)", "(log_ratio.abs() > limit)"),
    ),
    *of(
        "corrections",
        "corrections",
        ("kept = kept & ~(concerned", "kept = ~(concerned"),
        ("(quantity < rule.low) | (quantity > rule.high)", "(quantity < rule.low)"),
        ("(quantity < rule.low) | (quantity > rule.high)", "(quantity > rule.high)"),
        ("torch.where(concerned, quantity.clamp(low, rule.high), 1.0)", "quantity.clamp(low, rule.high)"),
        ('low = rule.low if rule.action == "clip" else -math.inf', "low = rule.low"),
        ("difference = first - second", "difference = second - first"),
        ("return ratio_of(difference) if", "return difference if"),
        ("first.exp() - second.exp()", "second.exp() - first.exp()"),
        ("return row_mean(values, mask).unsqueeze(1)", "return values.mean(1, keepdim=True)"),
        ("mean = (same * total).sum(1)", "mean = total"),
        ('return advantage > 0 if when == "positive" else advantage < 0', "return advantage > 0"),
        ("behaviour + share * (current - behaviour)", "current + share * (behaviour - current)"),
        ("(proximal_version - version) / age", "(current_version - version) / age"),
        ('wide(log_probs.of(rule.of))', 'wide(log_probs.of("current"))'),
    ),
    *of(
        "advantages",
        "advantages",
        ("centred = (grouped - mean) * mask", "centred = grouped * mask"),
        ("centred = centred * (largest > smallest)", "centred = centred * 1"),
        ('denominator = count if scale == "population" else count - 1', "denominator = count"),
        ("(centred * count / others)", "(centred)"),
        ("gamma * following) - value", "following) - value"),
        ("delta = delta + decay**step * following", "delta = delta + decay * following"),
        ("following = delta[:, column] + gamma * lam * following", "following = delta[:, column] + lam * following"),
        ("end = end + gamma * torch.where(truncated,", "end = end + torch.where(truncated,"),
        ("torch.where(truncated, after", "torch.where(~truncated, after"),
        ("last = column == length - 1", "last = column == column[-1]"),
        ("centred / (deviation + eps), 0.0)", "centred, 0.0)"),
        ("scatter(1, place, advantage + value)", "scatter(1, place, value)"),
    ),
    *of(
        "linear_log_probs",
        "linear_log_probs",
        ("total = total * shrink + part.sum(1)", "total = total + part.sum(1)"),
        ("moment = moment * shrink +", "moment = moment +"),
        ("entropy = normaliser - mean\n", "entropy = mean - normaliser\n"),
        ("return chosen - normaliser, entropy", "return normaliser - chosen, entropy"),
        ("pull = pull.mul_(shrink.unsqueeze(1)).add_(", "pull = pull.add_("),
        ("(weight[target] - pull / total.unsqueeze(1)) / temperature", "weight[target] - pull / total.unsqueeze(1)"),
        ("(weight[target] - pull / total.unsqueeze(1))", "(weight[target] - pull)"),
        ("(logits - mean.unsqueeze(1))", "logits"),
        (".mul_(share).neg_()", ".mul_(share)"),
        ("change = change.div_(ctx.temperature)", "change = change"),
        ("to_hidden += change @", "to_hidden = change @"),
        ("likeliest = chosen >= most", "likeliest = chosen > most"),
    ),
    *of(
        "learner",
        "learner",
        ("counts.append(batch[KEPT].sum())", "counts.append(batch[keys.RESPONSE_MASK].sum())"),
        ("(spec.considers_all or not whole):\n", "not whole:\n"),
        ("passed, current - batch[keys.LOG_PROB], 0.0", "passed, current, 0.0"),
        ("self.ranks.sum_gradients(self.optimizer)", "pass"),
        ("batch[keys.RESPONSE_MASK] & trained.unsqueeze(1)", "batch[keys.RESPONSE_MASK]"),
        ("advantage.masked_fill(~trained, 0.0)", "advantage"),
        ("batch.set(PROXIMAL, self._log_probs(batch, self.model, self._every_group(batch)))", "pass"),
        ("trained = valid & ~batch[keys.TRUNCATED]", "trained = valid & batch[keys.TRUNCATED]"),
        ("self.reference.load_state_dict(state)\n", "pass\n"),
        ("self.critic.trunk.load_state_dict(state)", "pass"),
    ),
    *of(
        "losses",
        "losses",
        ("critic = self.value_weight * self.spec", "critic = self.spec"),
        ("1.0 - rest / whole", "rest / whole"),
        ("entropy_gradient=spec.entropy_weight != 0", "entropy_gradient=False"),
    ),
    *of(
        "value_model",
        "losses",
        ("plan = Packing.of(wide, prompt_length,", "plan = Packing.of(wide, prompt_length + 1,"),
    ),
    *of(
        "diagnostics",
        "surrogates losses",
        ("kl=total(more - d)", "kl=total(more + d)"),
        ("ratio=count + gain", "ratio=gain"),
        ('"chi2": (self.ratio_squared - self.tokens) / n', '"chi2": self.ratio_squared / n'),
        ("mean.square() / mean_square", "mean_square / mean.square()"),
    ),
]  # fmt: skip


TIMEOUT = 900  # seconds; a mutant that never ends is noticed, too


def survives(mutant: Mutant, project: Path) -> str:
    """What is wrong with this mutant of the project: nothing where a test failed."""
    with tempfile.TemporaryDirectory() as folder:
        path = _copy(project, Path(folder)) / mutant.file
        text = path.read_text(encoding="utf-8")
        if text.count(mutant.old) < 1:
            return "the text to replace is not there"
        path.write_text(text.replace(mutant.old, mutant.new, 1), encoding="utf-8")
        code, said = _pytest(folder, "-x", *mutant.tests)
        if code in (1, None):
            return ""
        return "no test failed" if code == 0 else f"pytest did not run: {said}"


def _copy(project: Path, folder: Path) -> Path:
    """The project in a folder of its own."""
    for name in ("atrl_envs", "atrl_agents", "atrl_collectors", "tests", "pyproject.toml"):
        source, target = project / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "data"))
        else:
            shutil.copy(source, target)
    return folder


def _pytest(folder: str, *words: str) -> tuple[int | None, str]:
    """The exit code, None after the time-out, and the end of what was said."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    environment = {**os.environ, "PYTHONPATH": folder, "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout[-500:]


def _survivors(chosen: list[Mutant], project: Path) -> int:
    alive = 0
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = pool.map(lambda mutant: survives(mutant, project), chosen)
        for number, (mutant, wrong) in enumerate(zip(chosen, found, strict=True), 1):
            alive += bool(wrong)
            if wrong:
                print(f"{mutant.file}: {mutant.old!r} -> {mutant.new!r}: {wrong}", flush=True)
            elif number % 10 == 0:
                print(f"{number} of {len(chosen)}", flush=True)
    return alive


def main(words: list[str]) -> int:
    chosen = [mutant for mutant in MUTANTS if not words or any(word in mutant.file for word in words)]
    with tempfile.TemporaryDirectory() as folder:
        project = _copy(ROOT, Path(folder))  # as it is now, whatever is edited meanwhile
        code, said = _pytest(folder, *sorted({path for mutant in chosen for path in mutant.tests}))
        if code != 0:  # tests that fail anyway notice nothing
            print(f"without any mutant the tests do not pass: {said}")
            return 1
        alive = _survivors(chosen, project)
    print(f"{len(chosen) - alive} of {len(chosen)} mutants were noticed")
    return 1 if alive or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
