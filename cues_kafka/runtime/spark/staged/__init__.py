"""Prepares a micro-batch once, and publishes it once (T1 to T4)."""
