"""What operators see of a graph: nothing here writes to a cluster."""
