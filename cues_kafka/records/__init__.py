"""The framework's own records: their bytes, and how they are read from a cluster."""
