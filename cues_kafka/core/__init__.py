"""The algorithm. Standard library only: no clock, random, thread, logging or I/O.

Theory of operation, numbered as in the protocol page of the docs.

1.  A **task** is a processor at one partition; its transactional id is its lock (`spec`). Everything that it commits in
    one Kafka transaction: outputs or errors of a batch of steps, one record in its own partition of the backing topic
    (`records`), and the positions of its inputs as group offsets. So outcomes, record and place exist together or not
    at all (I2), and the newest committed record decides what comes next.
2.  A **delivery** is named by the messages that it consumes (`hashing`), so its name is the same on every attempt, in
    every cut of batches and every runtime (I6); each of its outcomes carries a provenance header (`delivery`).
3.  An **attempt** says "delivered up to here". A **snapshot** says "about to deliver this", and is committed before
    user code runs wherever a retry must know about it: the first batch after every start (S1), and choices of an alts
    processor with effects (S2).
4.  **Recovery** (`recover`, R1 to R7): init first, then read the newest record up to the high watermark, then decide:
    fresh, delivered, retry, or refuse. Positions come from there only.
5.  **Any error** after that, and any commit whose outcome is doubtful, leads back to R1 with a new session (P8).
    Whatever that transaction did is known after R4, not before.
6.  **Deaths in user code** are counted in the snapshot (Q1); after two on the same ranges the task goes step by step
    (Q2), and a single message that kills again and again is taken out undecoded (Q3).

`task` is the machine: `handle(task, event) -> (task, effect)` with a table of what may happen when. `events` and
`effects` are its two vocabularies. Read in this order: records, spec, hashing, delivery, events, effects, recover,
task.
"""
