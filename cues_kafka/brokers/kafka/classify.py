"""What the client's errors mean: one table, and the one place that translates them.

librdkafka marks errors as retriable, abortable or fatal. The marks only help to read logs: the reaction to each class
is the same (P8), because some marks are not safe to follow (librdkafka calls an unknown outcome abortable). The table
says which class an error gets, and what a reader must know about it if the client's text does not say it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException

from cues_kafka.brokers.kafka.rights import Right, refusal
from cues_kafka.errors import AbortableError, BrokerError, FatalError, RetriableError, UnstableOffsets
from cues_kafka.ports.log import TopicPartition
from cues_kafka.words import BOOTSTRAP, SERVER, at_address


class Meaning(NamedTuple):
    """The class of an error, and what it says to a reader."""

    error: type[BrokerError]
    sentence: str


_TABLES: Final[dict[type[BrokerError], dict[str, str]]] = {
    RetriableError: {
        # no answer
        "_TIMED_OUT": "the cluster did not answer in time",
        "_TIMED_OUT_QUEUE": "the request did not leave this machine in time",
        "_TRANSPORT": "the connection to a broker failed",
        "_ALL_BROKERS_DOWN": "no broker can be reached",
        "_RESOLVE": "the broker's host name has no address",
        "REQUEST_TIMED_OUT": "the brokers did not finish in time",
        "NETWORK_EXCEPTION": "the broker lost a connection",
        # a coordinator or a leader is changing
        "COORDINATOR_NOT_AVAILABLE": "the coordinator is not available yet",
        "COORDINATOR_LOAD_IN_PROGRESS": "the coordinator is still loading its log",
        "NOT_COORDINATOR": "the coordinator has moved",
        "TRANSACTION_COORDINATOR_FENCED": "the transaction coordinator has moved",
        "CONCURRENT_TRANSACTIONS": "the previous transaction of this id is still being ended",
        "LEADER_NOT_AVAILABLE": "the partition has no leader at the moment",
        "NOT_LEADER_FOR_PARTITION": "the partition's leader has moved",
        "FENCED_LEADER_EPOCH": "the partition's leader has moved or restarted",
        "UNKNOWN_LEADER_EPOCH": "the broker does not know yet that the partition's leader has moved",
        "_NOENT": "the client knows no leader of the partition",
        # a topic is missing
        "UNKNOWN_TOPIC_OR_PART": "the topic or partition does not exist",
        "_UNKNOWN_TOPIC": "the topic does not exist",
        "_UNKNOWN_PARTITION": "the partition does not exist",
        "UNKNOWN_TOPIC_ID": "the topic was deleted, or recreated",
        "_MAX_POLL_EXCEEDED": "the processor's thread did not poll for max_poll_interval_s, so the group took its "
        "tasks away",
    },
    UnstableOffsets: {
        "UNSTABLE_OFFSET_COMMIT": "an open transaction holds offsets of this group; if it lasts, find it "
        f"with `kafka-transactions {SERVER} find-hanging --topic __consumer_offsets`, end it with "
        "its `abort`; `cues-kafka doctor MODULE:GRAPH` prints that command with its place",
    },
    AbortableError: {
        # the group has moved
        "ILLEGAL_GENERATION STALE_MEMBER_EPOCH": "the group has rebalanced since",
        "UNKNOWN_MEMBER_ID FENCED_MEMBER_EPOCH": "this worker is no longer a member of the group",
        "REBALANCE_IN_PROGRESS": "the group is rebalancing",
        # a write failed, or its outcome is unknown
        "_MSG_TIMED_OUT": "a message was not acknowledged in time",
        "NOT_ENOUGH_REPLICAS": "fewer replicas are in sync than min.insync.replicas demands",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND": "replicas fell out of sync during the write",
        "INVALID_PRODUCER_ID_MAPPING": "the cluster has forgotten this transactional id (idle for longer than "
        "transactional.id.expiration.ms)",
        "UNKNOWN_PRODUCER_ID": "the partition has forgotten this producer (retention, or records deleted)",
        "_STATE": "the client is not in a state for this call",
        "_INCONSISTENT": "a message of the transaction failed",
        "_PURGE_QUEUE _PURGE_INFLIGHT": "the message was discarded with its transaction",
        "UNKNOWN": "the broker failed in a way that it does not name; the outcome is unknown",
        # the topic refuses a message
        "MSG_SIZE_TOO_LARGE": "a message, or a batch of them, is larger than the topic's max.message.bytes or the "
        "client's message.max.bytes; if the topic's was lowered, restart the worker, which asks for it when it starts; "
        "if this user may not read the topic's settings (accept_unchecked), grant DescribeConfigs on it, then restart "
        "the worker: a message above the limit is then an error message of its own",
        "INVALID_RECORD": "the topic rejects a message; a compacted topic takes no message without a key: give the "
        "outputs keys, or set another cleanup.policy, then restart the worker, which asks for it when it starts",
        "INVALID_TIMESTAMP": "a timestamp is further from the broker's clock than the topic's "
        "message.timestamp.before.max.ms and message.timestamp.after.max.ms allow: compare the clocks; if a setting "
        "was lowered, restart the worker, which asks for it when it starts",
    },
    FatalError: {
        # another client took this one's place
        "PRODUCER_FENCED": "another client with this transactional id took over",
        "_FENCED INVALID_PRODUCER_EPOCH": "another client with this transactional id took over, or its transaction "
        "timed out",
        "FENCED_INSTANCE_ID": "another process runs with the same instance name; stop one of the two, or give each its "
        "own (--instance, instance=)",
        "GROUP_ID_NOT_FOUND": "the brokers do not convert this group from the protocol classic to consumer while its "
        "members have the assignor cooperative-sticky: stop all of its workers with SIGTERM, then start them again; or "
        "go back to group_protocol='classic'",
        "UNRELEASED_INSTANCE_ID": "another member still has this instance name. If that process was killed, its "
        "successor joins when the brokers' session of the group has ended (group.consumer.session.timeout.ms). If it "
        "runs, stop one of the two, or give each its own name (--instance, instance=)",
        # the transaction, or the producer's identity, is over
        "INVALID_TXN_STATE": "the transaction is over already, for example timed out",
        "OUT_OF_ORDER_SEQUENCE_NUMBER": "the partition has lost track of this producer's writes",
        "INVALID_TRANSACTION_TIMEOUT": "transaction_timeout_s is above the brokers' transaction.max.timeout.ms; "
        "lower it",
        # the user, a setting or the brokers must change
        "TOPIC_AUTHORIZATION_FAILED": "this user lacks a right on the topic; `cues-kafka plan MODULE:GRAPH --acls` "
        "prints the rights that each role needs",
        "GROUP_AUTHORIZATION_FAILED": "this user lacks a right on the group; `cues-kafka plan MODULE:GRAPH --acls` "
        "prints the rights that each role needs",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "this user lacks Write on the transactional id",
        "CLUSTER_AUTHORIZATION_FAILED": "this user lacks a right on the cluster",
        "SASL_AUTHENTICATION_FAILED _AUTHENTICATION": "wrong user name or password",
        "_SSL": "the TLS handshake failed; look at ssl.ca.location and the client's certificate",
        "INVALID_REPLICATION_FACTOR": "more replicas were asked for than there are brokers",
        "POLICY_VIOLATION": "a policy of the cluster forbids it",
        "TOPIC_EXCEPTION": "the topic's name is not allowed",
        "_AUTO_OFFSET_RESET OFFSET_OUT_OF_RANGE": "the position is outside of the log: the records there were deleted, "
        "or the topic was truncated",
        "_BAD_MSG": "a stored message is damaged (checksum)",
        "_UNSUPPORTED_FEATURE UNSUPPORTED_VERSION": "the brokers are too old; 3.7 or newer is needed",
    },
}
MEANINGS: Final = {
    code: Meaning(kind, sentence)
    for kind, table in _TABLES.items()
    for codes, sentence in table.items()
    for code in codes.split()
}

CLIENT_ERRORS: Final = (KafkaException, SystemError)
"""What a call of a producer may raise. When a fatal error meets delivery reports in one call, the client sets its
exception and still calls back (2.16.1); Python then raises SystemError with that exception as the cause."""

_Result = TypeVar("_Result")


def catchable(call: Callable[..., _Result], *args: Any) -> _Result:
    """
    Call a client where it reports, and raise its errors as exceptions.

    Below Python 3.12 the client (2.16.1) can raise a `KafkaError` itself, which is no exception: where a fatal error
    meets another report in one call, as a log line. No `except` with a class catches it, and the thread ends without
    a word. Nothing may be raised while it is handled: Python would read it as an exception.
    """
    try:
        return call(*args)
    except BaseException:  # whatever is an exception goes on as it is
        raise
    except:  # noqa: E722 - the bare error, which is raised below
        bare = sys.exc_info()[1]
    raise KafkaException(bare)


HOLLOW: Final = {"_FATAL", "_PURGE_QUEUE", "_PURGE_INFLIGHT"}
"""Errors that only point at the client's fatal error."""


def name(error: KafkaError) -> str:
    """The client's name of an error code, such as ``_FENCED`` or ``ILLEGAL_GENERATION``."""
    return str(error.name())


def error_of(problem: Exception | KafkaError) -> KafkaError:
    """The `KafkaError` inside an exception of the client."""
    if isinstance(problem, KafkaError):
        return problem
    cause: BaseException | None = problem
    while isinstance(cause, SystemError):  # one for each delivery report that the call still made
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, KafkaException) and cause is not problem:
        return error_of(cause)
    first = problem.args[0] if problem.args else None
    return first if isinstance(first, KafkaError) else KafkaError(KafkaError._FAIL, str(problem))  # noqa: SLF001 - its codes are named so


def code_of(error: KafkaError) -> str:
    """The name of an error code; a consumer's fatal error has its code only in its text."""
    if name(error) != "_FATAL":
        return name(error)
    return next((code for text, code in _FATAL_TEXTS.items() if text in error.str()), "_FATAL")


_FATAL_TEXTS: Final = {
    "same group.instance.id": "FENCED_INSTANCE_ID",
    "instance ID is still used by another member": "UNRELEASED_INSTANCE_ID",
    "group id does not exist": "GROUP_ID_NOT_FOUND",
    "Group authorization failed": "GROUP_AUTHORIZATION_FAILED",
    "Topic authorization failed": "TOPIC_AUTHORIZATION_FAILED",
}


def classify(error: KafkaError) -> Meaning:
    """What an error means. If it is in no table, the client's own marks decide."""
    known = MEANINGS.get(code_of(error))
    if known is not None:
        # A code that is harmless elsewhere can have ended this client.
        return known._replace(error=FatalError) if error.fatal() else known
    if error.txn_requires_abort() and not error.fatal():
        return Meaning(AbortableError, "the transaction cannot be committed")
    if error.retriable() and not error.fatal():
        return Meaning(RetriableError, "the cluster could not do it at the moment")
    return Meaning(FatalError, "the Kafka client cannot continue")


def translate(
    problem: Exception | KafkaError,
    doing: str,
    *,
    reasons: Sequence[str] = (),
    fatal: KafkaError | None = None,
    at: TopicPartition | None = None,
    needs: Sequence[Right] = (),
    user: str | None = None,
    address: str = BOOTSTRAP,
) -> BrokerError:
    """
    Translate an error of the client into ours, with what is known of its cause; `doing` begins the message.

    `reasons` is what the client said of its connections meanwhile: a time-out alone never names its cause. The client's
    `fatal` error replaces errors that only point at it. The call needs the rights `needs` of this user. Commands
    in the text name the cluster by its `address`.
    """
    error = error_of(problem)
    if fatal is not None and name(error) in HOLLOW:
        error = fatal
    meaning = classify(error)
    code = code_of(error)
    if refused := refusal(code, needs, user):
        what, remedy = refused
        return meaning.error(f"{doing}: {what} [{code}]. {at_address(remedy, address)}", code=code, at=at)
    sentence = at_address(meaning.sentence, address)
    return meaning.error(f"{doing}: {sentence} [{name(error)}: {error.str()}]{because(reasons)}", code=code, at=at)


def because(reasons: Sequence[str]) -> str:
    """What the client said meanwhile, as the end of a message; empty if it said nothing."""
    return f"; meanwhile: {'; '.join(dict.fromkeys(reasons))}" if reasons else ""
