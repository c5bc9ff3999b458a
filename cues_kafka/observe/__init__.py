"""Observability of a running graph: structured logs and status."""
