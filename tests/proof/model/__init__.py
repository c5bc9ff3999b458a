"""Explicit-state search over the production core, see docs/proof.md.

Read in this order: `machine` (the core as a function over numbers), `world` (everything around it, as transitions),
`staging` and `staged` (the same for Spark's staged batches), `invariants`, `search`, `worlds`, `mutants`, `trace`.
Nothing of `cues_kafka.runtime` is imported.
"""
