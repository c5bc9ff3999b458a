"""Feeds at work: sources outside of Kafka are read by tasks that write what they hold into topics."""
