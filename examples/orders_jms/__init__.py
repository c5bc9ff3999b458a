"""JMS to Kafka to PostgreSQL and back to JMS: orders are booked and shipped while processes are killed."""
