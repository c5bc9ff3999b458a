"""Explicit-state search over the production core, see docs/proof.md.

Read in this order: `machine` (the core as a function over numbers), `world` (everything around it, as transitions),
`staging` and `staged` (the same for Spark's staged batches), `handling` and `handlers` (state handlers), `following`
and `tables` (tables), `invariants`, `search`, `worlds`, `mutants`, `trace`. Of the shell around the core only what
`handling` and `following` run is imported.
"""
