"""A streaming query of Spark that runs a processor, and is started again when it ends."""
