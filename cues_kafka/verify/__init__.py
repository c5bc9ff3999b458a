"""Verify: compare the inputs of a graph with its outputs."""
