"""Seeded simulation: the production interpreter on the reference broker, in virtual time, under a swarm of faults.

A seed decides everything (`options`): the graph and its functions (`graphs`), which faults come how often (`faults`),
who takes the next step (`run`). Then nothing goes wrong any more, and everything must be delivered. What was committed
is judged from the logs alone (`check`). A seed that fails is shrunk (`shrink`).

Supported: native workers of every kind of graph that the runtime carries, several processes, kills between any two
effects, zombies, rebalances, lost and late requests, old answers, compaction.

Not supported: what the reference broker does not simulate (its docstring lists it), threads that are in user code at
the same time, Spark.
"""

from __future__ import annotations
