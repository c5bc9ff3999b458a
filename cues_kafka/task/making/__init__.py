"""What a task needs before it works: names, specs, checks and the caller, made from a graph."""
