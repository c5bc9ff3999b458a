"""The native runtime: light workers, one or several processes, that share the partitions of each processor."""
