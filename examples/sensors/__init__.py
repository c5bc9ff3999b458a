"""MQTT to Kafka to MQTT: readings of sensors come in, alarms go out, and processes are killed meanwhile."""
