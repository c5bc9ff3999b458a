"""Staged processors: prepare a micro-batch once and publish it once (T1 to T4)."""
