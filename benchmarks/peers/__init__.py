"""The same job in cues-kafka and in its peers, each in an environment of its own: `make bench-peers`."""
