"""Frames of STOMP: any of them is read as it was written, in any pieces; what is no frame is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cues_kafka.bridges.stomp.frames import LARGE, MOST_HEAD, Frame, FrameError, Parser

TEXT = st.text(st.characters(blacklist_categories=["Cs"]), max_size=20)
FRAMES = st.lists(
    st.builds(
        Frame,
        st.sampled_from(["MESSAGE", "RECEIPT", "ERROR"]),
        st.dictionaries(TEXT.filter(lambda name: name != "content-length"), TEXT, max_size=4),
        st.binary(max_size=60),
        st.just(False),
    ),
    max_size=4,
)


@given(frames=FRAMES, size=st.integers(1, 40), beats=st.integers(0, 3))
def test_frames_are_read_as_they_were_written(frames: list[Frame], size: int, beats: int) -> None:
    """Whatever is in headers and bodies, and wherever the network cuts them."""
    data = b"".join(b"\n" * beats + frame.encode() for frame in frames) + b"\r\n"
    parser = Parser(1_000)

    found = [one for at in range(0, len(data), size) for one in parser.feed(data[at : at + size])]

    assert [(one.command, one.body) for one in found] == [(one.command, one.body) for one in frames]
    for one, sent in zip(found, frames, strict=True):
        assert {name: text for name, text in one.headers.items() if name != "content-length"} == sent.headers


def test_large_frame_comes_in_pieces_between_others() -> None:
    """It is collected in place, and what follows it is read as before."""
    frames = [Frame("MESSAGE", {"n": str(size)}, b"x" * size) for size in (7, 3 * LARGE, 5, 2 * LARGE, 0)]
    data, piece, parser = b"".join(frame.encode() for frame in frames), 64 * 1024 + 1, Parser(4 * LARGE)

    found = [one for at in range(0, len(data), piece) for one in parser.feed(data[at : at + piece])]

    assert [(one.headers["n"], one.body) for one in found] == [(one.headers["n"], one.body) for one in frames]


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (r"ID\chost-1\c2", "ID:host-1:2"),
        (r"a\\c", r"a\c"),
        (r"a\\\c", "a\\:"),
        (r"\n\r\c", "\n\r:"),
    ],
)
def test_escapes_of_headers_are_read_in_their_order(sent: str, text: str) -> None:
    """A backslash that is escaped begins no other escape."""
    assert [*Parser(9).feed(f"MESSAGE\n{sent}:{sent}\n\n\0".encode())] == [Frame("MESSAGE", {text: text})]
    assert Frame("MESSAGE", {text: text}).encode() == f"MESSAGE\n{sent}:{sent}\n\n\0".encode()


def test_the_first_of_several_headers_counts() -> None:
    """As the standard says; a carriage return ends a line, too."""
    [frame] = Parser(100).feed(b"MESSAGE\r\nname:first\r\nname:second\r\n\r\nbody\0")

    assert frame == Frame("MESSAGE", {"name": "first"}, b"body")


def test_lines_of_the_frame_before_are_read_where_they_are_the_same() -> None:
    """Those that differ, have an escape, come twice or are in another place are read for themselves."""
    heads = [
        "MESSAGE\na:1\nb:2\\c\nc:3",
        "MESSAGE\na:1\nb:2\\\\c\nc:4",
        "MESSAGE\nb:2\\\\c\na:1\nc:4",
        "MESSAGE\na:1\na:5\nc:4",
        "RECEIPT\na:1\na:5\nc:4",
        "CONNECTED\na:1\na:\\c\nc:4",
    ]
    parser = Parser(100)
    together = [one for head in heads for one in parser.feed(f"{head}\n\n\0".encode())]
    alone = [one for head in heads for one in Parser(100).feed(f"{head}\n\n\0".encode())]

    assert together == alone
    assert [dict(one.headers) for one in together[:4]] == [
        {"a": "1", "b": "2:", "c": "3"},
        {"a": "1", "b": "2\\c", "c": "4"},
        {"b": "2\\c", "a": "1", "c": "4"},
        {"a": "1", "c": "4"},
    ]
    for line in ("without colon", "x:\\t"):  # it is no frame, and one behind it is read for itself
        with pytest.raises(FrameError):
            list(Parser(100).feed(f"MESSAGE\na:1\n{line}\n\n\0".encode()))
        parser = Parser(100)
        list(parser.feed(b"MESSAGE\na:1\nb:2\n\n\0"))
        with pytest.raises(FrameError):
            list(parser.feed(f"MESSAGE\na:3\n{line}\n\n\0".encode()))


def test_headers_of_connect_are_not_escaped() -> None:
    """A password with a colon stays what it is; one with a line break cannot be sent."""
    assert Frame("CONNECT", {"passcode": "a:b\\c"}).encode() == b"CONNECT\npasscode:a:b\\c\n\n\0"
    assert [*Parser(9).feed(b"CONNECTED\nserver:a:b\\c\n\n\0")] == [Frame("CONNECTED", {"server": "a:b\\c"})]
    with pytest.raises(FrameError, match="line break"):
        Frame("CONNECT", {"passcode": "a\nb"}).encode()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"MESSAGE\nname\n\n\0", "has no colon"),
        (b"MESSAGE\nname:a\\t\n\n\0", "unknown escape"),
        (b"MESSAGE\nname:a\\c\\\n\n\0", "unknown escape"),
        (b"MESSAGE\nname\\:a\n\n\0", "unknown escape"),
        (b"MESSAGE\nname:\xff\n\n\0", "not UTF-8"),
        (b"MESSAGE\ncontent-length:-1\n\n\0", "content-length"),
        (b"MESSAGE\ncontent-length:101\n\n", "larger than 100 bytes"),
        (b"MESSAGE\ncontent-length:1\n\nabc\0", "does not end where"),
        (b"MESSAGE\n\n" + b"x" * 101, "larger than 100 bytes"),
        (b"x" * (MOST_HEAD + 1), "headers of a frame are larger"),
    ],
)
def test_what_is_no_frame_is_refused(data: bytes, words: str) -> None:
    """A program that speaks something else, or a broker that would fill the memory."""
    with pytest.raises(FrameError, match=words):
        list(Parser(100).feed(data))
