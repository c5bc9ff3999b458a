"""Golden identities (O4, O7, O8). None of these values may ever change: running systems deduplicate by them."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from cues_kafka.core.delivery import (
    Provenance,
    parse_provenance,
    parse_topic_id,
    provenance_prefix,
    show_origin,
    show_timer,
    show_topic_id,
    with_offsets,
)
from cues_kafka.core.hashing import delivery_hash, fingerprint, timer_hash
from cues_kafka.errors import CodecError
from cues_kafka.ports.log import Coordinates

ROOT = Path(__file__).parents[3]
ID, OTHER = bytes(range(16)), bytes(range(240, 256))
ORDER = Coordinates("orders", ID, 3, 4711)

DELIVERIES = [
    (("shop", "check", [ORDER]), "432eaccd7bebdf79e479591e33d20a56"),
    (("shop", "check", [ORDER._replace(offset=4712)]), "4cf969dcce0e4f610e53dace1ab4cff0"),
    (("shop", "check", [ORDER._replace(partition=4)]), "5da87791d86fb3b04adab05d2475ea0a"),
    (("shop", "check", [ORDER._replace(topic_id=OTHER)]), "9d95b160caae2a8121940a80cb6615f3"),
    (("shop", "check", [ORDER._replace(binding="order")]), "668cdae4f15eb8e2dc13a80d86276ae4"),
    (("shop", "check2", [ORDER]), "d8c6c71e6625d8163456551f572e1fe7"),
    (("shops", "check", [ORDER]), "a30197cc45e520c72a60bf32765e1559"),
    (("shopc", "heck", [ORDER]), "eb5416e804dd4080ff38fdab53e503f2"),
    (
        ("shop", "pair", [Coordinates("left", ID, 0, 0), Coordinates("right", OTHER, 0, 2**63 - 1)]),
        "a6ba0f2a4ee93edfba3b299635e332a4",
    ),
    (("größe", "prüfe", [Coordinates("eingänge", ID, 2**31 - 1, 1)]), "ee84aac24f3d05142e1d1d6bf163eb46"),
    (("shop", "check", []), "95277afe609a320cc9c4f3fda17094ff"),
]
TIMERS = [
    (("shop", "check", 3, "k", 1767225600000, [ORDER]), "b68475f64e3d25bccc824084ac0d2eac"),
    (("shop", "check", 3, "k", 1767225600001, [ORDER]), "472164dde42f706f5aed70117cba750d"),
    (("shop", "check", 4, "k", 1767225600000, [ORDER]), "7b5a9507da8515624667ff16267a75cb"),
    (("shop", "check", 3, "größe", 0, [ORDER]), "d4fec897667e2f4f443ea14ee9237d0a"),
    (("shop", "check", 3, "k", 1767225600000, [ORDER._replace(offset=4712)]), "3dbae5f952676937624ae14f893b5b96"),
    (("shops", "check", 3, "k", 1767225600000, [ORDER]), "44907b746b4a7789566aba70f01fcb78"),
]
PLANS = [
    (("check", "single", [("orders", ID)]), "0bb099aac095370e"),
    (("check", "join", [("orders", ID)]), "33842c4deeaacaec"),
    (("pair", "join", [("left", ID), ("right", OTHER)]), "72a3b5f64a5c3905"),
    (("pair", "join", [("right", OTHER), ("left", ID)]), "72a3b5f64a5c3905"),
    (("pair", "alts", [("left", ID), ("right", OTHER)]), "0330e67c51afa365"),
]
HEADERS = [
    (("shop.check/3", 17, [("orders", ID)]), b"0/1 4711", b"1 shop.check/3 17 orders:AAECAwQFBgcICQoLDA0ODw 0/1 4711"),
    (
        ("shop.pair/0", 0, [("left", ID), ("right", OTHER)]),
        b"2/3 5,6",
        b"1 shop.pair/0 0 left:AAECAwQFBgcICQoLDA0ODw,right:8PHy8_T19vf4-fr7_P3-_w 2/3 5,6",
    ),
]


@pytest.mark.parametrize(("arguments", "golden"), TIMERS)
def test_hashes_of_timers_are_golden(arguments: Any, golden: str) -> None:
    """F1: always the same bytes, and other ones than those of a message's delivery."""
    assert timer_hash(*arguments).hex() == golden


def test_the_header_of_a_timer_names_the_timer_and_who_set_it() -> None:
    """F1, O8: one line of text, also where the key has blanks and signs that mean something in it."""
    origin = show_origin([ORDER, ORDER._replace(binding="other", offset=7)])
    header = b"1 shop.check/3 18 timer 1/2 " + show_timer("a b@c:d", 1767225600000, origin)

    found = parse_provenance(header)

    assert header.count(b" ") == 5
    assert found == Provenance(
        "shop.check/3", 18, 1, 2, (ORDER, ORDER._replace(binding="other", offset=7)), ("a b@c:d", 1767225600000)
    )
    assert found.hash == timer_hash("shop", "check", 3, "a b@c:d", 1767225600000, found.consumed)
    with pytest.raises(CodecError):
        parse_provenance(header.replace(b"@", b"."))


@pytest.mark.parametrize(("arguments", "golden"), DELIVERIES)
def test_delivery_hashes_are_golden(arguments: tuple[str, str, list[Coordinates]], golden: str) -> None:
    """Always the same bytes."""
    assert delivery_hash(*arguments).hex() == golden


def test_no_two_deliveries_share_a_hash() -> None:
    """Whatever one field says is not taken for what its neighbour says."""
    assert len({golden for _, golden in DELIVERIES}) == len(DELIVERIES)


def test_the_order_of_bindings_does_not_matter() -> None:
    """It names the messages, and a declaration may be reordered."""
    three = [Coordinates(name, ID, 0, place) for place, name in enumerate("abc")]

    assert len({delivery_hash("g", "p", consumed) for consumed in permutations(three)}) == 1


def test_hashes_do_not_depend_on_the_process() -> None:
    """Python's own `hash` does; another seed in another process must give the same name."""
    code = (
        "from cues_kafka.core.hashing import delivery_hash; from cues_kafka.ports.log import Coordinates;"
        "print(delivery_hash('shop', 'check', [Coordinates('orders', bytes(range(16)), 3, 4711)]).hex())"
    )
    env = os.environ | {"PYTHONHASHSEED": "1"}
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, check=True)

    assert found.stdout.decode().strip() == DELIVERIES[0][1]


@pytest.mark.parametrize(("arguments", "golden"), PLANS)
def test_fingerprints_are_golden(arguments: tuple[str, str, list[tuple[str, bytes]]], golden: str) -> None:
    """A release that changed them would refuse every snapshot of the one before."""
    assert fingerprint(*arguments).hex() == golden


@pytest.mark.parametrize(("arguments", "rest", "golden"), HEADERS)
def test_provenance_headers_are_golden(
    arguments: tuple[str, int, list[tuple[str, bytes]]], rest: bytes, golden: bytes
) -> None:
    """`verify` and other people's tools read them on messages that are years old."""
    header = provenance_prefix(*arguments) + rest

    assert header == golden
    read = parse_provenance(header)
    assert (read.task, read.sequence) == arguments[:2]
    assert [(c.binding, c.topic_id) for c in read.consumed] == arguments[2]
    assert f"{read.index}/{read.count} {','.join(str(c.offset) for c in read.consumed)}".encode() == rest


def test_a_header_names_its_delivery() -> None:
    """A reader of the header has the hash."""
    header = provenance_prefix("shop.check/3", 17, [("orders", ID)]) + b"0/1 4711"

    assert parse_provenance(header) == Provenance("shop.check/3", 17, 0, 1, (ORDER,))
    assert parse_provenance(header).hash.hex() == DELIVERIES[0][1]


@pytest.mark.parametrize("count", [1, 2, 999, 1000, 1001, 2500])
@pytest.mark.parametrize("first", [0, 7, 998, 999, 1000, 1001, 99_999, 10**12 - 1])
def test_headers_of_a_run_are_those_of_each_of_its_messages(first: int, count: int) -> None:
    """They are made in blocks of a thousand offsets; those below the first thousand have no zeros in front."""
    assert with_offsets(b"1 g.p/0 7 in:%d 0/1 ", first, count) == [
        b"1 g.p/0 7 in:%%d 0/1 %d" % offset for offset in range(first, first + count)
    ]


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (
            b"2 shop.check/3 17 orders:AAECAwQFBgcICQoLDA0ODw 0/1 4711",
            "version 2; this release reads version 1: upgrade",
        ),
        (b"", "not a provenance header"),
        (b"1 shop.check/3 17", "not a provenance header"),
        (b"1 shop.check/x 17 orders:AAECAwQFBgcICQoLDA0ODw 0/1 4711", "not a provenance header"),
        (b"1 shop.check/3 17 orders:AAECAwQFBgcICQoLDA0ODw 0/1 4711,4712", "not a provenance header"),
        (b"\xff\xfe", "not a provenance header"),
    ],
)
def test_what_is_no_provenance_header_is_refused(header: bytes, says: str) -> None:
    """Anybody may write a header of this name."""
    with pytest.raises(CodecError, match=says):
        parse_provenance(header)


def test_topic_ids_look_as_in_kafkas_tools() -> None:
    """URL-safe base64 without padding."""
    assert show_topic_id(ID) == "AAECAwQFBgcICQoLDA0ODw"
    assert parse_topic_id(show_topic_id(OTHER)) == OTHER
