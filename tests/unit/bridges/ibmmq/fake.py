"""
A queue manager in this process, under the C layer of IBM's package `ibmmq`.

It takes the place of `ibmmq.ibmmqc`, which needs IBM's C client. All else is IBM's own: the Python files of the package
pack and unpack each structure, and their names, numbers and exceptions are the real ones. What it does is what IBM's
manual says; it is no proof of what a real queue manager does.

It has queues by priority, units of work, backout with its count, exclusive opens, browsing, waiting, limits, a commit
by MQDISC, and the faults of networks. It has no topics, no groups, no properties in handles, and no expiry.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest

from tests.unit.bridges.ibmmq.manager import CONNECTIONS, HANDLES, NETWORK, Connection, Manager, Opened, Stored

HAS_PACKAGE = find_spec("ibmmq") is not None
needs_package = pytest.mark.skipif(not HAS_PACKAGE, reason="the package ibmmq has no wheel for this platform")

OK, WARNING, FAILED = 0, 1, 2
VERSIONS = {"gmo": 4, "pmo": 3, "od": 4, "cno": 8, "csp": 3, "sco": 7, "cd": 13, "md": 2, "bno": 1, "sts": 2, "sd": 1}
CODECS = {37: "cp037", 500: "cp500", 819: "latin-1", 1208: "utf-8"}


def _mq() -> Any:
    import ibmmq

    return ibmmq


def _check_lengths(**given: bytes) -> None:
    """As the C layer does."""
    for name, data in given.items():
        assert len(data) == getattr(_mq().CMQC, f"MQ{name}_CURRENT_LENGTH"), f"MQ{name} wrong size"


def _channel(data: bytes) -> dict[str, Any]:
    """The fields of an MQCD. The package's own `unpack` takes its lists for one number each, and is never used."""
    made = _mq().CD()
    values = iter(struct.unpack(made._MQOpts__format, data))
    return {
        name: [next(values) for _ in default] if isinstance(default, list) else next(values)
        for name, default, *_ in made._MQOpts__list
    }


def _connection(handle: int) -> Connection:
    assert isinstance(handle, int), "the C layer takes a number"
    return CONNECTIONS[handle]


def _called(verb: str, connection: Connection) -> int:
    """Why a call cannot be done; 0: it can."""
    manager = connection.manager
    manager.calls.append(verb)
    manager.news.notify_all()
    if connection.ended:
        return 2018
    if connection.lost:
        return connection.lost
    if manager.refusals.get(verb):
        return manager.refusals[verb].pop(0)
    return 0


def _answered(verb: str, connection: Connection) -> int:
    """The reason code of a call that was done."""
    manager = connection.manager
    if manager.unanswered.get(verb):
        manager.unanswered[verb] -= 1
        manager.lose(connection, 2009)
        return 2009
    return 0


def _text(pointer: int, length: int) -> str:
    return ctypes.string_at(pointer, length).decode() if pointer else ""


def mqconnx(  # noqa: PLR0917 - as the C layer takes them
    name: bytes, cno: bytes, cd: bytes, csp: bytes, sco: bytes | None, bno: None
) -> tuple[int, int, int]:
    """MQCONNX(name, cno, cd, csp, sco, bno)."""
    mq = _mq()
    channel, options, who = _channel(cd), mq.CNO().unpack(cno), mq.CSP().unpack(csp)
    host, _, port = channel["ConnectionName"].rstrip(b"\0").decode().rstrip(")").partition("(")
    manager = NETWORK.get((host, int(port)))
    if manager is None or manager.down:
        return -1, FAILED, manager.down if manager else 2538
    user = _text(who.CSPUserId, who._CSPUserIdLength)
    facts = {
        "options": options.Options,
        "application": options.ApplName.rstrip(b"\0").decode(),
        "heartbeat": channel["HeartbeatInterval"],
        "sharing": channel["SharingConversations"],
        "most_bytes": channel["MaxMsgLength"],
        "cipher": channel["SSLCipherSpec"].rstrip(b"\0").decode(),
        "label": channel["CertificateLabel"].rstrip(b"\0").decode(),
        "keys": mq.SCO().unpack(sco).KeyRepository.rstrip(b"\0").decode() if sco else "",
        "user": user,
    }
    with manager.news:
        manager.connects.append(facts)
        if manager.refusals.get("MQCONNX"):
            return -1, FAILED, manager.refusals["MQCONNX"].pop(0)
        if channel["ChannelName"].rstrip(b"\0").decode() != manager.channel:
            return -1, FAILED, 2540
        if name.decode() != manager.name:
            return -1, FAILED, 2058
        if manager.users and manager.users.get(user) != _text(who.CSPPassword, who._CSPPasswordLength):
            return -1, FAILED, 2035
        handle = next(HANDLES)
        CONNECTIONS[handle] = Connection(manager, handle, facts)
    return handle, OK, 0


def mqdisc(handle: int) -> tuple[int, int]:
    """MQDISC(qMgr): an open unit of work is committed."""
    own = _connection(handle)
    with own.manager.news:
        if reason := _called("MQDISC", own):
            return FAILED, reason
        own.manager.commit(own)
        own.ended = True
        own.opened.clear()
        own.manager.news.notify_all()
    return OK, 0


def mqopen(handle: int, od: bytes, options: int) -> tuple[int, bytes, int, int]:
    """MQOPEN(qMgr, qDesc, options)."""
    mq, own = _mq(), _connection(handle)
    _check_lengths(OD=od)
    queue = mq.OD().unpack(od).ObjectName.rstrip(b"\0 ").decode()
    manager = own.manager
    with manager.news:
        if reason := _called("MQOPEN", own):
            return 0, od, FAILED, reason
        if queue.startswith(manager.auto or ("\0",)):
            manager.queues.setdefault(queue, [])
        if queue not in manager.queues:
            return 0, od, FAILED, 2085
        reads = mq.CMQC.MQOO_INPUT_EXCLUSIVE | mq.CMQC.MQOO_INPUT_SHARED | mq.CMQC.MQOO_INPUT_AS_Q_DEF
        if options & reads:
            assert options & mq.CMQC.MQOO_NO_READ_AHEAD, "the client may read what it is not asked for"
            others = [
                one.options
                for connection in CONNECTIONS.values()
                if connection.manager is manager
                for one in connection.opened.values()
                if one.queue == queue and one.options & reads
            ]
            exclusive = mq.CMQC.MQOO_INPUT_EXCLUSIVE
            if others and (options & exclusive or any(one & exclusive for one in others)):
                return 0, od, FAILED, 2042
        made = next(HANDLES)
        own.opened[made] = Opened(queue, options)
    return made, od, OK, 0


def mqput1(handle: int, od: bytes, md: bytes, pmo: bytes, data: bytes) -> tuple[bytes, bytes, int, int]:
    """MQPUT1(qMgr, qDesc, mDesc, putOpts, msg)."""
    mq, own = _mq(), _connection(handle)
    _check_lengths(MD=md, PMO=pmo, OD=od)
    assert isinstance(data, bytes)
    queue = mq.OD().unpack(od).ObjectName.rstrip(b"\0 ").decode()
    given, options = mq.MD().unpack(md).get(), mq.PMO().unpack(pmo).Options
    manager = own.manager
    with manager.news:
        reason = _called("MQPUT1", own)
        unit = bool(options & mq.CMQC.MQPMO_SYNCPOINT)
        if queue.startswith(manager.auto or ("\0",)):
            manager.queues.setdefault(queue, [])
        if not reason and queue not in manager.queues:
            reason = 2085
        if not reason and len(data) > manager.most_bytes:
            reason = 2030
        if not reason and unit and manager.in_unit(own) >= manager.limit:
            reason = 2024
        if reason:
            return md, pmo, FAILED, reason
        assert options & mq.CMQC.MQPMO_SYNC_RESPONSE, "the client may answer before the queue manager does"
        kept = {
            name: value for name, value in given.items() if name not in ("MsgId", "BackoutCount", "PutDate", "PutTime")
        }
        kept["Priority"] = max(0, kept["Priority"])
        made = manager.stored(data, kept)
        made.put_in = own if unit else None
        manager.queues[queue].append(made)
        manager.news.notify_all()
        done = _answered("MQPUT1", own)
    return md, pmo, FAILED if done else OK, done


def mqget(handle: int, opened: int, md: bytes, gmo: bytes, room: int) -> tuple[bytes, bytes, bytes, int, int, int]:
    """MQGET(qMgr, qHandle, mDesc, getOpts, maxlen): data, mDesc, getOpts, length, comp, reason."""
    mq, own = _mq(), _connection(handle)
    _check_lengths(MD=md, GMO=gmo)
    wanted, how = mq.MD().unpack(md), mq.GMO().unpack(gmo)
    manager = own.manager
    manager.gets.append(how.Options)
    deadline = time.monotonic() + (how.WaitInterval / 1000 if how.Options & mq.CMQC.MQGMO_WAIT else 0.0)
    with manager.news:
        if reason := _called("MQGET", own):
            return b"", md, gmo, 0, FAILED, reason
        at = own.opened.get(opened)
        if at is None:
            return b"", md, gmo, 0, FAILED, 2019
        while own.lost or (found := _next(own, at, wanted, how)) is None:
            if own.lost:
                return b"", md, gmo, 0, FAILED, own.lost
            if (left := deadline - time.monotonic()) <= 0:
                return b"", md, gmo, 0, FAILED, 2033
            manager.news.wait(left)
        return _given(own, at, found, (wanted, how, room))


def _next(own: Connection, at: Opened, wanted: Any, how: Any) -> Stored | None:
    mq, manager = _mq(), own.manager
    browses = how.Options & mq.CMQC.MQGMO_BROWSE_NEXT
    for one in manager.ordered(at.queue):
        if not one.is_free or (how.MatchOptions & mq.CMQC.MQMO_MATCH_MSG_ID and one.id != wanted.MsgId):
            continue
        if not browses or manager.turn(one) > at.cursor:
            return one
    return None


def _given(own: Connection, at: Opened, one: Stored, asked: tuple[Any, Any, int]) -> tuple[Any, ...]:
    mq, manager, (wanted, how, room) = _mq(), own.manager, asked
    unit = how.Options & mq.CMQC.MQGMO_SYNCPOINT
    if unit and manager.in_unit(own) >= manager.limit:
        return b"", wanted.pack(), how.pack(), 0, FAILED, 2024
    said = mq.MD(**{**one.fields, "BackoutCount": one.backouts})
    if len(one.data) > room:
        return one.data[:room], said.pack(), how.pack(), len(one.data), WARNING, 2080
    data, reason = one.data, 0
    if how.Options & mq.CMQC.MQGMO_CONVERT and one.fields["Format"].startswith(b"MQSTR"):
        data, reason = _converted(one, wanted.CodedCharSetId, room)
        if not reason:
            said.CodedCharSetId = wanted.CodedCharSetId
    if how.Options & mq.CMQC.MQGMO_BROWSE_NEXT:
        at.cursor = manager.turn(one)
    elif unit:
        one.read_in = own
    else:
        manager.queues[at.queue].remove(one)
    if lost := _answered("MQGET", own):
        return b"", wanted.pack(), how.pack(), 0, FAILED, lost
    return data, said.pack(), how.pack(), len(data), WARNING if reason else OK, reason


def _converted(one: Stored, ccsid: int, room: int) -> tuple[bytes, int]:
    """The text in another character set; a reason code: why it stays as it is."""
    mine = one.fields["CodedCharSetId"]
    if mine not in CODECS:
        return one.data, 2111
    try:
        data = one.data.decode(CODECS[mine]).encode(CODECS[ccsid])
    except UnicodeError:
        return one.data, 2119
    return (data, 0) if len(data) <= room else (one.data, 2120)


def mqcmit(handle: int) -> tuple[int, int]:
    """MQCMIT(qMgr)."""
    own = _connection(handle)
    with own.manager.news:
        if reason := _called("MQCMIT", own):
            if reason == 2003:
                own.manager.back(own)
            return FAILED, reason
        own.manager.commit(own)
        reason = _answered("MQCMIT", own)
    return FAILED if reason else OK, reason


def mqback(handle: int) -> tuple[int, int]:
    """MQBACK(qMgr)."""
    own = _connection(handle)
    with own.manager.news:
        if reason := _called("MQBACK", own):
            return FAILED, reason
        own.manager.back(own)
    return OK, 0


VERBS: dict[str, Callable[..., Any]] = {
    "MQCONNX": mqconnx,
    "MQDISC": mqdisc,
    "MQOPEN": mqopen,
    "MQPUT1": mqput1,
    "MQGET": mqget,
    "MQCMIT": mqcmit,
    "MQBACK": mqback,
}
"""The calls of the C layer that are here; another one has no attribute."""


def install() -> None:
    """Put it under IBM's package, before that is imported."""
    name = "ibmmq.ibmmqc"
    if name in sys.modules:
        return
    made = ModuleType(name)
    more = {
        "__version__": version("ibmmq"),
        "__cmdlevel__": 1000,
        "__mqbuild__": "common",
        "__strucversions__": VERSIONS,
    }
    vars(made).update({**VERBS, **more, "MQCLOSE": lambda *_: (OK, 0), "MQCBINIT": lambda *_: (OK, 0)})
    sys.modules[name] = made
    path = list(sys.path)
    try:
        _mq()
    finally:
        sys.path[:] = path  # the package puts its own directory there


@contextmanager
def managed(name: str = "QM1", host: str = "mq.internal", port: int = 1414) -> Iterator[Manager]:
    """A queue manager that is there while the block runs. Connections that are left open are lost at its end."""
    install()
    made = NETWORK[host, port] = Manager(name)
    try:
        yield made
    finally:
        made.drop()
        del NETWORK[host, port]
