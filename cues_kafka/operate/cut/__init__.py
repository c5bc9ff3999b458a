"""Cuts of a graph: takes them, lists them, and goes back to them."""
