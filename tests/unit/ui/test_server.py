"""Who may look at the view, and what each answer carries."""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cues_kafka.errors import BrokerError, ConfigError
from cues_kafka.observe.limited import MOST
from cues_kafka.ui import server as server_module
from cues_kafka.ui.server import FILES, HEADERS, SCRIPTS, Address, ViewServer

TOKEN = "token-of-the-test"
FOLDER = Path(server_module.__file__).parent


def _fails(error: Exception) -> Any:
    raise error


@pytest.fixture
def server() -> Iterator[ViewServer]:
    """A view of a graph that does not change."""
    questions = {
        "/api/history": lambda given: {"task": given.get("task")},
        "/api/errors": lambda _: _fails(ConfigError("graph 'g' has no errors topic")),
        "/api/error": lambda _: _fails(BrokerError("no broker answers")),
    }
    view = ViewServer(Address(), lambda: (7, b'{"graph":"g"}'), questions, token=TOKEN)
    view.start()
    yield view
    view.close()


class Answer:
    """An answer that was read to its end."""

    def __init__(self, found: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.body = found.status, found.headers, found.read()


def ask(server: ViewServer, path: str, method: str = "GET", **headers: str) -> Answer:
    """Ask with these headers; `_` stands for a hyphen."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        return Answer(connection.getresponse())
    finally:
        connection.close()


def cookie(server: ViewServer) -> str:
    """What a browser sends after it has opened the address that was printed."""
    found = ask(server, f"/?token={TOKEN}")
    assert found.status == 303
    return found.headers["Set-Cookie"].split(";")[0]


@pytest.mark.parametrize("path", [*FILES, "/api/state", "/api/history", "/api/errors", "/api/error", "/other"])
def test_nothing_is_shown_without_the_token(server: ViewServer, path: str) -> None:
    """Not even whether there is such a page."""
    name = f"cues_kafka_ui_{server.port}"
    for headers in ({}, {"Cookie": f"{name}=wrong"}, {"Cookie": "\x01=;;=,"}, {"Cookie": f"{name}="}):
        assert ask(server, path, **headers).status == 403


@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], f"{TOKEN}x", "%F0%9F%98%80", "%00"])
def test_a_wrong_token_opens_nothing(server: ViewServer, token: str) -> None:
    """Whatever it holds."""
    found = ask(server, f"/?token={token}")

    assert found.status == 403
    assert "Set-Cookie" not in found.headers


def test_the_token_becomes_a_cookie_that_no_script_and_no_other_site_uses(server: ViewServer) -> None:
    """And leaves the address bar."""
    found = ask(server, f"/?token={TOKEN}")

    assert found.headers["Location"] == "./"
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(found.headers["Set-Cookie"].split("; "))
    for path, (name, kind) in FILES.items():
        page = ask(server, path, Cookie=cookie(server))
        assert (page.status, page.headers["Content-Type"]) == (200, kind)
        assert page.body == (FOLDER / name).read_bytes()


def test_no_answer_and_no_page_holds_the_token(server: ViewServer) -> None:
    """But for the cookie, when it is set."""
    for path in [*FILES, "/api/state", "/api/history"]:
        found = ask(server, path, Cookie=cookie(server))
        assert TOKEN.encode() not in found.body
        assert TOKEN not in str(found.headers)


@pytest.mark.parametrize("path", ["/", "/api/state", "/api/errors", "/other", f"/?token={TOKEN}"])
def test_every_answer_has_the_headers(server: ViewServer, path: str) -> None:
    """Refusals and errors, too."""
    for headers in ({}, {"Cookie": cookie(server)}):
        found = ask(server, path, **headers)
        assert {name: found.headers[name] for name in HEADERS} == HEADERS


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_are_refused(server: ViewServer, method: str) -> None:
    """A script of another site asks with OPTIONS first whether it may send a page's headers: it may not."""
    found = ask(server, "/api/state", method, Cookie=cookie(server))

    assert found.status == 501
    assert {name: found.headers[name] for name in HEADERS} == HEADERS


def test_a_name_of_another_site_is_refused(server: ViewServer) -> None:
    """A site whose name leads to this machine."""
    for host in ("evil.example", f"evil.example:{server.port}", "", "127.0.0.1.evil.example"):
        assert ask(server, "/api/state", Host=host, Cookie=cookie(server)).status == 421
    assert ask(server, "/api/state", Host="[", Cookie=cookie(server)).status == 400
    assert ask(server, "/api/state", Host=f"localhost:{server.port}", Cookie=cookie(server)).status == 200


def test_an_overview_that_has_not_changed_is_not_sent_again(server: ViewServer) -> None:
    """A page that knows the newest one gets a word."""
    first = ask(server, "/api/state", Cookie=cookie(server))
    again = ask(server, "/api/state", Cookie=cookie(server), If_None_Match=first.headers["ETag"])

    assert (first.status, json.loads(first.body)) == (200, {"graph": "g"})
    assert (again.status, again.body) == (304, b"")


def test_errors_are_told_as_texts(server: ViewServer) -> None:
    """Those of the user, and those of the cluster."""
    found = [ask(server, path, Cookie=cookie(server)) for path in ("/api/errors", "/api/error")]

    assert [one.status for one in found] == [400, 502]
    assert json.loads(found[0].body)["why"] == "graph 'g' has no errors topic"


def test_requests_have_a_limit(server: ViewServer) -> None:
    """Of the first line, of headers, and of the arguments."""
    assert ask(server, "/" + "x" * 70_000).status == 414
    many: Mapping[str, str] = {f"X{number}": "x" for number in range(200)}
    assert ask(server, "/", **many).status == 431
    large: Mapping[str, str] = {f"X{number}": "x" * 30_000 for number in range(3)}
    assert ask(server, "/", **large).status == 431, "no line and no number is too large, but their sum"
    assert ask(server, "/", Cookie=cookie(server), X1="x" * 60_000).status == 200
    assert ask(server, "/api/history?" + "&".join(f"a{n}=1" for n in range(50)), Cookie=cookie(server)).status == 400


def test_a_client_that_sends_byte_by_byte_is_cut_off(server: ViewServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would keep a place otherwise."""
    monkeypatch.setattr(server_module, "REQUEST_S", 0.2)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(b"GET / HT")

        assert client.recv(1) == b""


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HT", b"POST /api/do/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n{"]
)
def test_silent_clients_keep_no_other_one_out(server: ViewServer, sent: bytes) -> None:
    """To connect takes no token. A client that asks takes the place of the one that has been silent for longest."""
    with ExitStack() as held:
        silent = [
            held.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10)) for _ in range(MOST)
        ]
        for client in silent:
            client.sendall(sent)

        for _ in range(3):
            assert ask(server, "/api/state", Cookie=f"cues_kafka_ui_{server.port}={TOKEN}").status == 200
        assert silent[0].recv(1) == b"", "it was cut off"
        silent[-1].settimeout(0.0)
        with pytest.raises(BlockingIOError):
            silent[-1].recv(1)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_other_addresses_need_a_proxy_with_tls(host: str) -> None:
    """The token would go over the network as it is."""
    with pytest.raises(ConfigError, match="--behind-proxy"):
        Address(host)
    assert not Address(host, behind_proxy=True).loopback


def test_behind_a_proxy_the_cookie_goes_over_tls_only() -> None:
    """The name is that of the proxy."""
    view = ViewServer(Address(behind_proxy=True), lambda: (1, b"{}"), {}, token=TOKEN)
    view.start()
    try:
        found = ask(view, f"/?token={TOKEN}", Host="shop.example")
    finally:
        view.close()

    assert found.status == 303
    assert "Secure" in found.headers["Set-Cookie"].split("; ")


def test_a_new_view_has_a_new_token() -> None:
    """Which is not guessed."""
    views = [ViewServer(Address(), lambda: (1, b"{}"), {}) for _ in range(2)]
    for view in views:
        view.server_close()

    assert views[0].token != views[1].token
    assert min(len(view.token) for view in views) >= 32
    assert views[0].url == f"http://127.0.0.1:{views[0].port}/?token={views[0].token}"


def test_a_port_that_is_taken_is_named(server: ViewServer) -> None:
    """With what to do."""
    with pytest.raises(ConfigError, match=f"port {server.port}.*another --port"):
        ViewServer(Address(port=server.port), lambda: (1, b"{}"), {})


def test_no_script_has_a_way_to_make_html_of_a_text() -> None:
    """Values of others go into text nodes and attributes; the page has no script and no style of its own."""
    scripts = {path.name: path.read_text() for path in FOLDER.glob("*.js")}
    page = (FOLDER / "page.html").read_text()

    assert scripts.keys() == set(SCRIPTS)
    for name, script in scripts.items():
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "Function(",
            "srcdoc",
            "href",
        ):
            assert word not in script, name
    assert "<style" not in page
    assert " on" + "click" not in page
    assert page.count("<script") == 1


def test_scripts_load_only_scripts_that_are_served() -> None:
    """A page that is not in the table would not load."""
    for path in FOLDER.glob("*.js"):
        assert set(re.findall(r'from "\./([^"]+)"', path.read_text())) <= set(SCRIPTS)
