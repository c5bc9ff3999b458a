"""Settings of librdkafka that the guarantee needs, and those that make it quick."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

Role: TypeAlias = Literal["admin", "session", "sender", "reader", "member"]

WRITERS: tuple[Role, ...] = ("session", "sender")
READERS: tuple[Role, ...] = ("reader", "member")
_ALL: tuple[Role, ...] = ("admin", *WRITERS, *READERS)

OURS = object()
"""In `FORCED`: the framework sets the value per client, and a user cannot give one."""


class Forced(NamedTuple):
    """
    One setting that the guarantee needs, by librdkafka's name, with the clients that get it.

    Attributes:
        value: the only value; a `str` that starts with "=" names the option that it follows; `OURS`: set per client.
        reason: what the error says when a user's value is refused.
    """

    key: str
    roles: tuple[Role, ...]
    value: Any
    reason: str


FORCED: tuple[Forced, ...] = (
    # which messages readers see, and from where
    Forced("enable.auto.commit", READERS, False, "positions are committed inside transactions only; committing by "
           "time loses or repeats messages"),
    Forced("enable.auto.offset.store", READERS, False, "positions come from the backing topic, never from the client"),
    Forced("auto.offset.reset", READERS, "error", "any other value skips or repeats data in silence; a processor's "
           "start= says where it begins"),
    Forced("isolation.level", READERS, "read_committed", "anything else reads messages of aborted transactions"),
    Forced("check.crcs", READERS, True, "flipped bits must not become messages"),
    Forced("allow.auto.create.topics", READERS, False, "a misspelt name must not become a topic"),
    Forced("enable.partition.eof", READERS, OURS, "a position moves over markers by the end of a partition"),
    # what writers promise
    Forced("enable.idempotence", WRITERS, True, "without it a retry writes a message twice"),
    Forced("acks", WRITERS, "all", "an acknowledged message must survive the loss of a broker"),
    Forced("partitioner", WRITERS, "murmur2_random", "Java clients place keys by murmur2; joins with their topics "
           "would miss"),
    Forced("delivery.report.only.error", WRITERS, False, "delivery reports are counted before every commit"),
    Forced("transactional.id", ("session",), OURS, "it is the lock of a task, <graph>.<processor>.<partition>"),
    Forced("transaction.timeout.ms", ("session",), "=transaction_timeout_s", "set transaction_timeout_s= instead"),
    Forced("message.timeout.ms", ("session",), OURS, "it follows from transaction_timeout_s=, which bounds it"),
    Forced("statistics.interval.ms", ("session",), 5000, "the statistics are a cross-check for suspect commits"),
    Forced("log.connection.close", ("session",), True, "a connection that closes during a commit makes it suspect; "
           "the log line is the only trace"),
    Forced("log_level", ("session",), 6, "log lines are a witness of suspect commits; filter the logger "
           "cues_kafka.librdkafka instead"),
    # time
    Forced("socket.timeout.ms", _ALL, "=socket_timeout_s", "set socket_timeout_s= instead: a commit that takes this "
           "long is suspect"),
    # the group
    Forced("session.timeout.ms", ("member",), "=session_timeout_s", "set session_timeout_s= instead"),
    Forced("heartbeat.interval.ms", ("member",), "=heartbeat_s", "set heartbeat_s= instead"),
    Forced("max.poll.interval.ms", ("member",), "=max_poll_interval_s", "set max_poll_interval_s= instead: a third of "
           "it bounds how long a revocation waits"),
    Forced("group.protocol", ("member",), OURS, "set group_protocol= instead"),
    Forced("partition.assignment.strategy", ("member",), OURS, "set assignor= instead"),
    Forced("group.remote.assignor", ("member",), OURS, "set assignor= instead"),
    Forced("group.id", READERS, OURS, "the group is <graph>.<processor>"),
    Forced("group.instance.id", ("member",), OURS, "the supervisor gives each worker its own"),
    # addresses and callbacks
    Forced("bootstrap.servers", _ALL, OURS, "give the address as the first argument of Kafka(...)"),
    Forced("logger", _ALL, OURS, "the client's log lines go to the logger cues_kafka.librdkafka"),
    Forced("log_cb", _ALL, OURS, "the client's log lines go to the logger cues_kafka.librdkafka"),
    Forced("error_cb", _ALL, OURS, "it collects the reasons that error messages name"),
    Forced("stats_cb", _ALL, OURS, "it is a cross-check for suspect commits"),
    Forced("throttle_cb", _ALL, OURS, "it is counted in the metrics, and logged"),
    Forced("on_delivery", _ALL, OURS, "delivery reports are counted before every commit"),
    Forced("on_commit", _ALL, OURS, "consumers never commit; positions are in transactions"),
    Forced("default.topic.config", _ALL, OURS, "put its settings directly into producer= or consumer="),
)  # fmt: skip

ALIASES: dict[str, str] = {
    "metadata.broker.list": "bootstrap.servers",
    "request.required.acks": "acks",
    "delivery.timeout.ms": "message.timeout.ms",
    "auto.commit.enable": "enable.auto.commit",
}
"""librdkafka's other names for settings in `FORCED`: a second name must not get around the table."""

FORCED_BY_KEY: dict[str, Forced] = {forced.key: forced for forced in FORCED}

SIZES = {"message.max.bytes": 1_000_000, "batch.size": 1_000_000}

AGE, REFRESH = "metadata.max.age.ms", "topic.metadata.refresh.interval.ms"

TUNING: dict[Role, dict[str, Any]] = {
    # Lingering only matters while a batch is being enqueued: flush() overrides it. The queue bounds hold the memory of
    # one task, 64 MiB and 100,000 messages; a session waits while the queue is full. The size limits are the client's.
    # A client that has lost all brokers begins with the bootstrap addresses again, and throws its handles of brokers
    # away. A session then never asked for the coordinator of its group again (docs/faults.md). Without that it connects
    # to the brokers that it knows; where these are gone it fails, and the next session begins with the addresses.
    # The age of metadata also ends what the client remembers of a group's coordinator. Without that a session that did
    # not use it while that broker left waits for the old one (docs/faults.md). While the brokers have not noticed a
    # death no offsets are sent, so the age must be less than that takes (9 s by default, 3 s with local nodes). Topics
    # must be asked for more often, or the client forgets their leaders.
    "session": {
        "linger.ms": 5,
        "compression.type": "lz4",
        "queue.buffering.max.kbytes": 65_536,
        "metadata.recovery.strategy": "none",
        AGE: 2_000,
        REFRESH: 700,
        **SIZES,
    },
    "sender": {"linger.ms": 5, "compression.type": "lz4", "message.timeout.ms": 30_000, **SIZES},
    # A fetch under way delays the end of a partition and a newly assigned one, so its wait is short. The queue bounds
    # and the size of a fetch hold memory: compressed messages unpack to many times their size. With these values a
    # worker with a backlog of 400,000 messages in 4 partitions has 140 MiB at its peak; with 10,000 kept ready for each
    # partition 149, and no faster; with the client's defaults up to 170 more. A full queue is looked at again after
    # 10 ms, not after the default second.
    "reader": {
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 100,
        "fetch.queue.backoff.ms": 10,
        "fetch.message.max.bytes": 262_144,
        "queued.min.messages": 5_000,
        "queued.max.messages.kbytes": 16_384,
    },
    # The group shares new partitions when a member has heard of them; by default it asks every five minutes.
    "member": {REFRESH: 15_000},
    "admin": {},
}
"""Our defaults for what may be chosen freely; the user's settings win."""

COMMON_TUNING: dict[str, Any] = {
    "reconnect.backoff.max.ms": 1_000,
    "socket.keepalive.enable": True,
    # A transaction that follows another one at once waits for this time until the coordinator has ended that one. With
    # three brokers, one record then takes 33 ms at 10 ms, 11 at 1, and 100 more at librdkafka's default.
    "retry.backoff.ms": 2,
}
