"""Targets outside of Kafka: databases that commit effects together with the attempt (E1)."""
