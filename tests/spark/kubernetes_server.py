"""
A server with the part of Kubernetes' API that Spark's driver uses, whose pods are processes of this machine.

It creates, lists, watches and deletes pods of one namespace, and keeps ConfigMaps. A pod starts the command of its
container, with its variables. Nothing isolates it: there is no image, no network of its own and no volume. Each request
is recorded as the right that Kubernetes would ask for.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, urlsplit

_PLACE = re.compile(r"/api/v1/namespaces/(?P<namespace>[\w-]+)/(?P<kind>\w+)(?:/(?P<name>[\w.-]+))?")
_WANTED = re.compile(r"(?P<name>[^=!]+)(?P<how>==?|!=)(?P<value>[^=!]*)")
END_S = 30.0


class Asked(NamedTuple):
    """A right that a request needs."""

    verb: str
    kind: str


@dataclass
class KubernetesServer:
    """
    Answers on a port of this machine until it is closed; then no process of a pod is left.

    Attributes:
        directory: the working directories of pods are below it.
        place: what stands in the command and variables of a pod for this machine.
        asked: the rights that the requests needed.
        started: the containers' specifications of all pods that were started, by name.
    """

    directory: Path
    place: Callable[[str], str]
    asked: set[Asked] = field(default_factory=set)
    started: dict[str, dict[str, Any]] = field(default_factory=dict)
    _objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _watching: list[queue.Queue[dict[str, Any] | None]] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _version: int = 0

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"server_of": self}))
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            processes = list(self._processes.values())
            for watcher in self._watching:
                watcher.put(None)
        for process in processes:
            _end(process)
        self._server.shutdown()
        self._server.server_close()

    @property
    def running(self) -> dict[str, int]:
        """The pids of the pods' processes that have not ended, by pod."""
        with self._lock:
            return {name: process.pid for name, process in self._processes.items() if process.poll() is None}

    def put(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        """Store an object, and start it if it is a pod with a command."""
        with self._lock:
            self._version += 1
            found = body | {"apiVersion": "v1", "kind": {"pods": "Pod", "configmaps": "ConfigMap"}[kind]}
            found["metadata"] = body["metadata"] | {"uid": uuid.uuid4().hex, "resourceVersion": str(self._version)}
            found["metadata"].setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
            name = found["metadata"]["name"]
            self._objects[kind, name] = found
            if kind == "pods":
                found["status"] = {"phase": "Running", "podIP": "127.0.0.1"}
                if found["spec"].get("containers"):
                    self._start(name, found["spec"]["containers"][0])
                self._tell("ADDED", found)
            return found

    def find(self, kind: str, name: str) -> dict[str, Any] | None:
        """An object."""
        with self._lock:
            return self._objects.get((kind, name))

    def select(self, kind: str, selector: str) -> list[dict[str, Any]]:
        """The objects with these labels."""
        with self._lock:
            return [one for (of, _), one in self._objects.items() if of == kind and _fits(one, selector)]

    def delete(self, kind: str, name: str) -> dict[str, Any] | None:
        """Delete an object, and end its process."""
        with self._lock:
            found = self._objects.pop((kind, name), None)
            process = self._processes.get(name) if kind == "pods" else None
        if process is not None:
            _end(process)
        if found is not None and kind == "pods":
            self._tell("DELETED", found)
        return found

    def watch(self) -> queue.Queue[dict[str, Any] | None]:
        """Events of pods from now on; None: the server ends."""
        with self._lock:
            watcher: queue.Queue[dict[str, Any] | None] = queue.Queue()
            self._watching.append(watcher)
            return watcher

    def _tell(self, kind: str, pod: Mapping[str, Any]) -> None:
        with self._lock:
            for watcher in self._watching:
                watcher.put({"type": kind, "object": json.loads(json.dumps(pod))})

    def _start(self, name: str, container: Mapping[str, Any]) -> None:
        self.started[name] = json.loads(json.dumps(container))
        given = {}
        for variable in container.get("env", ()):
            source = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            given[variable["name"]] = {None: variable.get("value", ""), "metadata.name": name}.get(source, "127.0.0.1")
        words = [self.place(word) for word in (*container["command"], *container.get("args", ()))]
        inherited = {
            key: value for key, value in os.environ.items() if not key.startswith(("CUES_", "SPARK_", "PYSPARK_"))
        }
        home = self.directory / name
        home.mkdir()
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *words],
                env=inherited | {key: self.place(value) for key, value in given.items()},
                cwd=home, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._processes[name] = process
        threading.Thread(target=self._await, args=(name, process), daemon=True).start()

    def _await(self, name: str, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        with self._lock:
            found = self._objects.get(("pods", name))
            if found is not None:
                ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}
                statuses = [{"name": found["spec"]["containers"][0]["name"], "state": {"terminated": ended}}]
                found["status"] = {"phase": "Succeeded" if code == 0 else "Failed", "containerStatuses": statuses}
                self._tell("MODIFIED", found)


def _fits(one: Mapping[str, Any], selector: str) -> bool:
    labels = one["metadata"].get("labels", {})
    for wanted in filter(None, selector.split(",")):
        found = _WANTED.fullmatch(wanted)
        assert found is not None, f"a selector that this server does not know: {selector}"
        if (labels.get(found["name"]) == found["value"]) != (found["how"] != "!="):
            return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """As Kubernetes does: SIGTERM first, and SIGKILL for what is left of the group."""
    process.terminate()
    try:
        process.wait(END_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class _Handler(BaseHTTPRequestHandler):
    server_of: KubernetesServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        kind, name, asked = self._parts()
        if not kind:
            self._send(HTTPStatus.NOT_FOUND, {})
        elif name:
            self.server_of.asked.add(Asked("get", kind))
            self._answer(self.server_of.find(kind, name))
        elif asked.get("watch") == "true":
            self._watch(kind, asked.get("labelSelector", ""))
        else:
            self.server_of.asked.add(Asked("list", kind))
            items = self.server_of.select(kind, asked.get("labelSelector", ""))
            self._send(
                HTTPStatus.OK,
                {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": items},
            )

    def do_POST(self) -> None:
        kind, _, _ = self._parts()
        self.server_of.asked.add(Asked("create", kind))
        self._send(HTTPStatus.CREATED, self.server_of.put(kind, self._body()))

    def do_PATCH(self) -> None:
        kind, name, _ = self._parts()
        self.server_of.asked.add(Asked("patch", kind))
        self._body()
        self._answer(self.server_of.find(kind, name))

    def do_DELETE(self) -> None:
        kind, name, asked = self._parts()
        self.server_of.asked.add(Asked("delete" if name else "deletecollection", kind))
        if int(self.headers.get("Content-Length", 0)):
            self._body()
        if name:
            self._answer(self.server_of.delete(kind, name))
            return
        for one in self.server_of.select(kind, asked.get("labelSelector", "")):
            self.server_of.delete(kind, one["metadata"]["name"])
        self._send(HTTPStatus.OK, {"apiVersion": "v1", "kind": "Status", "status": "Success"})

    def _watch(self, kind: str, selector: str) -> None:
        self.server_of.asked.add(Asked("watch", kind))
        if (
            "upgrade" in self.headers.get("Connection", "").lower()
        ):  # no WebSocket here: the client takes plain HTTP then
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, {})
            return
        events = self.server_of.watch()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with suppress(OSError):  # the client has gone
            while (event := events.get()) is not None:
                if _fits(event["object"], selector):
                    line = json.dumps(event).encode() + b"\n"
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                    self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True

    def _parts(self) -> tuple[str, str, dict[str, str]]:
        parts = urlsplit(self.path)
        found = _PLACE.fullmatch(parts.path)
        asked = {key: values[0] for key, values in parse_qs(parts.query).items()}
        return (found["kind"], found["name"] or "", asked) if found else ("", "", asked)

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, found: dict[str, Any] | None) -> None:
        if found is None:
            self._send(HTTPStatus.NOT_FOUND, {"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 404})
        else:
            self._send(HTTPStatus.OK, found)

    def _send(self, status: HTTPStatus, body: Mapping[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Nothing: `asked` has what matters."""


def here(word: str) -> str:
    """`python` of an image is this interpreter."""
    return sys.executable if word == "python" else word
