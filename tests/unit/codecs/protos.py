"""Classes of Protobuf messages for tests, made of descriptions, as protoc would generate them."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

Field = descriptor_pb2.FieldDescriptorProto


def described() -> list[Any]:
    """Two files: one has orders, and messages inside each other; the other has what an order names."""
    money = descriptor_pb2.FileDescriptorProto(name="cues/money.proto", package="cues.test", syntax="proto3")
    amount = money.message_type.add(name="Amount")
    amount.field.add(name="cents", number=1, type=Field.TYPE_INT64, label=Field.LABEL_OPTIONAL)
    shop = descriptor_pb2.FileDescriptorProto(name="cues/shop.proto", package="cues.test", syntax="proto3")
    shop.dependency.extend(["cues/money.proto", timestamp_pb2.DESCRIPTOR.name])
    order = shop.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=Field.TYPE_INT64, label=Field.LABEL_OPTIONAL)
    order.field.add(
        name="total", number=2, type=Field.TYPE_MESSAGE, label=Field.LABEL_OPTIONAL, type_name=".cues.test.Amount"
    )
    order.field.add(name="tags", number=3, type=Field.TYPE_STRING, label=Field.LABEL_REPEATED)
    order.field.add(
        name="inside", number=4, type=Field.TYPE_MESSAGE, label=Field.LABEL_OPTIONAL, type_name=".cues.test.Order"
    )
    order.field.add(
        name="at",
        number=5,
        type=Field.TYPE_MESSAGE,
        label=Field.LABEL_OPTIONAL,
        type_name=".google.protobuf.Timestamp",
    )
    bill = shop.message_type.add(name="Bill")
    bill.field.add(name="order", number=1, type=Field.TYPE_INT64, label=Field.LABEL_OPTIONAL)
    bill.nested_type.add(name="First")
    line = bill.nested_type.add(name="Line")
    line.field.add(name="sku", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    return [money, shop]


def class_named(name: str, pool: Any = None) -> Any:
    """A class of messages of these files."""
    pool = pool or descriptor_pool.Default()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for file in described():
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"cues.test.{name}"))


Order = class_named("Order")
Bill = class_named("Bill")
Line = class_named("Bill.Line")
Bill.__module__ = __name__

DESCRIPTOR: Any = Bill.DESCRIPTOR.file
"""As modules that protoc generates have it: they go to other processes by name."""
