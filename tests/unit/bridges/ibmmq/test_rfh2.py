"""MQRFH2: the header with properties, as senders write it, and as a stranger may."""

from __future__ import annotations

import struct
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cues_kafka.bridges.ibmmq.rfh2 import DEEPEST, HeaderError, content_of, with_properties
from tests.examples import examples


def header(
    *folders: str | bytes,
    order: str = "<",
    form: bytes = b"MQSTR   ",
    names: int = 1208,
    encoding: int | None = None,
    **wrong: int,
) -> bytes:
    """One as JMS writes it; `length` and `version` may be wrong."""
    data = b""
    for folder in folders:
        raw = folder.encode() if isinstance(folder, str) else folder
        raw += b" " * (-len(raw) % 4)
        data += struct.pack(f"{order}i", len(raw)) + raw
    own = {1: 0x111, 2: 0x222}[1 if order == ">" else 2] if encoding is None else encoding
    length = wrong.get("length", 36 + len(data))
    fixed = struct.pack(f"{order}4siiii8sii", b"RFH ", wrong.get("version", 2), length, own, 1208, form, 0, names)
    return fixed + data


JMS = "<mcd><Msd>jms_text</Msd></mcd>", "<jms><Dst>queue:///A</Dst><Pri dt='i4'>7</Pri></jms>"


@pytest.mark.parametrize(("order", "encoding"), [("<", 0x222), (">", 0x111)])
def test_properties_of_a_message_of_jms_are_read(order: str, encoding: int) -> None:
    """Those of the application have their names; those of JMS the folder before them."""
    usr = "<usr><country>é &lt;&amp;&gt; &#233;&#xE9;</country><n dt='i8'>-5</n><empty></empty><none/></usr>"
    found = content_of(header(*JMS, usr, order=order) + b"body", "MQHRF2", 437, encoding)
    assert (found.body, found.format, found.ccsid) == (b"body", "MQSTR", 1208)
    assert found.properties == [
        *(("mcd.Msd", "jms_text"), ("jms.Dst", "queue:///A"), ("jms.Pri", "7")),
        *(("country", "é <&> éé"), ("n", "-5"), ("empty", ""), ("none", "")),
    ]


def test_nested_elements_have_their_path_and_what_is_nil_is_left_out() -> None:
    """As MQ names properties: parts with points between them."""
    text = "<usr>\n <a><b>1</b><c>2</c></a> <gone xsi:nil='true'></gone> <void xsi:nil=\"true\"/> </usr>"
    found = content_of(header(text), "MQHRF2", 0, 0x222)
    assert found.properties == [("a.b", "1"), ("a.c", "2")]


@pytest.mark.parametrize(("names", "order", "codec"), [(1200, "<", "utf-16-le"), (13488, ">", "utf-16-be")])
def test_folders_may_be_in_utf_16(names: int, order: str, codec: str) -> None:
    """In the order of bytes of the numbers beside them."""
    data = header("<usr><a>é</a></usr> ".encode(codec), order=order, names=names)
    found = content_of(data, "MQHRF2", 0, 0x222 if order == "<" else 0x111)
    assert found.properties == [("a", "é")]


def test_headers_may_follow_each_other() -> None:
    """Each one says what comes behind it."""
    data = header("<usr><a>1</a></usr>", form=b"MQHRF2  ") + header("<usr><b>2</b></usr>", form=b"        ") + b"\xff"
    found = content_of(data, "MQHRF2", 0, 0x222)
    assert (found.properties, found.format, found.body) == ([("a", "1"), ("b", "2")], "", b"\xff")


def test_message_without_a_header_is_left_as_it_is() -> None:
    """Also one that only looks as if it had one."""
    data = header("<usr><a>1</a></usr>")
    assert content_of(data, "MQSTR", 819, 0x222) == (data, "MQSTR", 819, [])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"RFH ",
        b"XXXX" + header()[4:],
        header(version=1),
        header(length=-1),
        header(length=35),
        header(length=2**31 - 1),
        header(length=40) + struct.pack("<i", -4),
        header("<usr><a>1</a></usr>", length=38),
        header("<usr><a>1</a>"),
        header("<usr><a>1</usr></a>"),
        header("<usr>text</usr>"),
        header("<usr><a>1</a>text</usr>"),
        header("text<usr></usr>"),
        header("<usr></usr>text"),
        header("<usr><a>1 < 2</a></usr>"),
        header("<usr><a\0b>1</a\0b></usr>"),
        header(f"<usr><{'x' * 20_000}>{'<a/>' * 10_000}</{'x' * 20_000}></usr>"),
        header("<usr><a>&#xD800;</a></usr>"),
        header("<usr><a>&#9999999;</a></usr>"),
        header("<!DOCTYPE usr [<!ENTITY a 'b'>]><usr><a>&a;</a></usr>"),
        header("<usr>" + "<a>" * DEEPEST + "</a>" * DEEPEST + "</usr>"),
        header(b"<usr><a>\xff</a></usr>"),
        header(b"<usr><a>\xe9</a></usr>", names=4711),
    ],
)
def test_header_that_is_broken_is_refused(data: bytes) -> None:
    """The message is then taken as a whole: see `content_or_whole`."""
    with pytest.raises(HeaderError):
        content_of(data, "MQHRF2", 1208, 0x222)


def test_numbers_in_an_unknown_order_are_refused() -> None:
    """The descriptor says how they are written."""
    with pytest.raises(HeaderError):
        content_of(header(), "MQHRF2", 1208, 0)


def test_unknown_entity_is_left_as_it_is() -> None:
    """It is never followed."""
    found = content_of(header("<usr><a>&lol; &amp;lt;</a></usr>"), "MQHRF2", 0, 0x222)
    assert found.properties == [("a", "&lol; &lt;")]


@given(data=st.binary(max_size=200))
@examples(200)
def test_any_bytes_behind_a_good_beginning_are_read_or_refused(data: bytes) -> None:
    """Nothing else is raised."""
    fixed = header()[:8] + struct.pack("<i", 36 + len(data)) + header()[12:36]
    try:
        content_of(fixed + data, "MQHRF2", 1208, 0x222)
    except HeaderError:
        return


@given(text=st.text(alphabet="<>/ab =\"'&;#x1\n", max_size=80))
@examples(300)
def test_any_folder_is_read_or_refused(text: str) -> None:
    """Nothing else is raised."""
    try:
        content_of(header(text), "MQHRF2", 1208, 0x222)
    except HeaderError:
        return


@pytest.mark.parametrize("part", ["<a", "<a ", "<a>", "&#", "</", "<a/>", "=' "])
def test_large_folder_takes_time_in_proportion(part: str) -> None:
    """A stranger's header does not hold a task up."""
    data = header(f"<usr>{part * 100_000}</usr>")
    began = time.process_time()
    with suppress(HeaderError):
        content_of(data, "MQHRF2", 1208, 0x222)
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize(
    "data",
    [
        header(form=b"MQHRF2  ") * 60_000 + header(),
        header(bytes(2**21)),
        header(length=36 + 2**21) + bytes(2**21),
    ],
    ids=["headers", "one folder", "empty folders"],
)
def test_large_header_takes_time_in_proportion(data: bytes) -> None:
    """A rest that was copied for each header and each folder took minutes."""
    began = time.process_time()
    with suppress(HeaderError):
        content_of(data, "MQHRF2", 1208, 0x222)
    assert time.process_time() - began < 5.0


def test_greater_than_may_stand_in_a_value() -> None:
    """XML lets it stand; only `<` and `&` are always escaped."""
    assert content_of(header("<usr><a>1 > 0</a></usr>"), "MQHRF2", 0, 0x222).properties == [("a", "1 > 0")]


VALUES = st.text(st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="\ufffe\uffff"), max_size=20)


@given(
    properties=st.dictionaries(st.text("abZ_", min_size=1, max_size=8), VALUES, max_size=4),
    body=st.binary(max_size=40),
)
@examples(100)
def test_what_is_written_is_read(properties: dict[str, str], body: bytes) -> None:
    """Properties, body and format."""
    data = with_properties(properties, body, "MQSTR")
    assert content_of(data, "MQHRF2", 0, 0x222) == (body, "MQSTR", 1208, [*properties.items()])
