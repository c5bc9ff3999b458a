"""The other team's program beside `bills.py`: it writes orders with Confluent's serializer, and has no cues-kafka."""

from decimal import Decimal

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

SCHEMA = """
{"type": "record", "name": "com.shop.Order", "fields": [
  {"name": "customer", "type": "string"},
  {"name": "id", "type": "long"},
  {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
  {"name": "coupon", "type": ["null", "string"], "default": null}
]}
"""

ORDERS = [
    {"customer": "c7", "id": 1, "total": Decimal("20.00"), "coupon": None},
    {"customer": "c9", "id": 2, "total": Decimal("10.00"), "coupon": "SPRING"},
]

if __name__ == "__main__":
    serialize = AvroSerializer(SchemaRegistryClient({"url": "http://localhost:8081"}), SCHEMA)
    producer = Producer({"bootstrap.servers": "localhost:9092"})
    for order in ORDERS:
        producer.produce("orders", serialize(order, SerializationContext("orders", MessageField.VALUE)))
    if left := producer.flush(30):
        raise SystemExit(f"{left} orders were not sent")
