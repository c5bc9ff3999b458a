"""Direct processors: deliver each range of an input in transactions of its task (D1 to D6)."""
