"""Seeded simulation: the production interpreter on the reference broker, in virtual time, under a swarm of faults.

A seed decides everything (`options`): the graph and its functions (`graphs`), which faults come how often (`faults`),
who takes the next step (`run`). Then nothing goes wrong any more, and everything must be delivered. What was committed
is judged from the logs alone (`check`). A seed that fails is shrunk (`shrink`).

Supported: native workers, and slots as Spark tasks use them; pipes, sinks, forks, joins and alts, with errors, retries,
lists and effects; all strategies, and changes between them (`strategies`, `operator`); several processes, kills between
any two effects, zombies, rebalances, lost and late requests, old answers, compaction, pauses by an operator.

Not supported: what the reference broker does not simulate (its docstring lists it), `async def`, filters, two threads
of one process in user code at the same time, native workers and slots in one run, Spark itself.
"""

from __future__ import annotations
