"""Writes each range of an input in one transaction of its task (D1 to D6)."""
