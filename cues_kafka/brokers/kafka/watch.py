"""Collects what a client reports in addition to its answers: log lines, connection errors, statistics.

librdkafka hides a repeated EndTxn behind a successful commit, and the cause of a time-out behind ``_TIMED_OUT``. Its
reports name both; it hands them over inside `poll` and other calls, on the caller's thread. A `Watch` listens to one
client. It never holds the client, so that dropping the client destroys it at once.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from confluent_kafka import KafkaError, Producer, ThrottleEvent

from cues_kafka.brokers.kafka.classify import CLIENT_ERRORS, HOLLOW, because, catchable, error_of, name, translate
from cues_kafka.brokers.kafka.opening import open_client
from cues_kafka.brokers.kafka.refused import LIMIT, SAID_TOO_LARGE, response_size
from cues_kafka.brokers.kafka.rights import Right, user_of
from cues_kafka.errors import BrokerError, FatalError
from cues_kafka.observe.log import get_logger
from cues_kafka.observe.throttling import THROTTLING
from cues_kafka.observe.together import CLUSTER
from cues_kafka.ports.log import TopicPartition
from cues_kafka.words import BOOTSTRAP

if TYPE_CHECKING:
    from cues_kafka.brokers.options import Kafka

_Client = TypeVar("_Client")

log = get_logger("cues_kafka.broker")
LOG = logging.getLogger("cues_kafka.librdkafka")
LOG.addHandler(logging.NullHandler())  # without a handler of the application nothing goes to stderr

# One line of the client is "[thrd:NAME]: NAME: text". The connection to the transaction coordinator has its own name.
_COORDINATOR: Final = re.compile(r"TxnCoordinator")
_LOST: Final = re.compile(
    r"EndTxn|Timed out|timed out|[Dd]isconnected|Connection reset|Receive failed|Send failed|failed"
)

_PASSES: Final = re.compile(
    r"^GETPID .*Failed to acquire (?:transactional|idempotence) PID .*: Broker: "
    r"(?:Coordinator load in progress|Producer attempted to update a transaction while another.*): retrying$"
    r"|^TXNERR .*(?:generation id is not valid|Unknown member|member id is not known|rebalanc|Local: Fenced|old epoch)"
)
"""What a client says at a normal start, where its coordinator is busy for a moment, or ends the transaction of a former
owner (if it stays so, `init` fails), and at a rebalance, where a transaction of a task that moves is given up: the call
that fails says it, too."""

_AWAY: Final = re.compile(r"^FAIL .*Connect to (\S+) failed: (.*?) \(after ")
"""Each client of a process says it of a node that is away: a worker has five of them for each task."""

_NOT_ADDED: Final = re.compile(r'Failed to add partition "([^"]+)" \[(\d+)\] to transaction: (.*)')
"""Only a log line names the topic that a transaction could not take in: all its records are then thrown away alike."""

RESTART: Final = (
    "a process that was connected keeps trying with the login that it read at its start; if the login has changed, "
    "restart it with the new one, or with SIGHUP if it reads it from a file"
)


class Cause(NamedTuple):
    """
    The likely cause behind words of the client, and what to do if that follows.

    Attributes:
        sure: the words leave no doubt. If they do, `probe` looks at the address.
        settings: the settings here are wrong: no other attempt can succeed.
        remedy: what to do about a refused login in a process that was connected.
    """

    pattern: str
    sentence: str
    sure: bool = False
    settings: bool = False
    remedy: str = RESTART


ASKS_AGAIN: Final = "a process that was connected keeps asking for tokens, and goes on once the brokers take one"

_NOT_CUT_OFF: Final = r"(?!.*: Local: )"
"""An error of the client's own during a login is not an answer of the brokers."""

CUT_OFF: Final = Cause(r"(Request|mechanism handshake) failed: Local: ", "the connection ended during a login")

CAUSES: Final[tuple[Cause, ...]] = (
    Cause(r"Connection refused", "nothing listens there", sure=True),
    Cause(
        r"Failed to resolve|Name or service not known|Temporary failure in name resolution",
        "the host name has no address",
        sure=True,
    ),
    Cause(
        r"not valid in current SASL state",
        "the brokers take no login there: this listener has none, or the connection logged in less than a second ago, "
        "as clients do whose tokens live for less than a minute",
        settings=True,
    ),
    Cause(
        rf"[Mm]echanism handshake failed{_NOT_CUT_OFF}|[Uu]nsupported SASL mechanism|[Uu]nsupported mechanism",
        "the brokers do not offer this mechanism; set 'sasl.mechanisms' to one that they offer",
        settings=True,
    ),
    Cause(
        r"Failed to acquire SASL OAUTHBEARER token|OAUTHBEARER.*token",
        "there is no token to log in with; see what gives it",
        sure=True,
        remedy=ASKS_AGAIN,
    ),
    Cause(
        r"SASL OAUTHBEARER|invalid_token|token.*expired",
        "the brokers refuse the token",
        sure=True,
        settings=True,
        remedy=ASKS_AGAIN,
    ),
    Cause(
        rf"Authentication failed|SASL authentication error{_NOT_CUT_OFF}|invalid credentials",
        "wrong user name or password; set 'sasl.username' and 'sasl.password' as the brokers know them",
        sure=True,
        settings=True,
    ),
    Cause(
        r"certificate verify failed|unable to get local issuer",
        "the certificate of the broker is not trusted; set ssl.ca.location",
    ),
    Cause(
        r"alert (certificate required|bad certificate|certificate unknown|unknown ca|certificate expired"
        r"|certificate revoked|unsupported certificate|access denied)",
        "the broker refuses the certificate of this client, or wants one; see 'ssl.certificate.location'",
    ),
    CUT_OFF,
    Cause(SAID_TOO_LARGE, f"a response is larger than {LIMIT}", sure=True),
    Cause(
        r"Invalid response size|parse failure|incorrect security\.protocol|wrong version number|too long|handshake",
        "something answers there, but not a Kafka broker of this security.protocol: wrong port, or TLS on one side",
    ),
    Cause(
        r"ApiVersions?Request failed|Disconnected while requesting ApiVersion",
        "something other than Kafka answers there, or security.protocol differs: wrong port?",
    ),
    Cause(
        r"Connection timed out|Connection setup timed out|No route to host|Network is unreachable",
        "the address does not answer: host down, or a firewall",
        sure=True,
    ),
)
"""From the client's words to the likely cause, most telling first."""

REPEAT_S: Final = 10.0
"""When a repeated line is logged again, in seconds; a client that cannot connect repeats it many times a second."""

_VARYING: Final = re.compile(r"after \d+ms|, \d+ identical error\(s\) suppressed")
"""What differs between log lines that say the same."""

MOST_REASONS: Final = 4
"""How many causes an error's text names."""

REASON_S: Final = 5.0
"""How long a client that has failed is asked for the reason, in seconds."""

KEPT_LINES: Final = 50
"""How many different lines of one client are remembered."""


def likely_cause(text: str) -> Cause | None:
    """The likely cause behind a log line or error text of the client."""
    return next((cause for cause in CAUSES if re.search(cause.pattern, text)), None)


class Watch:
    """
    Listens to one client, and explains its errors.

    Args:
        label: names the client in log lines.
        options: hold the secrets that the client may quote; they are masked.

    Attributes:
        fatal: the client's fatal error, once there is one.
        user: whose client it is, as the brokers know it; None: not known.
        address: of the cluster.
        suspicions: what happened to the transaction coordinator's connection.
        unwritable: topics that the transaction could not take in, because this user may not write to them.
        ends: how many calls have ended a transaction; the coordinator must not have seen more of them.
        oversized: the size of the last response that was too large to be received, in bytes; None: there was none.
    """

    __slots__ = (  # needed in callbacks of the client, see `_Reports` in `session`
        "_reasons",
        "_said",
        "_scrubbed",
        "address",
        "ends",
        "fatal",
        "label",
        "oversized",
        "pid",
        "suspicions",
        "unwritable",
        "user",
    )

    def __init__(self, label: str, options: Kafka | None = None) -> None:
        self.label = label
        self._scrubbed: Callable[[str], str] = options.scrubbed if options else str
        self.pid = os.getpid()
        self.fatal: KafkaError | None = None
        self.user: str | None = None
        self.address = options.bootstrap if options else BOOTSTRAP
        self.suspicions: list[str] = []
        self.unwritable: dict[str, None] = {}
        self.ends = 0
        self.oversized: int | None = None
        self._reasons: dict[Cause | str, str] = {}
        self._said: dict[str, tuple[float, int]] = {}

    def open(self, make: Callable[[dict[str, Any]], _Client], settings: dict[str, Any]) -> _Client:
        """Open a client with these settings that reports here; see `open_client`."""
        self.user = user_of(settings)
        heard: dict[str, Any] = {"logger": self, "error_cb": self.on_error, "throttle_cb": self.on_throttle}
        if "transactional.id" in settings:
            heard["stats_cb"] = self.on_statistics
        return open_client(make, settings | heard)

    def error(
        self,
        problem: Exception | KafkaError,
        doing: str,
        *,
        at: TopicPartition | None = None,
        needs: Sequence[Right] = (),
    ) -> BrokerError:
        """Translate an error of the client, with what the client said of its cause; see `translate`."""
        self.keep_fatal(error_of(problem))
        return translate(
            *(problem, doing),
            reasons=self.reasons,
            fatal=self.fatal,
            at=at,
            needs=needs,
            user=self.user,
            address=self.address,
        )

    def await_reason(self, client: Producer, error: KafkaError) -> None:
        """
        Serve a client that has failed: it names the causes of its errors in `poll` only.

        Some errors say no more than that the client has failed before; the reason may come a moment after them. Wait
        for it then.
        """
        deadline = time.monotonic() + REASON_S
        while True:
            try:
                catchable(client.poll, 0.05)
            except CLIENT_ERRORS as raised:  # it raises a fatal error instead of reporting it (2.16.1)
                self.on_error(error_of(raised))
            if name(error) != "_FATAL" or self.fatal is not None or time.monotonic() >= deadline:
                return

    @property
    def because(self) -> str:
        """The reasons as the end of a message; empty if there are none."""
        return because(self.reasons)

    @property
    def reasons(self) -> list[str]:
        """What the client said last about its connections, with likely causes; for messages after a time-out."""
        known = {cause: reason for cause, reason in self._reasons.items() if isinstance(cause, Cause)}
        sure = [reason for cause, reason in known.items() if cause.sure]
        return (sure or [*known.values()] or [*self._reasons.values()])[-MOST_REASONS:]

    @property
    def cause(self) -> Cause | None:
        """The most telling of all causes that the client named."""
        return next((cause for cause in CAUSES if cause in self._reasons), None)

    @property
    def forked(self) -> bool:
        """Whether this process is a fork of the one that made the client."""
        return os.getpid() != self.pid

    def same_process(self) -> None:
        """
        Refuse to work after a fork: the child has none of librdkafka's threads.

        Raises:
            FatalError: another process made the client.
        """
        if self.forked:
            raise FatalError(
                f"{self.label} was opened in process {self.pid} and cannot be used in its fork {os.getpid()}: open it "
                "after the fork, or start processes by spawn",
                code="_FORKED",
            )

    # The client takes this object for a `logging.Logger` and calls `log` only.
    def log(self, level: int, template: str, *args: Any) -> None:
        """Take a log line of the client: pass it on, and keep what it says about connections."""
        level = min(level, logging.WARNING)
        if level == logging.WARNING and _PASSES.search(template % args if args else template):
            level = logging.INFO
        self._pass_on(level, template, args)
        if level < logging.INFO and "TxnCoordinator" not in str(args):
            return
        text = template % args if args else template
        self._keep_size(text)
        if _COORDINATOR.search(text) and _LOST.search(text):
            self.suspicions.append(f"the client said: {text}")
        cause = likely_cause(text)
        if cause is not None:
            self._keep_reason(cause, f"{cause.sentence} ({_short(self._scrubbed(text))})")
        if (not_added := _NOT_ADDED.search(text)) is not None:
            topic, partition, why = not_added.groups()
            if "Topic authorization failed" in why:
                self.unwritable[topic] = None
            elif "Operation not attempted" not in why:  # that is another topic's fault
                self._keep_reason(f"{topic}/{partition}", f"{topic}/{partition} could not join the transaction: {why}")

    def _pass_on(self, level: int, template: str, args: tuple[Any, ...]) -> None:
        """Pass a line to the log of the application; a repeated one seldom, with a count."""
        args = tuple(self._scrubbed(arg) if isinstance(arg, str) else arg for arg in args)
        if level < logging.INFO or not LOG.isEnabledFor(level):
            LOG.log(level, template, *args, extra={"client": self.label})
            return
        line = _VARYING.sub("", template % args if args else template)
        now = time.monotonic()
        said_s, times = self._said.get(line, (-REPEAT_S, 0))
        if now - said_s < REPEAT_S:
            self._said[line] = said_s, times + 1
            return
        if len(self._said) >= KEPT_LINES:
            self._said.clear()
        self._said[line] = now, 0
        away = _AWAY.match(template % args if args else template)
        more = CLUSTER.room("connect", f"{away[1].rpartition('#')[2]} {away[2]}", exact=True) if away else {}
        if more is None:  # another client has said it within the last minute
            LOG.debug(template, *args, extra={"client": self.label})
            return
        if more:
            template, args = f"{template} (%d lines of other clients in %d s)", (*args, *more.values())
        if times:
            template, args = f"{template} (%d times more since it was last said)", (*args, times)
        LOG.log(level, template, *args, extra={"client": self.label})

    def _keep_reason(self, cause: Cause | str, text: str) -> None:
        """Keep one reason of each cause, the newest at the end."""
        self._reasons.pop(cause, None)
        self._reasons[cause] = text

    def _keep_size(self, text: str) -> None:
        if (size := response_size(text)) is not None:
            self.oversized = size

    def on_error(self, error: KafkaError) -> None:
        """Take an error of the client that belongs to no call."""
        self.keep_fatal(error)
        text = self._scrubbed(error.str())
        self._keep_size(text)
        cause = likely_cause(error.str())
        self._keep_reason(
            cause or name(error), f"{name(error)}: {cause.sentence + ' ' if cause else ''}({_short(text)})"
        )
        if name(error) == "_AUTHENTICATION" and cause != CUT_OFF:
            _log_refusal(self.label, *((cause.sentence, cause.remedy) if cause else (_short(text), RESTART)))
        LOG.info("%s: %s: %s", self.label, name(error), text, extra={"client": self.label})

    def keep_fatal(self, error: KafkaError) -> None:
        """Keep the first fatal error: later calls, and those of other threads, only hear that the client has failed."""
        if error.fatal() and name(error) not in HOLLOW:
            self.fatal = self.fatal or error

    def on_statistics(self, text: str) -> None:
        """Take the client's statistics: the coordinator must not have seen more EndTxn requests than were asked for."""
        # Called in `poll`, on the session's thread or that of `IDLE`, never on both at once (`KafkaSession._between`).
        brokers = json.loads(text).get("brokers", {})
        sent = sum(broker.get("req", {}).get("EndTxn", 0) for broker in brokers.values())
        if sent > self.ends:
            self.suspicions.append(f"statistics: {sent} EndTxn requests for {self.ends} calls")

    def on_throttle(self, event: ThrottleEvent) -> None:
        """Take that a broker held back an answer, because a quota is used up."""
        THROTTLING.held_back(self.label, event.broker_name, event.throttle_time)

    def forget(self) -> None:
        """Forget what was said about connections, before the client gets another user."""
        self._reasons.clear()


_refused_s: dict[str, float] = {}


def _log_refusal(client: str, why: str, remedy: str) -> None:
    """Log a refused login once for the whole process: each of its clients tries again every second."""
    now = time.monotonic()
    if now - _refused_s.get(why, -REPEAT_S) >= REPEAT_S:
        _refused_s[why] = now
        log.error("authentication refused", client=client, why=why, remedy=remedy)


def _short(text: str) -> str:
    """A log line without its prefix of client and thread names."""
    return text.rpartition("]: ")[2][:200]
