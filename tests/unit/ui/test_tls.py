"""The view with TLS of its own: who reaches it by another address, and what that takes."""

from __future__ import annotations

import http.client
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cues_kafka.errors import ConfigError
from cues_kafka.ui import server as server_module
from cues_kafka.ui.server import Address, ViewServer

TOKEN = "token-of-the-test"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1, which is its own authority, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
         key, "-out", certificate, "-days", "2", "-subj", "/CN=view", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return certificate, key


@pytest.fixture
def view(files: tuple[Path, Path]) -> Iterator[ViewServer]:
    """A view for other machines."""
    address = Address("0.0.0.0", certificate=str(files[0]), key=str(files[1]))
    found = ViewServer(address, lambda: (1, b'{"graph":"g"}'), {}, token=TOKEN)
    found.start()
    yield found
    found.close()


def ask(view: ViewServer, trusted: Path, path: str, **headers: str) -> http.client.HTTPResponse:
    """Ask with TLS."""
    context = ssl.create_default_context(cafile=str(trusted))
    connection = http.client.HTTPSConnection("127.0.0.1", view.port, timeout=10, context=context)
    connection.request("GET", path, headers=headers)
    return connection.getresponse()


def test_another_address_is_answered_with_tls(view: ViewServer, files: tuple[Path, Path]) -> None:
    """The cookie never goes without it."""
    found = ask(view, files[0], f"/?token={TOKEN}", Host="shop.example")

    assert found.status == 303
    cookie = found.headers["Set-Cookie"]
    assert "Secure" in cookie.split("; ")
    assert ask(view, files[0], "/api/state", Cookie=cookie.split(";")[0]).read() == b'{"graph":"g"}'
    assert view.url.startswith("https://")
    assert not view.address.private


def test_a_client_without_tls_learns_nothing(view: ViewServer) -> None:
    """Nor does it hold the next one."""
    with socket.create_connection(("127.0.0.1", view.port), timeout=10) as client:
        client.sendall(f"GET /?token={TOKEN} HTTP/1.0\r\n\r\n".encode())
        received = client.recv(4_096)

    assert TOKEN.encode() not in received
    assert b"HTTP" not in received


def test_a_client_that_never_begins_holds_no_other_one(
    view: ViewServer, files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is cut off."""
    monkeypatch.setattr(server_module, "REQUEST_S", 0.5)
    with socket.create_connection(("127.0.0.1", view.port), timeout=10) as silent:
        assert ask(view, files[0], "/").status == 403

        assert silent.recv(1) == b""


def test_files_that_are_no_certificate_are_named(files: tuple[Path, Path], tmp_path: Path) -> None:
    """With what to give."""
    certificate, key = map(str, files)
    locked = tmp_path / "locked.pem"
    subprocess.run(
        ["openssl", "pkey", "-in", key, "-aes256", "-passout", "pass:secret", "-out", locked],
        check=True,
        capture_output=True,
    )
    for pair in ((key, certificate), (certificate, str(tmp_path / "none")), (certificate, str(locked))):
        with pytest.raises(ConfigError, match=r"--certificate .* in PEM form"):
            ViewServer(Address(certificate=pair[0], key=pair[1]), lambda: (1, b"{}"), {})
    with pytest.raises(ConfigError, match="both files"):
        Address(certificate=certificate)
    with pytest.raises(ConfigError, match="both files"):
        Address(key=key)
