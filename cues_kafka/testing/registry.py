"""A schema registry in this process, for tests: Confluent's protocol, kept in memory."""

from __future__ import annotations

import json
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self
from urllib.parse import unquote, urlsplit

from cues_kafka.testing.registry_rules import parsed, unfit


class _Stored(NamedTuple):
    """A registered schema."""

    number: int
    guid: str
    kind: str
    text: str
    references: list[dict[str, Any]]


class _ErrorAnswer(Exception):
    """An answer that is an error: HTTP status, the registry's code, what it says."""


class TestRegistry:
    """
    A registry on a port of this machine; also a context manager.

    Args:
        compatibility: NONE, BACKWARD (new readers read old messages), FORWARD or FULL.
        token: what clients must send as a bearer token; None: no login.
        port: where it listens; 0: any free one.

    Attributes:
        url: its address.
        requests: what was asked, method and path, in order.
        denied: subjects that clients may neither read nor write, as a registry with rights answers: with 403.
    """

    __test__ = False

    def __init__(self, *, compatibility: str = "BACKWARD", token: str | None = None, port: int = 0) -> None:
        self.compatibility: str = compatibility
        self.token = token
        self.requests: list[str] = []
        self.denied: set[str] = set()
        self._lock = threading.Lock()
        self._by_id: dict[int, _Stored] = {}
        self._versions: dict[str, list[int]] = {}
        registry = self

        class Request(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry._answer(self)

            do_POST = do_PUT = do_GET  # noqa: N815  the names of the standard library

            def log_message(self, *_: Any) -> None:
                """Do not log requests."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Request)
        self._server.daemon_threads = True
        self.url: str = f"http://127.0.0.1:{self._server.server_port}"
        how = {"poll_interval": 0.01}  # `close` waits for the next look, which is half a second away by default
        self._thread = threading.Thread(target=self._server.serve_forever, name="registry", kwargs=how, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop; its port is closed from now on."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def register(self, subject: str, schema: Any, kind: str = "AVRO") -> int:
        """Register a schema without a check, and return its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        with self._lock:
            return self._store(subject, {"schema": text, "schemaType": kind}).number

    def subjects(self) -> dict[str, list[int]]:
        """The ids of each subject, in the order of versions."""
        with self._lock:
            return {subject: list(ids) for subject, ids in self._versions.items()}

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.requests.append(f"{handler.command} {handler.path}")
        length = int(handler.headers.get("Content-Length") or 0)
        body = json.loads(handler.rfile.read(length)) if length else {}
        path = [unquote(part) for part in urlsplit(handler.path).path.strip("/").split("/")]
        try:
            if self.token is not None and handler.headers.get("Authorization") != f"Bearer {self.token}":
                raise _ErrorAnswer(401, 40101, "Unauthorized")
            with self._lock:
                self._check_rights(path)
                status, answer = 200, self._route(handler.command, path, body)
        except _ErrorAnswer as refused:
            status, code, text = refused.args
            answer = {"error_code": code, "message": text}
        data = json.dumps(answer).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def _check_rights(self, path: list[str]) -> None:
        """Refuse a subject that is denied, and a schema that no other subject has."""
        if path[:2] == ["schemas", "ids"]:
            named = {subject for subject, ids in self._versions.items() if int(path[2]) in ids}
        else:
            named = set(path[path.index("subjects") + 1 :][:1]) if "subjects" in path else set()
        if named and named <= self.denied:
            raise _ErrorAnswer(403, 40301, f"User is denied operation Read on Subject: {min(named)}")

    def _route(self, method: str, path: list[str], body: dict[str, Any]) -> Any:
        match method, path:
            case "GET", ["subjects"]:
                return sorted(self._versions)
            case "GET", ["schemas", "ids", number] if int(number) < 2**31:  # a larger one is an unknown path for others
                return _shown(self._stored(int(number)))
            case "GET", ["schemas", "guids", guid]:
                return _shown(self._stored(next((n for n, one in self._by_id.items() if one.guid == guid), 0)))
            case "GET", ["subjects", subject, "versions"]:
                return list(range(1, len(self._of(subject)) + 1))
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(subject, version)
            case "POST", ["subjects", subject, "versions"]:
                if found := self._unfit(subject, body):
                    raise _ErrorAnswer(409, 409, f"Schema being registered is incompatible: {'; '.join(found)}")
                self._store(subject, body)
                return self._lookup(subject, body)
            case "POST", ["subjects", subject]:
                return self._lookup(subject, body)
            case "POST", ["compatibility", "subjects", subject, "versions", *_]:
                self._of(subject)
                found = self._unfit(subject, body)
                return {"is_compatible": not found, "messages": found}
            case "GET", ["config", *_]:
                return {"compatibilityLevel": self.compatibility}
            case "PUT", ["config", *_]:
                self.compatibility = body["compatibility"]
                return body
        raise _ErrorAnswer(404, 404, f"no {method} {'/'.join(path)}")

    def _of(self, subject: str) -> list[int]:
        if subject not in self._versions:
            raise _ErrorAnswer(404, 40401, f"Subject {subject!r} not found.")
        return self._versions[subject]

    def _stored(self, number: int) -> _Stored:
        if number not in self._by_id:
            raise _ErrorAnswer(404, 40403, f"Schema {number} not found")
        return self._by_id[number]

    def _version(self, subject: str, version: str) -> dict[str, Any]:
        ids = self._of(subject)
        number = len(ids) if version in ("latest", "-1") else int(version)
        if not 0 < number <= len(ids):
            raise _ErrorAnswer(404, 40402, f"Version {version} not found.")
        stored = self._by_id[ids[number - 1]]
        return {"subject": subject, "version": number, "id": stored.number, **_shown(stored)}

    def _lookup(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        for version, number in enumerate(self._of(subject), 1):
            if _same(self._by_id[number], body):
                return self._version(subject, str(version))
        raise _ErrorAnswer(404, 40403, "Schema not found")

    def _store(self, subject: str, body: dict[str, Any]) -> _Stored:
        kind, text = body.get("schemaType") or "AVRO", body["schema"]
        references = body.get("references") or []
        self._parse(kind, text, references)
        known = next((one for one in self._by_id.values() if _same(one, body)), None)
        stored = known or _Stored(len(self._by_id) + 1, str(uuid.uuid4()), kind, text, references)
        self._by_id[stored.number] = stored
        ids = self._versions.setdefault(subject, [])
        if stored.number not in ids:
            ids.append(stored.number)
        return stored

    def _parse(self, kind: str, text: str, references: list[dict[str, Any]]) -> Any:
        try:
            return parsed(kind, text, list(self._named(references).items()))
        except ValueError as error:
            raise _ErrorAnswer(422, 42201, f"Invalid schema: {error}") from error

    def _named(self, references: list[dict[str, Any]]) -> dict[str, str]:
        """The schemas that are named, and those that they name, those that others need first."""
        found: dict[str, str] = {}
        for one in references:
            stored = self._version(one["subject"], str(one["version"]))
            found |= self._named(stored.get("references", []))
            found[one["name"]] = stored["schema"]
        return found

    def _unfit(self, subject: str, body: dict[str, Any]) -> list[str]:
        """Why the schema may not follow the newest one of the subject."""
        ids = self._versions.get(subject, [])
        if not ids or self.compatibility == "NONE":
            return []
        newest, kind = self._by_id[ids[-1]], body.get("schemaType") or "AVRO"
        if newest.kind != kind:
            return [f"the subject has schemas of the type {newest.kind}"]
        old = self._parse(kind, newest.text, newest.references)
        new = self._parse(kind, body["schema"], body.get("references") or [])
        backward = unfit(kind, old, new) if self.compatibility in ("BACKWARD", "FULL") else []
        return backward + (unfit(kind, new, old) if self.compatibility in ("FORWARD", "FULL") else [])


def _shown(stored: _Stored) -> dict[str, Any]:
    shown: dict[str, Any] = {"schema": stored.text, "guid": stored.guid}
    if stored.kind != "AVRO":
        shown["schemaType"] = stored.kind
    return shown | ({"references": stored.references} if stored.references else {})


def _same(stored: _Stored, body: dict[str, Any]) -> bool:
    """Whether a request holds the stored schema, with the schemas that it names."""
    if stored.kind != (body.get("schemaType") or "AVRO") or stored.references != (body.get("references") or []):
        return False
    try:
        return bool(json.loads(stored.text) == json.loads(body["schema"]))
    except ValueError:
        return bool(stored.text == body["schema"])
