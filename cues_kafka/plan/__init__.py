"""Plans: compare a graph with a cluster, before anything runs there."""
