"""Jobs on the host in processes that can be killed: what a tensor program may not judge is judged here.

pool = HostPool(workers=1, cpu_seconds=2.0)
ticket = pool.submit("package.module:function", *args)
for outcome in pool.collect(wait=0.0):
    print(outcome.ticket, outcome.status, outcome.value)
"""

from __future__ import annotations

from atrl_envs.host.functions import prepared_by
from atrl_envs.host.pool import HostPool, Outcome

__all__ = ["HostPool", "Outcome", "prepared_by"]
