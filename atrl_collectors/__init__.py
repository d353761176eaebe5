"""Finished episodes from TorchRL collectors to the trainer: fresh, in complete groups, all tokens accounted.

    from atrl_collectors import StalenessPolicy, WeightMailbox, make_buffer, make_collector

| file | idea |
|---|---|
| collect.py | one function for every way to collect |
| collector.py, direct.py, process.py | what it returns, in this process or in others |
| buffer.py, samplers.py, rows.py, staleness.py | what is trained, how stale, how often; the books |
| episodes.py | blocks of tokens to finished episodes |
| weights.py, fingerprints.py | weights with version and fingerprint, never torn |
| workers.py, blocks.py | worker processes: started, watched; what runs in them |
| delivery.py, channel.py | how episodes get out of them, without a lock |
| telemetry.py | who waits for whom |
| mapped.py | tensors that processes share by path |
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atrl_collectors.buffer import EpisodeBuffer, make_buffer
    from atrl_collectors.collect import CollectorOptions, make_collector
    from atrl_collectors.collector import EpisodeCollector
    from atrl_collectors.episodes import EpisodeAssembler, episode_layout
    from atrl_collectors.fingerprints import fingerprint
    from atrl_collectors.samplers import GroupStalenessSampler, WaitTimeout
    from atrl_collectors.staleness import Books, BooksError, StalenessPolicy
    from atrl_collectors.telemetry import Waits, WorkerStatus
    from atrl_collectors.weights import WeightMailbox, WeightUpdate
    from atrl_collectors.workers import WorkerDied

_HOMES = {
    "buffer": (
        "EpisodeBuffer",
        "make_buffer",
    ),
    "collect": (
        "CollectorOptions",
        "make_collector",
    ),
    "collector": ("EpisodeCollector",),
    "episodes": (
        "EpisodeAssembler",
        "episode_layout",
    ),
    "fingerprints": ("fingerprint",),
    "samplers": (
        "GroupStalenessSampler",
        "WaitTimeout",
    ),
    "staleness": (
        "Books",
        "BooksError",
        "StalenessPolicy",
    ),
    "telemetry": (
        "Waits",
        "WorkerStatus",
    ),
    "weights": (
        "WeightMailbox",
        "WeightUpdate",
    ),
    "workers": ("WorkerDied",),
}
_LAZY = {name: f"atrl_collectors.{home}" for home, names in _HOMES.items() for name in names}

__all__ = [
    "Books",
    "BooksError",
    "CollectorOptions",
    "EpisodeAssembler",
    "EpisodeBuffer",
    "EpisodeCollector",
    "GroupStalenessSampler",
    "StalenessPolicy",
    "WaitTimeout",
    "Waits",
    "WeightMailbox",
    "WeightUpdate",
    "WorkerDied",
    "WorkerStatus",
    "episode_layout",
    "fingerprint",
    "make_buffer",
    "make_collector",
]


def __getattr__(name: str) -> Any:
    # TorchRL takes seconds to import; a process that only polls a mailbox does without it.
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'atrl_collectors' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
