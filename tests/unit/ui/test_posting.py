"""What changes something is asked for by a page of the view, and by nothing else."""

from __future__ import annotations

import http.client
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from cues_kafka.errors import ConfigError
from cues_kafka.ui.actions import READ_ONLY, Actions, Busy, JobOutcome, JobWork
from cues_kafka.ui.server import HEADERS, Address, ViewServer

TOKEN = "token-of-the-test"


class Recorder:
    """Verbs that do nothing, and what they were asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[Mapping[str, Any], str]] = []

    def verb(self, given: Mapping[str, Any], who: str) -> JobWork:
        """Takes anything but `bad`."""
        if "bad" in given:
            raise ConfigError("bad is not known here")
        if "busy" in given:
            raise Busy("pause of check still runs")
        self.asked.append((given, who))
        return JobWork("nothing", lambda _: JobOutcome(["<b>done</b>"]))


@pytest.fixture
def recorder() -> Recorder:
    """What was asked for."""
    return Recorder()


@pytest.fixture
def serve(recorder: Recorder) -> Iterator[Callable[..., ViewServer]]:
    """Makes views."""
    made: list[tuple[ViewServer, Actions]] = []

    def make(address: Address | None = None, refusal: str = "") -> ViewServer:
        actions = Actions({"pause": recorder.verb}, refusal=refusal)
        view = ViewServer(address or Address(), lambda: (1, b"{}"), {}, actions=actions, token=TOKEN)
        view.start()
        made.append((view, actions))
        return view

    yield make
    for view, actions in made:
        view.close()
        actions.close()


def own(view: ViewServer, **more: str | None) -> dict[str, str]:
    """The headers that a page of the view sends; None leaves one out."""
    headers = {
        "Cookie": f"cues_kafka_ui_{view.port}={TOKEN}",
        "Content-Type": "application/json",
        "X-Cues-Kafka": "page",
        "Origin": f"http://127.0.0.1:{view.port}",
        "Sec-Fetch-Site": "same-origin",
    }
    changed = headers | {name.replace("_", "-"): value for name, value in more.items()}
    return {name: value for name, value in changed.items() if value is not None}


def post(view: ViewServer, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, Any, Any]:
    """The status, the data and the headers of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", view.port, timeout=10)
    try:
        connection.request("POST", path, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()), answer.headers
    finally:
        connection.close()


def job(view: ViewServer) -> Any:
    """What the view says of its job."""
    connection = http.client.HTTPConnection("127.0.0.1", view.port, timeout=10)
    try:
        connection.request("GET", "/api/job", headers=own(view))
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def test_a_page_of_the_view_begins_a_job(serve: Callable[..., ViewServer], recorder: Recorder) -> None:
    """With what it has sent, and its address."""
    view = serve()
    status, data, headers = post(view, "/api/do/pause", b'{"processor": "check"}', own(view))

    assert (status, data["number"], data["what"], data["who"]) == (202, 1, "nothing", "127.0.0.1")
    assert {name: headers[name] for name in HEADERS} == HEADERS
    assert recorder.asked == [({"processor": "check"}, "127.0.0.1")]
    view.actions.close()
    assert job(view)["lines"] == ["<b>done</b>"]
    assert job(view)["refusal"] == ""


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"Cookie": None}, "token"),
        ({"Cookie": "cues_kafka_ui_1=x"}, "token"),
        ({"X_Cues_Kafka": None}, "X-Cues-Kafka"),
        ({"Content_Type": "text/plain"}, "application/json"),
        ({"Content_Type": "application/x-www-form-urlencoded"}, "application/json"),
        ({"Sec_Fetch_Site": "cross-site"}, "Sec-Fetch-Site"),
        ({"Sec_Fetch_Site": "same-site"}, "Sec-Fetch-Site"),
        ({"Sec_Fetch_Site": "none"}, "Sec-Fetch-Site"),
        ({"Origin": "https://evil.example"}, "Origin"),
        ({"Origin": "http://127.0.0.1:1"}, "Origin"),
        ({"Origin": "null"}, "Origin"),
        ({"Origin": "http://["}, "Origin"),
        ({"Origin": None}, "Origin"),
        ({"Origin": None, "Sec_Fetch_Site": None}, "Origin"),
        ({"Origin": "http://evil.example", "X_Forwarded_Host": "evil.example"}, "Origin"),
    ],
)
def test_a_request_of_another_site_changes_nothing(
    serve: Callable[..., ViewServer], recorder: Recorder, headers: dict[str, str | None], why: str
) -> None:
    """Whatever a form or a script of it can send."""
    view = serve()
    status, data, _ = post(view, "/api/do/pause", b"{}", own(view, **headers))

    assert status == 403
    assert why in data["why"]
    assert recorder.asked == []


def test_a_browser_that_does_not_tell_whose_page_it_is_tells_its_origin(
    serve: Callable[..., ViewServer], recorder: Recorder
) -> None:
    """Older ones have no Sec-Fetch-Site."""
    view = serve()

    assert post(view, "/api/do/pause", b"{}", own(view, Sec_Fetch_Site=None))[0] == 202
    assert len(recorder.asked) == 1


def test_a_name_of_another_site_changes_nothing(serve: Callable[..., ViewServer], recorder: Recorder) -> None:
    """A site whose name leads to this machine has an origin of its own name."""
    view = serve()
    found = post(view, "/api/do/pause", b"{}", own(view, Host="evil.example", Origin="http://evil.example"))

    assert found[0] == 421
    assert recorder.asked == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b"nul", 400),
        (b'{"a": ', 400),
        (b"\xff\xfe{", 400),
        (b"[" * 9_000, 400),
        (b'{"a":' * 1_500, 400),
        (b'{"a": "' + b"x" * 10_000 + b'"}', 413),
        (b" " * 200_000, 413),
        (b'{"bad": 1}', 400),
        (b'{"busy": 1}', 409),
    ],
)
def test_a_body_that_is_wrong_changes_nothing(
    serve: Callable[..., ViewServer], recorder: Recorder, body: bytes, status: int
) -> None:
    """It is refused in a sentence; its size has a limit."""
    view = serve()
    found = post(view, "/api/do/pause", body, own(view))

    assert found[0] == status
    assert found[1]["why"]
    assert recorder.asked == []


@pytest.mark.parametrize("length", ["-1", "x", "1_0", "9" * 5_000, "\u0663"])
def test_a_length_that_is_none_is_refused(serve: Callable[..., ViewServer], recorder: Recorder, length: str) -> None:
    """Nothing is read then."""
    view = serve()
    headers = own(view, Content_Length=length.encode().decode("latin-1"))

    assert post(view, "/api/do/pause", b"", headers)[0] == 411
    assert post(view, "/api/do/pause", b"", own(view, Transfer_Encoding="chunked", Content_Length="0"))[0] == 411
    assert recorder.asked == []


def test_there_is_no_other_verb(serve: Callable[..., ViewServer]) -> None:
    """Nor is one elsewhere."""
    view = serve()
    for path in ("/api/do/reset", "/api/do/", "/api/state", "/"):
        assert post(view, path, b"{}", own(view))[0] == 404


def test_a_view_that_is_read_only_refuses_all_verbs(serve: Callable[..., ViewServer], recorder: Recorder) -> None:
    """In a sentence that its pages show, too."""
    view = serve(refusal=READ_ONLY)

    for verb in ("pause", "end-wait", "other"):
        status, data, _ = post(view, f"/api/do/{verb}", b"{}", own(view))
        assert (status, data["why"]) == (403, READ_ONLY)
    assert job(view)["refusal"] == READ_ONLY
    assert recorder.asked == []


def test_behind_a_proxy_the_log_has_the_user_whom_it_names(
    serve: Callable[..., ViewServer], recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    """As text; the name of the view is that of the proxy."""
    caplog.set_level(logging.INFO)
    view = serve(Address(behind_proxy=True))
    forwarded = {"X_Forwarded_User": "ann\x9b", "X_Forwarded_For": "10.1.2.3", "Host": "upstream"}
    known = own(view, Origin="https://shop.example", **forwarded)

    assert post(view, "/api/do/pause", b"{}", known)[0] == 202
    assert [who for _, who in recorder.asked] == ["ann\\u009b 10.1.2.3 through 127.0.0.1"]
    view.actions.close()
    assert "10.1.2.3" in caplog.text
    old = own(view, Sec_Fetch_Site=None, Origin="https://shop.example", **forwarded)
    assert post(view, "/api/do/pause", b"{}", old)[0] == 403


def test_without_a_proxy_no_header_names_a_user(serve: Callable[..., ViewServer], recorder: Recorder) -> None:
    """Anyone could send it."""
    view = serve()
    post(view, "/api/do/pause", b"{}", own(view, X_Forwarded_User="ann"))

    assert [who for _, who in recorder.asked] == ["127.0.0.1"]
