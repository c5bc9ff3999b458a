"""
IBM MQ: messages of its queues into Kafka, and back.

Not run against a real IBM MQ; tested on a fake of its client.
"""
