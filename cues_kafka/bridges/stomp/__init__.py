"""STOMP 1.2: messages of JMS brokers, such as ActiveMQ Classic and Artemis, into Kafka and back."""
