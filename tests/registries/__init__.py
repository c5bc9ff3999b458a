"""Schema registries of others, for `make test-full`."""
