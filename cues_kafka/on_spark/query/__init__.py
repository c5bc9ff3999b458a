"""Streaming queries that run processors, and are started again when they end."""
