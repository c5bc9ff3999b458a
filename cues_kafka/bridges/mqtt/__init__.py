"""MQTT: messages of a broker into Kafka, and messages of Kafka to a broker."""
