"""The brokers: what carries the messages, behind the protocols of `ports`."""
