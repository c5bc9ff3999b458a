"""RabbitMQ: messages of its queues and streams into Kafka, and messages of Kafka to its exchanges."""
