"""What a graph is on a cluster, before anything runs there."""
