"""AMQP 1.0: queues of Artemis, RabbitMQ and others as sources of feeds, and as targets of sinks."""
