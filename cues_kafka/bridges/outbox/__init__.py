"""Outboxes: tables into which an application writes messages in its own transactions, and which a feed empties."""
