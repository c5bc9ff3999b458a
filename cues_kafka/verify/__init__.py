"""Verify: compare what a graph has read with what it has written."""
