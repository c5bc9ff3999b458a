"""Error messages of a graph: finds them, and asks its tasks to replay them or to drop them."""
