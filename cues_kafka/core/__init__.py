"""The algorithm. It uses the standard library only, and no clock, random numbers, threads, logging or I/O.

Theory of operation; the numbers are those of docs/protocol.md.

1.  A **task** is one processor at one partition; its transactional id is its lock (`spec`). One Kafka transaction holds
    the outputs or errors of a batch of steps, one record in the task's partition of the backing topic (`records`), and
    the positions of its inputs as group offsets. So outcomes, record and place exist together or not at all (I2), and
    the newest committed record decides what comes next.
2.  The messages that a **delivery** consumes name it (`hashing`). So its name is the same on every attempt, in every
    cut of batches and in every runtime (I6). Each of its outcomes carries a provenance header (`delivery`).
3.  An **attempt** says "delivered up to here". A **snapshot** says "about to deliver this". It is committed before user
    code runs wherever a retry must know about it: before the first batch of every start (S1), and before choices of an
    alts processor with effects (S2).
4.  **Recovery** (`recover`, R1 to R7): init first, then read the newest record up to the high watermark, then decide:
    fresh, delivered, retry, or refuse. Positions come from there only.
5.  **Any error** after that, and any commit whose outcome is in doubt, leads back to R1 with a new session (P8). What
    that transaction did is known after R4, not before.
6.  The snapshot counts **deaths in user code** (Q1). After two on the same ranges the task goes step by step (Q2), and
    a single message that kills again is quarantined undecoded (Q3).

Read in this order: `records`, `spec`, `strategies`, `hashing`, `delivery`; the two vocabularies `events` and `effects`;
`recover`; `task`, the value; `writing`, the records that it commits; `machine`, whose `handle(task, event)` returns the
task and its next effect by a table of what may happen when; `states`, what a task does then. `staged` decides for
staged processors, `moves` for operators, `turns` for alts.
"""
