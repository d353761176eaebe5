"""No forward pass sees two versions; and the test would see it, because without our protection some do."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any

import torch

from atrl_collectors.weights import WeightMailbox

LAYERS, WIDTH = 6, 64
FORWARDS = 2_000


def weights(version: int) -> dict[str, torch.Tensor]:
    return {f"layer{n}": torch.full((WIDTH, WIDTH), float(version)) for n in range(LAYERS)}


class Policy(torch.nn.Module):
    """Every parameter equals the version number; a forward pass reports the smallest and largest it used."""

    def __init__(self, parameters: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.layers = torch.nn.ParameterDict({n: torch.nn.Parameter(t, False) for n, t in parameters.items()})

    def forward(self, x: torch.Tensor) -> tuple[float, float]:
        low, high = float("inf"), -float("inf")
        for weight in self.layers.values():
            x = torch.relu(x @ weight) / (1 + weight.abs().max())
            low, high = min(low, float(weight.min())), max(high, float(weight.max()))
        return low, high


def worker(path: str, results: Any) -> None:
    torch.set_num_threads(1)
    mailbox = WeightMailbox.open(path)
    x = torch.ones(4, WIDTH)
    torn, versions = 0, set()
    policy = Policy(weights(-1))
    version = -1
    while mailbox.version < 0:
        time.sleep(0.001)
    for _ in range(FORWARDS):
        update = mailbox.poll(newer_than=version)  # the block boundary
        if update is not None:
            version = update.version
            for name, tensor in update.tensors.items():
                policy.layers[name].copy_(tensor)
        low, high = policy(x)
        torn += low != high
        versions.add(version)
    results.put(("mailbox", torn, len(versions)))

    live = Policy(mailbox._views_of(mailbox._weights[0]))  # the protection removed: no copy, no boundary
    mailbox = WeightMailbox.open(path)
    torn, versions = 0, set()
    deadline = time.monotonic() + 30
    results.put(("ready",))
    for forward in range(10 * FORWARDS):
        low, high = live(x)
        torn += low != high
        versions.add(low)
        if (forward >= FORWARDS and torn > 0 and len(versions) > 20) or time.monotonic() > deadline:
            break
    results.put(("in place", torn, len(versions)))


def test_forward_passes_never_mix_versions_but_would_without_the_mailbox(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    mailbox = WeightMailbox.create(tmp_path / "weights", weights(0))
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=worker, args=(str(mailbox.path), results), daemon=True)
    process.start()
    version = 0
    while results.empty():
        mailbox.publish(weights(version), version)
        version += 1
        assert process.is_alive()
    kind, torn, served = results.get()
    assert (kind, torn) == ("mailbox", 0)
    assert served > 20, "the worker met too few versions to prove anything"
    assert results.get(timeout=60) == ("ready",)
    in_place = mailbox._views_of(mailbox._weights[0])
    while results.empty():
        version += 1
        for tensor in in_place.values():
            tensor.fill_(float(version))
        assert process.is_alive()
    kind, torn, _ = results.get()
    assert kind == "in place"
    assert torn > 0, "the test cannot see a torn forward pass"
    process.join(30)
