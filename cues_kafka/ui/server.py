"""The server of the browser view: pages for those who have the token, and what they change.

It answers GET and HEAD, which change nothing, and POST, which must come from a page of its own. A page loads only our
own files, by its content security policy, and its script puts values into text nodes only, so what others have written
is never read as HTML.
"""

from __future__ import annotations

import secrets
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs, urlsplit

from cues_kafka.errors import BrokerError, ConfigError, CuesError
from cues_kafka.observe.limited import LimitedServer, cut_later
from cues_kafka.observe.log import get_logger
from cues_kafka.ui.actions import READ_ONLY, Actions, Busy, Forbidden, number_of
from cues_kafka.ui.foreign import BODY, json_object, origin_of, who, why_foreign
from cues_kafka.ui.heads import HeadReader
from cues_kafka.ui.passes import SECRET, Passes
from cues_kafka.ui.turns import TooMany
from cues_kafka.ui.views import to_json

log = get_logger("cues_kafka.ui")

REQUEST_S: Final = 10.0
"""How long a client may take to send its request."""

READ: Final = 65_536
"""Bytes that are read of a body that is too large, so that its sender sees the answer."""

FIELDS: Final = 10
"""Arguments of a request."""

SCRIPTS: Final = (
    "page.js",  # the frame, with the table of pages
    "actions.js",  # what changes something
    "back.js",  # how a page comes back after a restart
    "dom.js",  # what pages share
    "graph.js",
    "tasks.js",
    "errors.js",
    "messages.js",
    "lineage.js",
    "stores.js",
)
"""Modules: a page is one of them."""

FILES: Final[Mapping[str, tuple[str, str]]] = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    **{f"/{name}": (name, "text/javascript; charset=utf-8") for name in SCRIPTS},
}
"""By path, the file and what it is."""

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""With every answer."""

DO: Final = "/api/do/"
"""Behind it is the name of a verb."""

BACK: Final = "/api/back"
"""Where a page without the cookie shows its pass."""

Question: TypeAlias = Callable[[Mapping[str, str]], Any]
"""Takes the arguments of a request and gives data for `to_json`."""


@dataclass(frozen=True, slots=True)
class Address:
    """
    Where the view listens.

    Attributes:
        host, port: port 0 takes a free one.
        behind_proxy: whether a proxy with TLS is in front of it.
        certificate, key: files in PEM form, with which it has TLS itself; empty: it has none.

    Raises:
        ConfigError: others could read it without TLS, or only one of the files is given.
    """

    host: str = "127.0.0.1"
    port: int = 0
    behind_proxy: bool = False
    certificate: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ConfigError(f"--port {self.port}: give a number from 0 to 65535; 0 takes a free port.")
        if bool(self.certificate) != bool(self.key):
            raise ConfigError("TLS needs both files: give --certificate FILE and --key FILE.")
        if not (self.behind_proxy or self.loopback or self.tls):
            raise ConfigError(
                f"--host {self.host!r} is not an address of this machine only, and the view has no TLS. Leave --host "
                "out and use an SSH tunnel, give --certificate and --key, or put a proxy with TLS in front of it and "
                "add --behind-proxy."
            )

    @property
    def tls(self) -> bool:
        """Whether it has TLS itself."""
        return bool(self.certificate)

    @property
    def private(self) -> bool:
        """Whether only users of this machine reach it, and no proxy brings others."""
        return self.loopback and not self.behind_proxy

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class ViewServer(LimitedServer):
    """
    Serves the view. `start` it, and `close` it.

    Args:
        address: where.
        newest: gives the number of the newest overview, and its JSON.
        questions: by path, what answers.
        actions: what changes something; None: nothing is changed.
        token: who knows it may look; None: a new one.
        passes: let open pages come back after a restart; None: those of this process only.

    Attributes:
        token, passes: as above.

    Raises:
        ConfigError: it cannot listen there.
    """

    hears = True

    def __init__(
        self,
        address: Address,
        newest: Callable[[], tuple[int, bytes]],
        questions: Mapping[str, Question],
        *,
        actions: Actions | None = None,
        token: str | None = None,
        passes: Passes | None = None,
    ) -> None:
        self.address, self.newest, self.questions = address, newest, questions
        self.actions = actions or Actions({}, refusal=READ_ONLY)
        self.token = token or secrets.token_urlsafe(24)
        self.passes = passes or Passes(secrets.token_bytes(SECRET))
        self._tls = _tls(address)
        self.files = {path: (Path(__file__).parent / name).read_bytes() for path, (name, _) in FILES.items()}
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        try:
            super().__init__((address.host, address.port), _ViewHandler, family=family, name="cues_kafka.ui")
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {address.host}, port {address.port}: {error}. Choose another --port, or end the "
                "process that listens there."
            ) from None

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """What opens the view on this machine, with the token."""
        host = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
        return f"http{'s' if self.address.tls else ''}://{host}:{self.port}/?token={self.token}"

    def get_request(self) -> tuple[Any, Any]:
        """A client; its thread does the handshake with the first bytes that it reads, so no other client waits."""
        request, address = super().get_request()
        if self._tls is not None:
            request = self._tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        return request, address

    def start(self) -> None:
        """Answer from now on."""
        self.serve("ui http")


def _tls(address: Address) -> ssl.SSLContext | None:
    if not address.tls:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # A key with a password would ask for it on the terminal.
        context.load_cert_chain(address.certificate, address.key, password=_no_password)
    except (OSError, ValueError) as error:  # of ssl, too
        raise ConfigError(
            f"--certificate {address.certificate} --key {address.key}: {error}. Give a certificate and its key in PEM "
            "form, without a password, which this user can read."
        ) from None
    return context


def _no_password() -> str:
    raise ValueError("the key has a password")


class _ViewHandler(BaseHTTPRequestHandler):
    timeout = REQUEST_S
    server: ViewServer
    server_version = "cues-kafka"
    sys_version = ""

    def setup(self) -> None:
        """A client that sends byte by byte has no more time than one that sends nothing."""
        super().setup()
        self._due = cut_later(self.connection, REQUEST_S)

    def parse_request(self) -> bool:
        """The request is here, or it is too large."""
        body, self.rfile = self.rfile, HeadReader(self.rfile)
        try:
            return super().parse_request()
        finally:
            self.rfile = body
            self._due.cancel()
            if self.command != "POST":  # of which the body is due
                self.server.heard(self.connection)

    def finish(self) -> None:
        """Also where no request came."""
        self._due.cancel()
        super().finish()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Requests that are too large, or of another method: in the same form as all other answers."""
        del message, explain
        status = HTTPStatus(code)
        self._say(status, f"not answered: {status.phrase}")

    def do_GET(self) -> None:
        try:
            known = self._known_host()
            url = urlsplit(self.path)
            given = {name: values[0] for name, values in parse_qs(url.query, max_num_fields=FIELDS).items()}
        except ValueError as error:
            log.debug("request not answered", client=self.address_string(), why=str(error))
            self._say(HTTPStatus.BAD_REQUEST, "this is no address of the view")
            return
        if not known:
            self._say(HTTPStatus.MISDIRECTED_REQUEST, "this view has another address")
        elif url.path == "/" and "token" in given:
            self._log_in(given["token"])
        elif not self._may_look():
            self._refuse()
        elif url.path in FILES:
            self._send(HTTPStatus.OK, FILES[url.path][1], self.server.files[url.path])
        elif url.path == "/api/state":
            self._state()
        elif url.path == "/api/job":
            self._job()
        elif url.path == "/api/pass":
            self._send(HTTPStatus.OK, "application/json", to_json(self.server.passes.issue()))
        elif (question := self.server.questions.get(url.path)) is not None:
            self._answer(question, given)
        else:
            self._say(HTTPStatus.NOT_FOUND, "there is no such page")

    do_HEAD = do_GET  # noqa: N815 - the same

    def do_POST(self) -> None:
        body = self._body()
        if body is None:
            return
        behind = self.server.address.behind_proxy
        try:
            known = self._known_host()
            path = urlsplit(self.path).path
        except ValueError:
            self._say(HTTPStatus.BAD_REQUEST, "this is no address of the view")
            return
        if not known:
            self._say(HTTPStatus.MISDIRECTED_REQUEST, "this view has another address")
        elif path != BACK and not self._may_look():
            self._refuse()
        elif why := why_foreign(self.headers, behind_proxy=behind):
            log.warning("change refused", client=self.address_string(), why=why)
            self._say(HTTPStatus.FORBIDDEN, f"this request is not one of a page of the view: {why}")
        elif path == BACK:
            self._come_back(body)
        elif not path.startswith(DO):
            self._say(HTTPStatus.NOT_FOUND, "there is no such page")
        else:
            self._act(path.removeprefix(DO), body)

    def _body(self) -> bytes | None:
        """What a page sends, within `REQUEST_S`; None: it was refused."""
        said = self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers or not (said.isascii() and said.isdigit() and len(said) < 10):
            self._say(HTTPStatus.LENGTH_REQUIRED, "say the length of the body in Content-Length")
            return None
        length = int(said)
        due = cut_later(self.connection, REQUEST_S)
        try:
            body = self.rfile.read(min(length, READ))
        finally:
            due.cancel()
            self.server.heard(self.connection)
        if length > BODY:
            self._say(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a page sends {BODY:,} bytes at most")
            return None
        if len(body) < length:
            self._say(HTTPStatus.BAD_REQUEST, "the body ends too soon")
            return None
        return body

    def _act(self, verb: str, body: bytes) -> None:
        actions = self.server.actions
        person = who(self.headers, self.address_string(), behind_proxy=self.server.address.behind_proxy)
        try:
            given = json_object(body)
        except ValueError as error:
            self._say(HTTPStatus.BAD_REQUEST, f"the body is no object in JSON: {error}")
            return
        try:
            if verb == "end-wait":
                actions.end_wait(person, number_of(given, "job"))
                self._say(HTTPStatus.OK, "")
            elif actions.refusal or actions.knows(verb):
                self._send(HTTPStatus.ACCEPTED, "application/json", to_json(actions.begin(verb, given, person)))
            else:
                self._say(HTTPStatus.NOT_FOUND, f"there is no verb {verb!r:.80}")
        except Forbidden as error:
            self._say(HTTPStatus.FORBIDDEN, str(error))
        except Busy as error:
            self._say(HTTPStatus.CONFLICT, str(error))
        except ConfigError as error:
            self._say(HTTPStatus.BAD_REQUEST, str(error))
        except CuesError as error:
            self._say(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))

    def _known_host(self) -> bool:
        """A page of another site that has its name lead here asks for that name, for which there is no certificate."""
        if self.server.address.behind_proxy or self.server.address.tls:
            return True
        named = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        return named in ("localhost", "127.0.0.1", "::1", self.server.address.host)

    @property
    def _cookie(self) -> str:
        """Its name; views on two ports of a machine have two."""
        return f"cues_kafka_ui_{self.server.port}"

    def _may_look(self) -> bool:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(self._cookie)
        except CookieError:
            return False
        return found is not None and self._is_token(found.value)

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode(errors="replace"), self.server.token.encode())

    def _log_in(self, token: str) -> None:
        if not self._is_token(token):
            self._refuse()
            return
        log.info("view opened", client=self.address_string())
        self.send_response(HTTPStatus.SEE_OTHER)
        self.send_header("Location", "./")
        self._give_cookie()
        self._end(b"")

    def _come_back(self, body: bytes) -> None:
        """Let a page look that has a pass: it was open before this process began."""
        try:
            given = json_object(body)
        except ValueError:
            given = {}
        name, proof = str(given.get("id", "")), str(given.get("proof", ""))
        if not self.server.passes.accepts(name, proof, origin_of(self.headers)):
            self._refuse("without a pass of this view")
            return
        log.info("view opened again", client=self.address_string())
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self._give_cookie()
        self._end(b"{}")

    def _give_cookie(self) -> None:
        secure = "; Secure" if self.server.address.behind_proxy or self.server.address.tls else ""
        self.send_header("Set-Cookie", f"{self._cookie}={self.server.token}; HttpOnly; SameSite=Strict; Path=/{secure}")

    def _refuse(self, why: str = "without the token") -> None:
        log.warning("view refused", client=self.address_string(), why=why)
        said = "open the address with the token, which `cues-kafka ui` has printed"
        body = to_json({"why": said, "challenge": self.server.passes.challenge})
        self._send(HTTPStatus.FORBIDDEN, "application/json", body)

    def _state(self) -> None:
        number, body = self.server.newest()
        tag = f'"{number}"'
        if self.headers.get("If-None-Match") == tag:
            self.send_response(HTTPStatus.NOT_MODIFIED)
            self.send_header("ETag", tag)
            self._end(b"")
            return
        self._send(HTTPStatus.OK, "application/json", body, {"ETag": tag})

    def _job(self) -> None:
        actions = self.server.actions
        found = asdict(actions.newest()) | {"refusal": actions.refusal}
        self._send(HTTPStatus.OK, "application/json", to_json(found))

    def _answer(self, question: Question, given: Mapping[str, str]) -> None:
        try:
            self._send(HTTPStatus.OK, "application/json", to_json(question(given)))
        except ConfigError as error:
            self._say(HTTPStatus.BAD_REQUEST, str(error))
        except BrokerError as error:
            self._say(HTTPStatus.BAD_GATEWAY, str(error))
        except TooMany as error:
            self._say(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        except CuesError as error:
            self._say(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))

    def _say(self, status: HTTPStatus, why: str) -> None:
        self._send(status, "application/json", to_json({"why": why}))

    def _send(self, status: HTTPStatus, kind: str, body: bytes, more: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in (more or {}).items():
            self.send_header(name, value)
        self._end(body)

    def _end(self, body: bytes) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def address_string(self) -> str:
        return str(self.client_address[0])

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        # The first line of a request may hold the token.
        return
