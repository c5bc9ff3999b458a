"""Slow clients of the pages of a process, and many of them."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from cues_kafka.observe import http


def connected(path: Path) -> socket.socket:
    """A client that says nothing yet."""
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(30)
    client.connect(str(path))
    return client


def test_a_client_that_sends_byte_by_byte_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is that of the whole request, and not of each byte."""
    monkeypatch.setattr(http, "REQUEST_S", 0.5)
    server = http.listen(f"unix:{tmp_path / 's'}")
    client, pause = connected(tmp_path / "s"), threading.Event()
    with pytest.raises(OSError, match=r"."):  # noqa: PT012 - each byte until one is refused
        for _ in range(1000):
            client.sendall(b"G")
            pause.wait(0.05)
    server.close()


def test_clients_beyond_a_bound_are_turned_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold no thread. Who was there is answered, and those who come later are, too."""
    monkeypatch.setattr(http, "MOST", 2)
    server = http.listen(f"unix:{tmp_path / 's'}")
    held = [connected(tmp_path / "s") for _ in range(2)]
    held[0].sendall(b"GET /healthz HTTP/1.0\r\n")
    held[1].sendall(b"GET /healthz HTTP/1.0\r\n")
    refused = connected(tmp_path / "s")
    assert refused.recv(100) == b""
    for one in held:
        one.sendall(b"\r\n")
        assert one.recv(100).startswith(b"HTTP/1.0 200")
    server.close()
