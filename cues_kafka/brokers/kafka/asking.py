"""One client of librdkafka for questions and orders: it sends requests, waits for answers, and says what went wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

# The package does not export these names to type checkers.
from cues_kafka.brokers.addresses import addresses
from cues_kafka.brokers.kafka.classify import error_of, name, translate
from cues_kafka.brokers.kafka.opening import check_files, check_own_settings
from cues_kafka.brokers.kafka.probe import Finding, find_reason
from cues_kafka.brokers.kafka.rights import KINDS, Right
from cues_kafka.brokers.kafka.watch import Watch
from cues_kafka.brokers.options import Kafka
from cues_kafka.errors import BrokerError, FatalError, LoginError, RetriableError
from cues_kafka.observe.log import get_logger
from cues_kafka.observe.together import CLUSTER

log = get_logger("cues_kafka.broker")

FIRST_LOOK_S: Final = 1.0
"""After this time without an answer from the cluster, a log line says what is waited for."""

VISIBLE_S: Final = 30.0
"""How long a created or deleted topic may take until the brokers agree."""

LATE_S: Final = 5.0
"""How much longer than its own time-out an answer of the client may take before it counts as missing."""

PROBED: Final = 2
"""How many addresses are looked at; the brokers of a cluster have the same listeners."""

MISSING: Final = {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"}
"""The brokers' answers about a topic or partition that is not there."""

_SILENT: Final = "the address is silent: firewall, wrong host?"
_WHERE: Final = "Kafka(...) in a program, --bootstrap or CUES_KAFKA_BOOTSTRAP for the commands"


class Asking:
    """
    One `AdminClient`, shared by threads; every method raises `BrokerError`.

    Attributes:
        reached: the cluster has answered this process. So the settings are right, and a refused login is waited out.
        spent: a request failed. `KafkaBroker` opens a new client for the next question (R5): after a broker's restart
            librdkafka 2.16 can go on asking with a leader's old epoch (FENCED_LEADER_EPOCH), or never answer a request
            to a coordinator again; a new client answers both in 10 ms.
        cluster_id: names the cluster; empty: it has not answered yet.
        options: the cluster.
        settings: those of the client.
        client: the client.
    """

    def __init__(self, options: Kafka, *, reached: bool = False) -> None:
        self.reached = reached
        self.cluster_id = ""
        self.spent = False
        self.options = options
        self._watch = Watch("admin", options)
        self._probed: Finding | None = None
        self.settings = options.settings("admin", client_id="cues-kafka.admin")
        check_files(self.settings)
        self.client = self._watch.open(AdminClient, self.settings)
        check_own_settings(options)

    @property
    def user(self) -> str | None:
        """This client's user, as the brokers know it; None: not known."""
        return self._watch.user

    def reach(self) -> int:
        """The number of brokers. If none can be reached, a log line soon says why, and the error at the end."""
        timeout_s = self.options.start_timeout_s
        deadline = time.monotonic() + timeout_s
        look_s = FIRST_LOOK_S
        while True:
            left_s = max(0.1, min(look_s, deadline - time.monotonic()))
            try:
                metadata = self.client.list_topics(timeout=left_s, topic="__consumer_offsets")
            except KafkaException as problem:
                error = self._unreachable(problem, timeout_s)
                if time.monotonic() >= deadline or not isinstance(error, RetriableError):
                    try:
                        raise error from problem
                    finally:
                        del error  # it holds this frame, and so the client
                if look_s == FIRST_LOOK_S:
                    why = "; ".join(self._watch.reasons) or "no answer"
                    where = self.options.bootstrap
                    CLUSTER.warning(log, "waiting for Kafka", cause=where, bootstrap=where, up_to_s=timeout_s, why=why)
                look_s = timeout_s
            else:
                self.reached = True
                self.cluster_id = metadata.cluster_id or ""
                return len(metadata.brokers)

    def until(self, done: Callable[[], bool], otherwise: str) -> None:
        """Ask until the brokers agree: no event tells it."""
        deadline = time.monotonic() + VISIBLE_S
        while not done():
            if time.monotonic() > deadline:
                raise RetriableError(f"{otherwise} after {VISIBLE_S:g} s; look at the brokers' logs", code="_TIMED_OUT")
            time.sleep(0.02)

    def ask(self, function: Callable[..., Any], *args: Any, for_s: float | None = None, **kwargs: Any) -> Any:
        """Send a request whose answers come as futures, within `for_s` or `start_timeout_s`."""
        doing, timeout_s = function.__name__.replace("_", " "), for_s or self.options.start_timeout_s
        return self.call(doing, function, *args, request_timeout=timeout_s, **kwargs)

    def call(self, doing: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._watch.same_process()
        try:
            return function(*args, **kwargs)
        except KafkaException as problem:
            raise self.failed(problem, doing) from problem

    def wait_for(self, asked: Collection[Future[Any]], doing: str) -> None:
        """
        Wait until all answers are there.

        Raises:
            RetriableError: one does not come, although the client's own time is over.
        """
        longest_s = self.options.start_timeout_s + LATE_S
        late = wait(asked, longest_s).not_done
        if not late:
            return
        self.spent = True
        threading.Thread(target=_hold, args=([self.client], late), name="cues-kafka-late", daemon=True).start()
        raise RetriableError(f"{doing}: the Kafka client did not answer within {longest_s:g} s", code="_TIMED_OUT")

    def result(self, future: Future[Any], doing: str, *needs: Right, ignore: Collection[str] = ()) -> Any:
        """The answer; None where the error is one of those to ignore."""
        self.wait_for([future], doing)
        try:
            return future.result()
        except KafkaException as problem:
            alone(problem)
            if name(error_of(problem)) in ignore:
                return None
            raise self.failed(problem, doing, needs) from problem

    def results(
        self, asked: Mapping[str, Future[Any]], doing: str, operation: str, *, ignore: Collection[str], remedy: str = ""
    ) -> dict[str, Any]:
        """The answers by topic, None for an ignored error; one error names all refused topics, with `remedy`."""
        self.wait_for(asked.values(), f"{doing} {len(asked)} topics")
        found: dict[str, Any] = {}
        refused: dict[str, KafkaException] = {}
        for topic, future in asked.items():
            try:
                found[topic] = future.result()
            except KafkaException as problem:
                code = name(error_of(problem))
                alone(problem)
                if code in KINDS:
                    refused[topic] = problem
                elif code not in ignore:
                    raise self.failed(problem, f"{doing} topic {topic}") from problem
                else:
                    found[topic] = None
        if refused:
            first = next(iter(refused.values()))
            needs = [Right(operation, "topic", topic) for topic in refused]
            error = self.failed(first, f"{doing} {len(asked)} topics", needs)
            raise FatalError(f"{error}{remedy}", code=error.code) from first
        return found

    def failed(self, problem: Exception, doing: str, needs: Sequence[Right] = ()) -> BrokerError:
        self.client.poll(0)
        self.spent = True
        return self._watch.error(problem, doing, needs=needs)

    def _unreachable(self, problem: KafkaException, timeout_s: float) -> BrokerError:
        self.client.poll(0.05)
        bootstrap, watch = self.options.bootstrap, self._watch
        cause, reasons = watch.cause, watch.reasons
        found = None
        if not self.reached and not (cause and cause.sure):
            found = self._probed = self._probed or self._probe()
        wrong = found.settings if found else cause is not None and cause.settings
        if wrong and not self.reached:
            why = found.cause if found else "; ".join(reasons)
            return LoginError(
                f"this program cannot connect to Kafka at {bootstrap}: {why}", code=name(error_of(problem))
            )
        doing = f"Kafka at {bootstrap} did not answer within {timeout_s:g} s"
        error = translate(problem, doing, reasons=[found.cause] if found else reasons or [_SILENT])
        if isinstance(error, RetriableError) and found is None and not wrong:
            return RetriableError(f"{error}. Start the brokers, or correct the address: {_WHERE}", code=error.code)
        return error

    def _probe(self) -> Finding | None:
        places = addresses(self.options.bootstrap)[:PROBED]
        return next((found for host, port in places if (found := find_reason(host, port, self.settings))), None)


def _hold(client: list[AdminClient], late: Collection[Future[Any]]) -> None:
    """Keep a client until its last answer is there: librdkafka frees a request twice if the client goes before."""
    wait(late)
    client.clear()


def alone(problem: KafkaException) -> KafkaException:
    """
    An exception that a future keeps, without the frames that it went through.

    They hold the future and the client, so the client would stay until Python's garbage collector comes by. That may
    be in a thread of librdkafka, which must destroy no client.
    """
    return problem.with_traceback(None)
