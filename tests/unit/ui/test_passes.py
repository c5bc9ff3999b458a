"""How a page that was open comes back to a view that was started again."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path

import pytest

from cues_kafka.ui.memory import ViewMemory, memory_file
from cues_kafka.ui.passes import LASTS_S, Pass, Passes
from cues_kafka.ui.server import Address, ViewServer
from tests.unit.ui.test_posting import own, post
from tests.unit.ui.test_server import ask

SECRET = b"s" * 32
PLACE = "127.0.0.1:8080"


def signed(found: Pass, challenge: str, place: str = PLACE) -> str:
    """What the script of a page answers."""
    return hmac.new(bytes.fromhex(found.key), f"{challenge}\n{place}".encode(), hashlib.sha256).hexdigest()


def test_a_page_comes_back_to_a_process_with_the_same_secret() -> None:
    """The next process has another challenge."""
    before, after = Passes(SECRET), Passes(SECRET)
    found = before.issue()

    assert after.accepts(found.id, signed(found, after.challenge), PLACE)
    assert not after.accepts(found.id, signed(found, before.challenge), PLACE), "an answer is of use once"
    assert before.challenge != after.challenge
    assert before.issue() != found


def test_a_pass_of_another_secret_or_place_or_time_is_refused() -> None:
    """So is one whose end was moved, and one that is no pass at all."""
    now_s = 1_000.0
    view = Passes(SECRET, lambda: now_s)
    found = view.issue()
    proof = signed(found, view.challenge)
    other = Passes(b"t" * 32, lambda: now_s).issue()
    later = f"9{found.id}"

    assert view.accepts(found.id, proof, PLACE)
    assert not view.accepts(other.id, signed(other, view.challenge), PLACE)
    assert not view.accepts(found.id, signed(found, view.challenge, "127.0.0.1:9090"), PLACE)
    assert not view.accepts(later, proof, PLACE)
    for name in ("", ".", "x.y", "\u0663.x", "9" * 5_000, "\ud800", found.id.partition(".")[0]):
        assert not view.accepts(name, proof, PLACE)
    for wrong in ("", "\ud800", proof[:-1], f"{proof}0", proof.upper()):
        assert not view.accepts(found.id, wrong, PLACE)
    now_s += LASTS_S
    assert not view.accepts(found.id, proof, PLACE)


def view(secret: bytes, port: int = 0) -> ViewServer:
    """A view with a token of its own."""
    token = secrets.token_urlsafe()
    made = ViewServer(Address(port=port), lambda: (1, b"{}"), {}, token=token, passes=Passes(secret))
    made.start()
    return made


def test_over_http_a_pass_gives_the_cookie_of_the_next_process_and_nothing_else_does() -> None:
    """The old cookie is refused, with a challenge; a request of another site is refused, too."""
    first = view(SECRET)
    old = ask(first, f"/?token={first.token}").headers["Set-Cookie"].split(";")[0]
    assert ask(first, "/api/pass").status == 403, "a pass is for those who may look"
    found = Pass(**json.loads(ask(first, "/api/pass", Cookie=old).body))
    first.close()
    again = view(SECRET, first.port)
    try:
        place = f"127.0.0.1:{again.port}"
        refused = ask(again, "/api/state", Cookie=old)
        challenge = json.loads(refused.body)["challenge"]
        given = json.dumps({"id": found.id, "proof": signed(found, challenge, place)}).encode()
        mine = own(again, Cookie=old)

        assert refused.status == 403
        for foreign in ({"Origin": "https://evil.example"}, {"X-Cues-Kafka": ""}, {"Sec-Fetch-Site": "cross-site"}):
            assert post(again, "/api/back", given, mine | foreign)[0] == 403
        for body in (b"{}", b"[]", b"nul", b'{"id": 1, "proof": null}', given.replace(found.id.encode(), b"1.x")):
            assert post(again, "/api/back", body, mine)[0] == 403
        status, data, headers = post(again, "/api/back", given, mine)
        assert (status, data) == (200, {})
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(headers["Set-Cookie"].split("; "))
        new = headers["Set-Cookie"].split(";")[0]
        assert ask(again, "/api/state", Cookie=new).status == 200
        assert ask(again, "/api/state", Cookie=old).status == 403
    finally:
        again.close()


def test_a_view_with_another_secret_refuses_the_pass() -> None:
    """As one that was started with --log-out has."""
    first = view(SECRET)
    old = ask(first, f"/?token={first.token}").headers["Set-Cookie"].split(";")[0]
    found = Pass(**json.loads(ask(first, "/api/pass", Cookie=old).body))
    first.close()
    again = view(b"t" * 32, first.port)
    try:
        challenge = json.loads(ask(again, "/api/state", Cookie=old).body)["challenge"]
        given = {"id": found.id, "proof": signed(found, challenge, f"127.0.0.1:{again.port}")}
        status, data, headers = post(again, "/api/back", json.dumps(given).encode(), own(again))
        assert (status, "Set-Cookie" in headers) == (403, False)
        assert "open the address" in data["why"]
    finally:
        again.close()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a view of a new user."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    found = memory_file("shop", "localhost:9092", "127.0.0.1", "", "")
    assert tmp_path in found.parents
    return found


def remembered(file: Path, port: int = 8080) -> ViewMemory:
    """A view that was started once."""
    found = ViewMemory(file)
    found.remember(port)
    assert found.trouble == ""
    return found


def test_a_view_keeps_its_secret_and_its_port_where_only_its_user_reads(file: Path) -> None:
    """Until it is told to forget it; views of other graphs have files of their own."""
    old = os.umask(0)
    try:
        first = remembered(file)
    finally:
        os.umask(old)
    again = ViewMemory(file)

    assert (again.secret, again.port, again.trouble) == (first.secret, 8080, "")
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert [*file.parent.iterdir()] == [file]
    forgotten = ViewMemory(file, forget=True)
    assert (forgotten.secret != first.secret, forgotten.port) == (True, 8080)
    forgotten.remember(9090)
    assert (ViewMemory(file).secret, ViewMemory(file).port) == (forgotten.secret, 9090)
    assert memory_file("shop", "localhost:9092", "127.0.0.1", "", "read-only") != file


@pytest.mark.parametrize("text", ["", "[]", "{", '{"secret": "ab", "port": 1}', '{"secret": 1}', '"x"', "9" * 2_000])
def test_a_file_that_holds_something_else_is_not_used_and_stays(file: Path, text: str) -> None:
    """What to do is said."""
    remembered(file).remember(1)
    file.write_text(text)
    found = ViewMemory(file)
    found.remember(2)

    assert "Delete the file" in found.trouble
    assert len(found.secret) == 32
    assert file.read_text() == text


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_secret_that_others_may_know_is_not_used(file: Path, mode: int) -> None:
    """Nor one that others may have written."""
    first = remembered(file)
    file.chmod(mode)

    assert ViewMemory(file).secret != first.secret
    assert "other users" in ViewMemory(file).trouble


def test_a_link_and_a_pipe_are_not_read(file: Path) -> None:
    """They may be those of another user; a pipe would hold the start."""
    first = remembered(file)
    real = file.rename(file.with_name("real"))
    file.symlink_to(real)
    assert (ViewMemory(file).secret != first.secret, bool(ViewMemory(file).trouble)) == (True, True)
    file.unlink()
    os.mkfifo(file, 0o600)
    assert "it is no file" in ViewMemory(file).trouble


def test_a_folder_that_cannot_be_written_leaves_a_secret_of_this_process(file: Path) -> None:
    """And says what to do."""
    file.parent.parent.mkdir(parents=True)
    file.parent.write_text("in the way")
    found = ViewMemory(file)
    found.remember(1)

    assert len(found.secret) == 32
    assert str(file) in found.trouble
