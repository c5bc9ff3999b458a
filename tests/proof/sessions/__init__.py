"""One session for the tasks of a process (J1 to J9), explored on the production core before any worker does it.

The worlds of `tests.proof.model` are composed: each task is a machine of its own, and a session shares the transactions
of those that are in one process. What the session decides is production code, too: `cues_kafka.workers.joint.rounds`.
The core is as it is, and so are its recorded results, whose digests do not see these files.

Read in this order: `states`, `coordinator` (transactions over several tasks), `session` (whose id it has, and who
initialises it), `joint` (its transactions), `tools`, `entering` (Spark), `loose` (at-least-once), `worlds`, `search`,
`walks`, `mutants`.
"""
