"""One function for every way to collect: in this process or in others, in step with the trainer or ahead.

    buffer = make_buffer(StalenessPolicy(prompts_per_batch=8, samples_per_prompt=4, max_staleness=1), 64)
    mailbox = WeightMailbox.create(path, weights)
    with make_collector(env_fn, policy_fn, buffer=buffer, mailbox=mailbox, backend="process") as collector:
        for version in range(1, steps + 1):
            mailbox.publish(weights, version)
            collector.advance(version)       # the next batch is for this version; admits new groups
            batch = buffer.sample()          # waits for the workers, or steps the environment itself

Synchronous is max_staleness=0: no group of the next batch starts before the weights that it is for are there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torchrl.envs import EnvBase

from atrl_collectors.buffer import EpisodeBuffer
from atrl_collectors.collector import EpisodeCollector
from atrl_collectors.direct import DirectCollector
from atrl_collectors.process import ProcessCollector
from atrl_collectors.weights import WeightMailbox
from atrl_collectors.workers import EnvFn, PolicyFn


@dataclass(frozen=True)
class CollectorOptions:
    """The options of `make_collector` by name.

    backend: "direct" steps the environment in the trainer's process, inside `buffer.sample()`; "process" has
        workers that run on their own.
    sync: None, or what you believe about the run: True is an error unless the buffer's max_staleness is 0,
        False unless it is above.
    num_workers: processes; env_fn is called with worker=w, num_workers=num_workers in worker w.
    threads_per_worker: of torch, in each worker. All threads together should not exceed the cores.
    start_timeout: seconds until all workers must be ready (they import torch and build env and policy).
    close_timeout: seconds for a worker to finish its block when the run ends; then it is killed.
    directory: where the shared files go, kept afterwards; by default a new one in memory, removed at the end.
    """

    backend: Literal["direct", "process"] = "direct"
    sync: bool | None = None
    num_workers: int = 1
    threads_per_worker: int = 1
    start_timeout: float = 300.0
    close_timeout: float = 10.0
    directory: Path | None = None


def make_collector(
    env_fn: EnvFn | EnvBase,
    policy_fn: PolicyFn | torch.nn.Module,
    *,
    buffer: EpisodeBuffer,
    mailbox: WeightMailbox | None = None,
    **options: Any,
) -> EpisodeCollector:
    """Collect episodes of an environment with a policy into a buffer.

    Args:
        env_fn: env_fn(worker=w, num_workers=W) builds the environment of worker w; picklable for processes.
            With backend="direct" it may be the environment itself.
        policy_fn: policy_fn() builds the policy, in the worker; with backend="direct" it may be the policy. A
            policy in a worker opens the mailbox (pickling one sends its path) and polls it before each block.
        buffer: from `make_buffer`; its sampler's hooks are set to this collector.
        mailbox: needed for processes: weights, admission and the end of the run reach the workers through it.
        **options: fields of CollectorOptions: backend, sync, num_workers, threads_per_worker, ...

    No group starts before the first version is published and `advance` was called with it (without a mailbox:
    groups of version 0 may start at once).

    ValueError: options that contradict each other. WorkerDied, TimeoutError: a worker did not get ready.
    """
    chosen = CollectorOptions(**options)
    staleness = buffer.policy.max_staleness
    if chosen.sync is not None and chosen.sync != (staleness == 0):
        raise ValueError(
            f"sync={chosen.sync} contradicts max_staleness={staleness}: a synchronous run is one with "
            "max_staleness=0; change the StalenessPolicy of the buffer"
        )
    if chosen.backend == "direct":
        if chosen.num_workers != 1:
            raise ValueError(f"num_workers={chosen.num_workers} needs backend='process'; 'direct' has one")
        return DirectCollector(env_fn, policy_fn, buffer, mailbox)
    if chosen.backend != "process":
        raise ValueError(f"unknown backend {chosen.backend!r}; there are 'direct' and 'process'")
    if mailbox is None:
        raise ValueError("backend='process' needs a mailbox: WeightMailbox.create(path, weights)")
    if isinstance(env_fn, EnvBase) or isinstance(policy_fn, torch.nn.Module):
        raise ValueError("backend='process' builds environment and policy in the worker: give functions")
    if chosen.num_workers < 1 or chosen.threads_per_worker < 1:
        raise ValueError("num_workers and threads_per_worker must be at least 1")
    return ProcessCollector(env_fn, policy_fn, buffer, mailbox, chosen)
