"""Our own records: their bytes, and how they are read from a cluster."""
