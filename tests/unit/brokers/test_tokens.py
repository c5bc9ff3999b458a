"""Tokens for OAUTHBEARER: how often the user's function is called, and what of it other processes get."""

from __future__ import annotations

import base64
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cues_kafka import ConfigError, Kafka, OAuthBearer
from cues_kafka.brokers import tokens
from cues_kafka.brokers.token_sources import ClientCredentials, TokenFile
from cues_kafka.brokers.tokens import Tokens, portable, read_again, tokens_of
from cues_kafka.errors import LoginError, RetriableError

CALLS: list[str | None] = []


def give(config: str | None) -> tuple[str, float]:
    """A token that lives for 100 seconds."""
    CALLS.append(config)
    return f"token {len(CALLS)}", time.time() + 100


@pytest.fixture(autouse=True)
def calls() -> list[str | None]:
    """Of the function, in this test."""
    CALLS.clear()
    return CALLS


@pytest.mark.parametrize(("after_s", "asked"), [(45, 1), (55, 2)])
def test_a_token_is_given_out_for_half_of_its_life(monkeypatch: pytest.MonkeyPatch, after_s: float, asked: int) -> None:
    """A client that got it later than that could not renew it before the brokers end its login."""
    source, now = Tokens(give), time.time()
    source(None)
    monkeypatch.setattr(tokens, "time", SimpleNamespace(time=lambda: now + after_s))

    assert source(None)[0] == f"token {asked}"


def test_a_process_that_unpickles_tokens_many_times_asks_once(calls: list[str | None]) -> None:
    """A Python worker of Spark gets them with every one of its tasks."""
    data = pickle.dumps(Tokens(give))
    first, second = pickle.loads(data), pickle.loads(data)

    assert first("a") == second("a")
    assert pickle.loads(pickle.dumps(second)) is first
    assert calls == ["a"]
    assert pickle.loads(pickle.dumps(Tokens(give))) is not first


def test_a_function_that_fails_after_it_gave_a_token_is_told_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each client of the process asks, and hides what was raised."""
    answers: list[Any] = [("token", time.time() + 0.01)]

    def fail(_: str | None) -> Any:
        if answers:
            return answers.pop()
        raise OSError("the vault is closed")

    source = Tokens(fail)
    source(None)
    monkeypatch.setattr(tokens, "time", SimpleNamespace(time=lambda: time.time() + 1, monotonic=time.monotonic))
    for _ in range(3):
        with pytest.raises(RetriableError, match="see the cause"):
            source(None)

    assert caplog.text.count("no token") == caplog.text.count("OSError: the vault is closed") == 1


def test_options_that_travel_hold_the_function_itself() -> None:
    """The module that names it is the driver's only."""
    login: dict[str, Any] = {"sasl.mechanisms": "OAUTHBEARER", "security.protocol": "SASL_SSL"}
    named = Kafka("127.0.0.1:1", config=login, oauth=f"{__name__}:give")
    held = Kafka("127.0.0.1:1", config={**login, "oauth_cb": give})
    for options in (named, held):
        found = portable(options)
        assert (found.oauth, found.config["oauth_cb"]) == ("", tokens_of(options.oauth or give))
        assert portable(found).config == found.config
    with pytest.raises(ConfigError, match="names no function"):
        portable(Kafka("127.0.0.1:1", config=login, oauth="json:no_such"))
    plain = Kafka("127.0.0.1:1")
    assert portable(plain) is plain


def test_a_login_that_is_tried_again_reads_its_file_again(tmp_path: Path) -> None:
    """Also where the process has a token of it, and with what the login tells besides."""
    payload = base64.urlsafe_b64encode(b'{"exp": 2000000000}').decode().rstrip("=")
    (tmp_path / "token").write_text(f"a.{payload}.b")
    kafka = Kafka("127.0.0.1:1", security=OAuthBearer(file=str(tmp_path / "token"), extensions="pool=p", tls=None))

    function = read_again(kafka).common()["oauth_cb"]

    assert function(None) == (f"a.{payload}.b", 2_000_000_000.0, "", {"pool": "p"})
    assert function is not tokens_of(kafka.common()["oauth_cb"])


def test_threads_that_ask_first_at_the_same_time_share_a_token(calls: list[str | None]) -> None:
    """Equal servers of tokens are one, too."""
    together = threading.Barrier(8)

    def ask(_: int) -> str:
        together.wait()
        return str(tokens_of(f"{__name__}:give")(None)[0])

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, range(8)))

    assert len(set(found)) == 1
    assert len(calls) == 1
    assert tokens_of(TokenFile("/a")) is tokens_of(TokenFile("/a"))


class _Large(BaseHTTPRequestHandler):
    """A server whose answer has no end for a client that reads all of it."""

    def do_POST(self) -> None:
        """Give it, as long as it is read."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        with suppress(OSError):
            while True:
                self.wfile.write(b" " * 65_536)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_answer_without_an_end_is_no_token() -> None:
    """It was read as long as it came, up to the end of the memory."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Large) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        try:
            with pytest.raises(LoginError, match="answers with more than 1,048,576 bytes"):
                ClientCredentials(f"http://127.0.0.1:{server.server_port}", "shop", "x", "", "")(None)
        finally:
            server.shutdown()
            serving.join()
