"""A running graph: its start, its handle, its health and its status."""
