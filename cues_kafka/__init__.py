"""Exactly-once processing of Kafka messages with plain Python functions.

The public names. Importing this package loads no client, codec library or Spark: names that need one are resolved when
they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cues_kafka.errors import (
    AbortableError,
    AnswerTooLarge,
    BrokerError,
    CallChanged,
    CallError,
    CallRefused,
    CallUnanswered,
    CodecError,
    ConfigError,
    CuesError,
    EarlyMessage,
    FactoryError,
    FatalError,
    Fenced,
    GraphError,
    HandlerFailed,
    Interrupt,
    LateMessage,
    MissingExtra,
    OutputError,
    RecoveryError,
    RetriableError,
    TaskElsewhere,
    TaskStopped,
    Unknown,
    UnreadableError,
    UnstableOffsets,
    error_context,
)
from cues_kafka.graph.blobs import Blobs
from cues_kafka.graph.calls import Http, Once
from cues_kafka.graph.codec import Codec
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.declare import (
    Alias,
    CallPolicy,
    CommitPolicy,
    Digits,
    GlobalTable,
    Json,
    Limits,
    Raw,
    Retry,
    Store,
    Table,
)
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.dependencies import Topology
from cues_kafka.graph.effects import Sql, Upsert
from cues_kafka.graph.error_message import ErrorCause, ErrorMessage, ErrorMessages, Errors
from cues_kafka.graph.feed import Encoded, Feed, ReplayableSource
from cues_kafka.graph.filters import has_header, has_tag, has_type
from cues_kafka.graph.formats import Avro, JsonSchema, Protobuf
from cues_kafka.graph.handler import Handler, StateHandler
from cues_kafka.graph.message import Message, Out
from cues_kafka.graph.meta import Meta, Place
from cues_kafka.graph.processor import Processor, Source, processor
from cues_kafka.graph.ready import Dedupe, Header, rekey
from cues_kafka.graph.sink import Sink
from cues_kafka.graph.timers import Timer, Timers
from cues_kafka.graph.topic import Topic
from cues_kafka.graph.windows import Tumbling

if TYPE_CHECKING:
    from cues_kafka.bridges.amqp.declare import Amqp
    from cues_kafka.bridges.files import Directory, Files
    from cues_kafka.bridges.ibmmq.declare import IbmMq
    from cues_kafka.bridges.iterate import Iterate
    from cues_kafka.bridges.mqtt.declare import Mqtt
    from cues_kafka.bridges.outbox.declare import SqlOutbox
    from cues_kafka.bridges.rabbitmq.declare import RabbitMq
    from cues_kafka.bridges.stomp.declare import Stomp
    from cues_kafka.brokers.options import Kafka, Memory, Registry
    from cues_kafka.brokers.security import OAuthBearer, Oidc, Plain, Scram, Secret, Tls
    from cues_kafka.client.alts import alts
    from cues_kafka.client.client import Client
    from cues_kafka.client.connect import connect
    from cues_kafka.client.messages import Messages
    from cues_kafka.client.queries import Answer
    from cues_kafka.client.store_view import StoreView
    from cues_kafka.client.tailer import ClientTailer
    from cues_kafka.client.topic import ClientTopic
    from cues_kafka.client.transaction import ClientTransaction
    from cues_kafka.codecs.payloads import payload_of
    from cues_kafka.observe.openlineage import OpenLineage
    from cues_kafka.observe.spans import Spans
    from cues_kafka.operate.look.seen import GraphStatus, InputLag, SeenTask
    from cues_kafka.operate.look.status import status
    from cues_kafka.operate.repair.ask import Repairs, repairs
    from cues_kafka.operate.repair.filed import Selection
    from cues_kafka.ports.log import Sent
    from cues_kafka.running.running import Running
    from cues_kafka.running.start import start
    from cues_kafka.sinks.blobs.reading import DataFile, files
    from cues_kafka.sinks.delta.declare import Delta
    from cues_kafka.state.mapping import State
    from cues_kafka.state.tables import TableView
    from cues_kafka.task.calling.imperative import Appender, Tailer
    from cues_kafka.task.calling.step import Received, Step
    from cues_kafka.task.status import Status

_LAZY = {
    "Amqp": "cues_kafka.bridges.amqp.declare",
    "OAuthBearer": "cues_kafka.brokers.security",
    "Oidc": "cues_kafka.brokers.security",
    "Plain": "cues_kafka.brokers.security",
    "Scram": "cues_kafka.brokers.security",
    "Secret": "cues_kafka.brokers.security",
    "Tls": "cues_kafka.brokers.security",
    "Answer": "cues_kafka.client.queries",
    "Client": "cues_kafka.client.client",
    "ClientTailer": "cues_kafka.client.tailer",
    "ClientTopic": "cues_kafka.client.topic",
    "ClientTransaction": "cues_kafka.client.transaction",
    "Appender": "cues_kafka.task.calling.imperative",
    "Directory": "cues_kafka.bridges.files",
    "Files": "cues_kafka.bridges.files",
    "GraphStatus": "cues_kafka.operate.look.seen",
    "IbmMq": "cues_kafka.bridges.ibmmq.declare",
    "InputLag": "cues_kafka.operate.look.seen",
    "Iterate": "cues_kafka.bridges.iterate",
    "Kafka": "cues_kafka.brokers.options",
    "Memory": "cues_kafka.brokers.options",
    "OpenLineage": "cues_kafka.observe.openlineage",
    "Messages": "cues_kafka.client.messages",
    "Mqtt": "cues_kafka.bridges.mqtt.declare",
    "RabbitMq": "cues_kafka.bridges.rabbitmq.declare",
    "Received": "cues_kafka.task.calling.step",
    "Registry": "cues_kafka.brokers.options",
    "Repairs": "cues_kafka.operate.repair.ask",
    "Running": "cues_kafka.running.running",
    "SeenTask": "cues_kafka.operate.look.seen",
    "Selection": "cues_kafka.operate.repair.filed",
    "Sent": "cues_kafka.ports.log",
    "Spans": "cues_kafka.observe.spans",
    "SqlOutbox": "cues_kafka.bridges.outbox.declare",
    "State": "cues_kafka.state.mapping",
    "Status": "cues_kafka.task.status",
    "Step": "cues_kafka.task.calling.step",
    "Stomp": "cues_kafka.bridges.stomp.declare",
    "StoreView": "cues_kafka.client.store_view",
    "TableView": "cues_kafka.state.tables",
    "alts": "cues_kafka.client.alts",
    "Tailer": "cues_kafka.task.calling.imperative",
    "DataFile": "cues_kafka.sinks.blobs.reading",
    "Delta": "cues_kafka.sinks.delta.declare",
    "connect": "cues_kafka.client.connect",
    "payload_of": "cues_kafka.codecs.payloads",
    "files": "cues_kafka.sinks.blobs.reading",
    "repairs": "cues_kafka.operate.repair.ask",
    "start": "cues_kafka.running.start",
    "status": "cues_kafka.operate.look.status",
}


__all__ = [
    "AbortableError",
    "Alias",
    "Amqp",
    "Answer",
    "AnswerTooLarge",
    "Appender",
    "Avro",
    "Blobs",
    "BrokerError",
    "CallChanged",
    "CallError",
    "CallPolicy",
    "CallRefused",
    "CallUnanswered",
    "Client",
    "ClientTailer",
    "ClientTopic",
    "ClientTransaction",
    "Codec",
    "CodecError",
    "CommitPolicy",
    "ConfigError",
    "CuesError",
    "DataFile",
    "DataFrameProcessor",
    "Dedupe",
    "Delta",
    "Digits",
    "Directory",
    "EarlyMessage",
    "Encoded",
    "ErrorCause",
    "ErrorMessage",
    "ErrorMessages",
    "Errors",
    "FactoryError",
    "FatalError",
    "Feed",
    "Fenced",
    "Files",
    "GlobalTable",
    "Graph",
    "GraphError",
    "GraphStatus",
    "Handler",
    "HandlerFailed",
    "Header",
    "Http",
    "IbmMq",
    "InputLag",
    "Interrupt",
    "Iterate",
    "Json",
    "JsonSchema",
    "Kafka",
    "LateMessage",
    "Limits",
    "Memory",
    "Message",
    "Messages",
    "Meta",
    "MissingExtra",
    "Mqtt",
    "OAuthBearer",
    "Oidc",
    "Once",
    "OpenLineage",
    "Out",
    "OutputError",
    "Place",
    "Plain",
    "Processor",
    "Protobuf",
    "RabbitMq",
    "Raw",
    "Received",
    "RecoveryError",
    "Registry",
    "Repairs",
    "ReplayableSource",
    "RetriableError",
    "Retry",
    "Running",
    "Scram",
    "Secret",
    "SeenTask",
    "Selection",
    "Sent",
    "Sink",
    "Source",
    "Spans",
    "Sql",
    "SqlOutbox",
    "State",
    "StateHandler",
    "Status",
    "Step",
    "Stomp",
    "Store",
    "StoreView",
    "Table",
    "TableView",
    "Tailer",
    "TaskElsewhere",
    "TaskStopped",
    "Timer",
    "Timers",
    "Tls",
    "Topic",
    "Topology",
    "Tumbling",
    "Unknown",
    "UnreadableError",
    "UnstableOffsets",
    "Upsert",
    "alts",
    "connect",
    "error_context",
    "files",
    "has_header",
    "has_tag",
    "has_type",
    "payload_of",
    "processor",
    "rekey",
    "repairs",
    "start",
    "status",
]


if not TYPE_CHECKING:  # a type checker would take any misspelt name for one that is found here

    def __getattr__(name: str) -> Any:
        module = _LAZY.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(module), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
