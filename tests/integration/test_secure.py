"""A secured broker: each way to log in, what is refused there, and its users and their rights.

docs/security.md has a table of these ways; each of its rows names a test of this file.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from cues_kafka import (
    ConfigError,
    Graph,
    Kafka,
    OAuthBearer,
    Oidc,
    Plain,
    Scram,
    Secret,
    Source,
    Tls,
    Topic,
    connect,
    processor,
    start,
)
from cues_kafka.brokers.kafka import KafkaBroker
from cues_kafka.brokers.kafka.examining import apis_of
from cues_kafka.brokers.kafka.probe import find_reason
from cues_kafka.brokers.kafka.users import UserAdmin, _binding, _filter
from cues_kafka.brokers.local import LocalBroker, detached
from cues_kafka.brokers.local.detached import RunningBroker
from cues_kafka.brokers.local.identities import LOGINS, USERS
from cues_kafka.brokers.security import Security
from cues_kafka.cli.config import load
from cues_kafka.cli.loading import load_graph
from cues_kafka.cli.main import app
from cues_kafka.cli.run import _may_reload
from cues_kafka.cli.run_options import RunOptions
from cues_kafka.errors import BrokerError, CuesError, LoginError, RetriableError
from cues_kafka.plan.acls import Acl, acls_of
from cues_kafka.plan.plan import plan
from cues_kafka.ports.facts import NewTopic
from cues_kafka.verify.scan import verify
from tests.fault.support import until

TOPIC = "of-the-worker"
PASSWORD = "a-password-of-this-test"


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    """One for all; a topic that the worker may see, and who connects without a name."""
    with LocalBroker(secure=True) as broker:
        with closing(KafkaBroker(broker.kafka("admin", "tls"))) as admin:
            admin.create([NewTopic(TOPIC, 1)])
        users = UserAdmin(broker.kafka("admin", "tls"))
        for operation in ("Describe", "DescribeConfigs"):
            acl = Acl("worker", "topic", "literal", TOPIC, operation, "")
            users.grant([("User:worker", acl), ("User:ANONYMOUS", acl)])
        yield broker


def answer(options: Kafka) -> bool | Exception:
    """Whether the user of these settings sees the topic, or what the cluster says instead."""
    with closing(KafkaBroker(options)) as client:
        try:
            return TOPIC in client.facts([TOPIC]).topics
        except CuesError as error:
            return error


def side_by_side(asked: Mapping[str, Kafka]) -> dict[str, Any]:
    """Answers by name: a client with tokens takes a second to be made, and a refusal its time, too."""
    with ThreadPoolExecutor(len(asked)) as pool:
        return dict(zip(asked, pool.map(answer, asked.values()), strict=True))


def locked(broker: LocalBroker, tmp_path: Path) -> str:
    """The worker's key, encrypted."""
    key, file = broker.identities.path("worker.key"), tmp_path / "locked.key"
    words = ["openssl", "pkcs8", "-topk8", "-in", key, "-out", str(file), "-passout", f"pass:{PASSWORD}"]
    subprocess.run(words, check=True, capture_output=True)
    return str(file)


def read(broker: LocalBroker, name: str) -> str:
    return Path(broker.identities.path(name)).read_text("utf-8")


def give(broker: LocalBroker) -> Callable[[Any], tuple[str, float]]:
    """A function of tokens of the worker."""
    return lambda _: (broker.identities.token("worker", life_s=300), time.time() + 300)


WAYS: dict[str, Callable[[LocalBroker, Path], tuple[str, Security]]] = {
    "plain": lambda b, _: ("LOGIN", Plain("worker", read(b, "worker.password"), tls=ca(b))),
    "scram": lambda b, _: ("LOGIN", Scram("worker", read(b, "worker.password"), tls=ca(b))),
    "scram, SHA-256": lambda b, _: (
        "LOGIN",
        Scram("worker", read(b, "worker.password"), mechanism="SCRAM-SHA-256", tls=ca(b)),
    ),
    "scram, password in a file": lambda b, _: (
        "LOGIN",
        Scram("worker", Secret(file=b.identities.path("worker.password")), tls=ca(b)),
    ),
    "token of a function": lambda b, _: ("LOGIN", OAuthBearer(token=give(b), tls=ca(b))),
    "token in a file": lambda b, _: ("LOGIN", OAuthBearer(file=b.identities.path("worker.token"), tls=ca(b))),
    "token in a file, with extensions": lambda b, _: (
        "LOGIN",
        OAuthBearer(file=b.identities.path("worker.token"), extensions={"logicalCluster": "lkc-1"}, tls=ca(b)),
    ),
    "tls, no login": lambda b, _: ("TLS", ca(b)),
    "mutual tls, files": lambda b, _: ("MUTUAL", own(b)),
    "mutual tls, pasted": lambda b, _: (
        "MUTUAL",
        Tls(ca=read(b, "ca.pem"), certificate=read(b, "worker.pem"), key=read(b, "worker.key")),
    ),
    "mutual tls, encrypted key": lambda b, tmp: (
        "MUTUAL",
        Tls(
            ca=b.identities.path("ca.pem"),
            certificate=b.identities.path("worker.pem"),
            key=locked(b, tmp),
            key_password=PASSWORD,
        ),
    ),
}


def ca(broker: LocalBroker) -> Tls:
    return Tls(ca=broker.identities.path("ca.pem"))


def own(broker: LocalBroker, user: str = "worker") -> Tls:
    path = broker.identities.path
    return Tls(ca=path("ca.pem"), certificate=path(f"{user}.pem"), key=path(f"{user}.key"))


@pytest.fixture(scope="module")
def reached(broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each way leads to."""
    made = {way: WAYS[way](broker, tmp_path_factory.mktemp("keys")) for way in WAYS}
    return side_by_side(
        {
            way: Kafka(broker.listener(listener), security=security, start_timeout_s=60)
            for way, (listener, security) in made.items()
        }
    )


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_log_in_reaches_the_cluster_as_its_user(reached: dict[str, Any], way: str) -> None:
    """The worker alone sees the topic, so the brokers understood who it is."""
    assert reached[way] is True


@pytest.mark.parametrize("way", WAYS)
def test_a_look_at_a_slow_listener_finds_nothing_wrong_with_right_settings(
    broker: LocalBroker, way: str, tmp_path: Path
) -> None:
    """A pasted certificate is shown as one in files is: a slow broker is waited for, and does not end the start."""
    listener, security = WAYS[way](broker, tmp_path)
    address = broker.listener(listener)
    host, _, port = address.partition(":")
    settings = Kafka(address, security=security).settings("admin", client_id="look")

    assert find_reason(host, int(port), settings) is None
    assert apis_of(host, int(port), settings)


def test_a_look_says_nothing_about_a_certificate_that_only_the_client_can_read(
    broker: LocalBroker, tmp_path: Path
) -> None:
    """One in PKCS#12: the handshake of the look has none, which the listener refuses."""
    path = broker.identities.path
    words = ["openssl", "pkcs12", "-export", "-in", path("worker.pem"), "-inkey", path("worker.key")]
    subprocess.run([*words, "-out", str(tmp_path / "both.p12"), "-passout", "pass:x"], check=True, capture_output=True)
    address = broker.listener("MUTUAL")
    host, _, port = address.partition(":")
    keystore = {"ssl.keystore.location": str(tmp_path / "both.p12"), "ssl.keystore.password": "x"}
    trusting = {"security.protocol": "ssl", "ssl.ca.location": path("ca.pem")}

    assert find_reason(host, int(port), trusting | keystore) is None
    assert isinstance(answer(Kafka(address, config=trusting | keystore)), bool)


def test_another_user_sees_nothing_without_an_acl(broker: LocalBroker) -> None:
    """By each way to log in; the administrator sees everything."""
    answers = side_by_side(
        {f"{user} {login}": broker.kafka(user, login) for user in ("sender", "admin") for login in LOGINS}
    )

    assert all(answers[f"admin {login}"] is True for login in LOGINS)
    assert all(answers[f"sender {login}"].forbidden for login in LOGINS)


@contextmanager
def tokens(broker: LocalBroker, *, status: int = 200, life_s: float = 300.0) -> Iterator[tuple[str, list[str]]]:
    """A server of tokens, its address, and what it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            login = base64.b64decode(self.headers["Authorization"].partition(" ")[2]).decode()
            asked.append(f"{login} {body}")
            right = login == "shop:se%2Fcret" and status == 200
            answer: dict[str, Any] = {"error": "invalid_client"}
            if right:
                answer = {"access_token": broker.identities.token("worker", life_s=life_s), "expires_in": life_s}
            self.send_response(200 if right else max(status, 401))
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/token", asked
        server.shutdown()


def test_a_server_of_tokens_is_asked_once_for_all_clients_of_a_process(broker: LocalBroker) -> None:
    """By client credentials. The other processors of the process, and other values with the same settings, share it."""
    with tokens(broker) as (url, asked):
        security = [Oidc(url, "shop", "se/cret", scope="kafka", tls=ca(broker)) for _ in range(4)]
        answers = side_by_side(
            {str(n): Kafka(broker.listener("LOGIN"), security=one) for n, one in enumerate(security)}
        )

    assert [*answers.values()] == [True] * 4
    assert asked == ["shop:se%2Fcret grant_type=client_credentials&scope=kafka"]


def test_a_refused_client_of_a_server_of_tokens_is_told_apart_from_a_server_that_is_away(broker: LocalBroker) -> None:
    """The first ends the start, the second may pass."""

    def asking(url: str, secret: str) -> Any:
        security = Oidc(url, "shop", secret, tls=ca(broker))
        return answer(Kafka(broker.listener("LOGIN"), security=security, start_timeout_s=2))

    with tokens(broker) as (url, _):
        wrong = asking(url, "no-secret")
    away = asking(url, "se/cret")
    with tokens(broker, status=503) as (url, _):
        busy = asking(url, "se/cret")

    assert isinstance(wrong, LoginError)
    assert "refuses the client 'shop': invalid_client (status 401)" in str(wrong)
    assert "no-secret" not in str(wrong)
    assert isinstance(away, RetriableError)
    assert "gave no token" in str(away)
    assert isinstance(busy, RetriableError)


@pytest.mark.full
def test_a_token_that_no_authority_has_signed_is_refused(broker: LocalBroker) -> None:
    """Else each process of this machine could be the administrator."""
    header, claims, _ = broker.identities.token("admin", life_s=300).split(".")
    unsigned = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    forged = {"unsigned": f"{unsigned}.{claims}.", "signed by another": f"{header}.{claims}.{claims}"}

    def options(token: str) -> Kafka:
        security = OAuthBearer(token=lambda _: (token, time.time() + 300), tls=ca(broker))
        return Kafka(broker.listener("LOGIN"), security=security, start_timeout_s=3)

    answers = side_by_side({name: options(token) for name, token in forged.items()})

    assert [type(error) for error in answers.values()] == [LoginError] * 2


WRONG: dict[str, tuple[str, Callable[[LocalBroker], Security], str]] = {
    "scram password": ("LOGIN", lambda b: Scram("worker", "wrong", tls=ca(b)), "wrong user name or password"),
    "plain password": ("LOGIN", lambda b: Plain("worker", "wrong", tls=ca(b)), "wrong user name or password"),
    "tls for a login": ("LOGIN", ca, r"is a listener for SASL_SSL with .*security=Scram\(user, password, tls=Tls"),
    "no certificate": ("MUTUAL", ca, r"wants a certificate of this client .*Tls\(certificate=..., key=...\)"),
    "login for tls": ("TLS", lambda b: Scram("worker", "x", tls=ca(b)), r"is a listener for SSL, .*security=Tls\("),
    "no tls": ("LOGIN", lambda _: Scram("worker", "x", tls=None), r"is a listener for SASL_SSL .*tls=Tls\("),
    "no authority": ("LOGIN", lambda _: Scram("worker", "x"), r"is not trusted .*Tls\(ca=...\)"),
}


@pytest.fixture(scope="module")
def refused(broker: LocalBroker) -> dict[str, Any]:
    """What each of them leads to."""
    return side_by_side(
        {
            name: Kafka(broker.listener(listener), security=security(broker), start_timeout_s=4)
            for name, (listener, security, _) in WRONG.items()
        }
    )


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_login_is_told_in_the_words_of_its_value(refused: dict[str, Any], name: str) -> None:
    """With what to write instead."""
    assert isinstance(refused[name], LoginError)
    assert re.search(WRONG[name][2], str(refused[name])), refused[name]


def test_keys_are_readable_by_their_owner_alone(broker: LocalBroker) -> None:
    """Each file of the users, and the settings of the node, which hold passwords."""
    files = [*broker.identities.directory.iterdir(), broker.directory / "node-1" / "server.properties"]

    assert {f"{user}.{kind}" for user in USERS for kind in ("key", "pem", "password", "token")} <= {
        f.name for f in files
    }
    readable = [f.name for f in files if f.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO) and f.suffix != ".pem"]
    assert readable == []
    assert broker.identities.directory.is_relative_to(broker.directory)


def tidy(order: dict[str, Any]) -> dict[str, Any]:
    """Refuse some, for the errors topic."""
    if order["n"] < 0:
        raise ValueError("negative")
    return order


@pytest.mark.full
def test_each_user_does_its_work_with_the_rights_of_the_plan(broker: LocalBroker) -> None:
    """Each logs in by another way."""
    graph = Graph(
        "secure",
        Source("secure.orders", default=True),
        processor(inputs="secure.orders", outputs="secure.clean", name="check")(tidy),
        errors="secure.errors",
        topics={f"secure.{topic}": Topic(partitions=2) for topic in ("orders", "clean")},
    )
    UserAdmin(broker.kafka("admin")).grant((f"User:{acl.role}", acl) for acl in acls_of(graph))
    with closing(KafkaBroker(broker.kafka("deployer", "plain"))) as deployer:
        deployer.create(plan(graph, deployer.facts(())).create)
    with connect(broker.kafka("sender", "tls"), graph) as sender:
        sender.send_many("secure.orders", [{"n": n} for n in (1, 2, -1)])
    with start(graph, broker.kafka("worker", "tls")) as running:
        running.wait_idle()
    with connect(broker.kafka("operator"), graph) as operator:
        assert [message.value.text for message in operator.messages("secure.errors")] == ["negative"]
    with closing(KafkaBroker(broker.kafka("verifier"))) as verifier:
        assert verify(graph, verifier).complete


def test_an_unknown_user_or_way_to_log_in_is_refused_with_those_that_there_are(broker: LocalBroker) -> None:
    """Also by `broker env`."""
    with pytest.raises(
        ConfigError, match=r"has the users admin, deployer, worker, .* by scram, plain, oauthbearer, tls"
    ):
        broker.kafka("root")
    with pytest.raises(BrokerError, match="Start it with secure=True"):
        LocalBroker().identities  # noqa: B018


def test_the_command_env_prints_settings_of_each_user_and_no_secret(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """For the shell, and as a configuration file with a profile for each user."""
    record = RunningBroker("default", broker.bootstrap, 0, str(broker.directory), (), broker.listeners)
    monkeypatch.setattr(detached, "status", lambda _: record)

    def printed(*words: str) -> str:
        result = CliRunner().invoke(app, ["broker", "env", *words])
        assert result.exit_code == (2 if "root" in words else 0), result.output
        return result.output

    shell = printed("worker", "--login", "tls")
    found = dict(line.removeprefix("export ").split("=") for line in shell.splitlines())
    assert found == {"CUES_KAFKA_FILE": broker.identities.path("tls.toml"), "CUES_KAFKA_PROFILE": "worker"}
    for login in LOGINS:
        text = printed("--toml", "--login", login)
        (tmp_path / "cues-kafka.toml").write_text(text)
        for user in USERS:
            assert load(profile=user, env={}, cwd=tmp_path).kafka() == broker.kafka(user, login)
        assert not [secret for secret in broker.identities.passwords().values() if secret in text + shell]
    assert "users admin, deployer" in printed("root")


def test_the_command_grant_creates_the_permissions_that_it_prints(
    broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only with --yes, and only for a user who may."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "granted.py").write_text(RELOADED.replace("reloaded", "granted"))

    def grant(*words: str, profile: str = "admin") -> tuple[int, str]:
        login = ["--file", broker.identities.path("scram.toml"), "--profile", profile]
        result = CliRunner().invoke(app, ["grant", f"{tmp_path / 'granted.py'}:graph", *login, *words])
        return result.exit_code, result.output

    def may_see() -> bool:
        with closing(KafkaBroker(broker.kafka("verifier"))) as client:
            try:
                return client.facts(["granted.orders"]).brokers == 1
            except BrokerError:
                return False

    code, said = grant("--role", "verifier")
    assert (code, may_see()) == (0, False)
    assert "Nothing is created without --yes" in said
    assert "kafka-acls --add --allow-principal User:verifier" in said
    assert "User:worker" not in said
    code, said = grant("--yes", profile="sender")
    assert (code, may_see()) == (1, False)
    assert "user `sender` may not alter the cluster" in said
    assert "`kafka-acls --bootstrap-server " in said
    assert "--add --allow-principal User:sender --operation Alter --cluster`" in said
    assert grant("--role", "verifier", "--yes")[0] == 0
    assert may_see()
    assert grant("--role", "boss")[0] == 2


PAGE = Path(__file__).parents[2] / "docs" / "security.md"


def test_each_row_of_the_page_has_its_test() -> None:
    """By name, in its last column; each way that is tested here has a row."""
    _, _, table = PAGE.read_text(encoding="utf-8").partition("| the cluster wants | value | test in ")
    rows = table.partition("\n\n")[0].splitlines()[2:]
    named = [re.fullmatch(r"\|.*\| `(test_\w+)(?:\[([^\]`]*)\])?` \|", row) for row in rows]

    assert [row for row, found in zip(rows, named, strict=True) if found is None or found[1] not in globals()] == []
    assert sorted(found[2] for found in named if found and found[2]) == sorted(WAYS)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_session_with_deaths_a_fault_and_a_rename_on_three_secured_brokers_by_the_page(tmp_path: Path) -> None:
    """Its lines as they stand, but for the ports, directories of this test, and a copy of the graph that they edit."""
    lines = "\n".join(re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE))
    for of_the_page, here in (("up --secure", "up --port 0 --secure"), ("/tmp/flights", f"{tmp_path}/flights")):
        lines = lines.replace(of_the_page, here)
    for folder in ("examples", "schemas"):
        shutil.copytree(PAGE.parents[1] / folder, tmp_path / folder)
    state = {"CUES_KAFKA_STATE": str(tmp_path / "state"), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    terminal, logs = tmp_path / "terminal", [tmp_path / f"flights-{name}.log" for name in ("workers", "renamed")]

    with terminal.open("wb") as out:
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", lines],
            cwd=tmp_path, env=os.environ | state, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
        try:
            code = shell.wait(560)  # two minutes on a machine without other work
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)  # the workers too, wherever the session stands
            shell.wait()
            down = ["cues-kafka", "broker", "down"]
            subprocess.run(down, env=os.environ | state, check=False, capture_output=True)
            said, workers = terminal.read_text(), "".join(log.read_text() for log in logs if log.exists())
            print(said, workers, sep="\n")

    assert code == 0
    assert said.count("500 flights sent") == 4
    assert said.count("everything is verified, nothing is wrong") == 5
    assert "punctuality/0" in said, "the status of each task"
    assert "code=-9" in workers
    assert "node 2 had ended and is started again, with its data" in said
    assert workers.count("\nreplaced: 2 workers") == 2
    assert re.search(r"clean: ValueError \(raised\)\n(.*\n)*replayed now: \d+ with outputs\n", said)
    assert "punctuality: goes on as totals" in said


def test_a_secured_rename_is_shown_with_the_rights_that_its_page_names() -> None:
    """The session above has each command of the table in docs/change.md, as the user of its row."""
    change = (PAGE.parent / "change.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+) \| (?:`(cues-kafka [^`]*)`|the `(rename)` command)", change, re.MULTILINE)
    users = {"administrator": "admin", "deployer": "deployer", "worker": "worker"}
    page = PAGE.read_text(encoding="utf-8")
    shown = page[page.index("renamed_from=") :]

    assert [user for user, *_ in rows] == [*users]
    for user, command, verb in rows:
        line = command.replace("MODULE:GRAPH", "examples.flights.graph:plain").replace("verdict", "totals")
        assert re.search(rf"^{re.escape(line or f'cues-kafka {verb}')}.* --profile {users[user]}$", shown, re.MULTILINE)


def test_a_prefix_needs_no_right_to_any_other_name(broker: LocalBroker) -> None:
    """The commands of the page, for a graph whose topics have the prefix, too."""
    page = (PAGE.parent / "plan.md").read_text(encoding="utf-8")
    commands = [line.split() for line in page.splitlines() if line.endswith("team-x. --resource-pattern-type prefixed")]
    users = UserAdmin(broker.kafka("admin"))
    for words in commands:
        operations = [words[n + 1] for n, word in enumerate(words) if word == "--operation"]
        resource: Any = words[-4].removeprefix("--")
        user, name = words[words.index("--allow-principal") + 1], words[-3]
        users.grant((user, Acl("worker", resource, "prefixed", name, operation, "")) for operation in operations)
    graph = Graph(
        "shop",
        Source("team-x.orders"),
        processor(inputs="team-x.orders", outputs="team-x.clean", name="check")(tidy),
        errors="team-x.errors",
        prefix="team-x.",
    )
    with closing(KafkaBroker(broker.kafka("deployer"))) as deployer:
        deployer.create(plan(graph, deployer.facts(())).create)
    with start(graph, broker.kafka("worker")) as running:
        running.send_many("team-x.orders", [{"n": n} for n in (1, -1)])
        running.wait_idle()
        assert [message.value for message in running.messages("team-x.clean")] == [{"n": 1}]
    assert len(commands) == 4


RELOADED = """
from cues_kafka import Graph, Processor, Source


def same(order: dict) -> dict:
    return order


check = Processor(same, inputs="reloaded.orders", outputs="reloaded.clean")
graph = Graph("reloaded", Source("reloaded.orders"), check)
"""


class Rotation(NamedTuple):
    """A login that lies in files, and what is written there in turn; each user of `users` has it for a time."""

    listener: str
    table: str
    users: tuple[str, ...]
    first: Callable[[], object]
    wrong: Callable[[], object]
    second: Callable[[], object]


def password(broker: LocalBroker, directory: Path) -> Rotation:
    """One that changes."""
    file, users = directory / "password", UserAdmin(broker.kafka("admin"))

    def give(text: str) -> None:
        users.set_passwords({"rotated": text})
        file.write_text(f"{text}\n")

    table = f'type = "scram"\nuser = "rotated"\npassword = {{file = "{file}"}}\n'
    written = (lambda: give("first"), lambda: file.write_text("wrong"), lambda: give("second"))
    return Rotation("LOGIN", table, ("rotated",), *written)


def certificate(broker: LocalBroker, directory: Path) -> Rotation:
    """That of another user follows, so that its rights show which one is used; a key that does not fit is refused."""
    files = directory / "own.pem", directory / "own.key"

    def give(user: str, key_of: str) -> None:
        for file, name in zip(files, (f"{user}.pem", f"{key_of}.key"), strict=True):
            file.write_text(read(broker, name))

    table = 'type = "tls"\ncertificate = "{}"\nkey = "{}"\n'.format(*files)
    first, second = "sender", "client"
    written = (lambda: give(first, first), lambda: give(second, first), lambda: give(second, second))
    return Rotation("MUTUAL", table, (first, second), *written)


@pytest.mark.full
@pytest.mark.parametrize(
    ("rotation", "workers"),
    [(password, ["--workers", "2"]), (certificate, [])],
    ids=["password, supervised", "certificate, alone"],
)
def test_sighup_reads_a_new_login_without_a_stop(
    broker: LocalBroker,
    tmp_path: Path,
    rotation: Callable[[LocalBroker, Path], Rotation],
    workers: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Workers are replaced one by one; a login that is refused replaces none."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    login, log = rotation(broker, tmp_path), tmp_path / "log"
    (tmp_path / "reloaded.py").write_text(RELOADED.replace("reloaded", f"reloaded-{login.listener.lower()}"))
    settings = f'[security]\nca = "{broker.identities.path("ca.pem")}"\n{login.table}'
    (tmp_path / "cues-kafka.toml").write_text(f'bootstrap = "{broker.listener(login.listener)}"\n{settings}')
    login.first()
    graph = load_graph(f"{tmp_path / 'reloaded.py'}:graph")
    users = UserAdmin(broker.kafka("admin"))
    rights = {user: [(f"User:{user}", a) for a in acls_of(graph) if a.role == "worker"] for user in login.users}
    users.grant(right for user in login.users for right in rights[user])
    with closing(KafkaBroker(broker.kafka("admin"))) as admin:
        admin.create(plan(graph, admin.facts(())).create)
        command = [sys.executable, "-m", "cues_kafka.cli.main", "run", f"{tmp_path / 'reloaded.py'}:graph", *workers]
        with log.open("wb") as out:
            running = subprocess.Popen(command, cwd=tmp_path, stdout=out, stderr=out)
        try:
            count = int(workers[1]) if workers else 1

            def told(words: str, times: int) -> None:
                until(lambda: log.read_text().count(words) >= times, f"{words!r} {times} times", 40)

            told("ready after", count)
            with connect(broker.kafka("admin"), graph) as client:
                client.send_many(f"{graph.name}.orders", [{"n": n} for n in range(20)])
                login.wrong()
                running.send_signal(signal.SIGHUP)
                told("not reloaded, the workers go on as they are", 1)
                assert log.read_text().count("ready after") == count
                login.second()
                running.send_signal(signal.SIGHUP)
                client.send_many(f"{graph.name}.orders", [{"n": n} for n in range(20, 40)])
                told("ready after", 2 * count)
                for former in login.users[:-1]:
                    revoke(users, rights[former])
                client.send_many(f"{graph.name}.orders", [{"n": n} for n in range(40, 60)])
            until(lambda: verify(graph, admin).complete, "all is delivered", 40)
            report = verify(graph, admin)
            assert (report.ok, report["same"].outputs) == (True, 60)
            running.send_signal(signal.SIGTERM)
            assert running.wait(30) == 0
        finally:
            running.kill()
            running.wait()
            print(log.read_text())


@pytest.mark.full
def test_sighup_tries_the_token_that_lies_in_the_file_now(
    broker: LocalBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The former one is valid, and in use; the worker that follows would be refused."""
    token, settings = tmp_path / "token", tmp_path / "cues-kafka.toml"
    token.write_text(read(broker, "worker.token"))
    settings.write_text(
        f'bootstrap = "{broker.listener("LOGIN")}"\nstart_timeout_s = 3\n[security]\ntype = "oauthbearer"\n'
        f'ca = "{broker.identities.path("ca.pem")}"\nfile = "{token}"\n'
    )
    in_use = answer(load(file=settings, env={}, cwd=tmp_path).kafka())

    options = RunOptions("shop:graph", file=settings)
    tried = [_may_reload(options)]
    for changed in ("no token", read(broker, "worker.token")):
        token.write_text(changed)
        tried.append(_may_reload(options))

    assert (in_use, tried) == (True, [True, False, True])
    assert "not reloaded, the workers go on as they are" in capsys.readouterr().err


def revoke(users: UserAdmin, rights: list[tuple[str, Acl]]) -> None:
    """Take rights away; each of them was there."""
    done = users._asking.client.delete_acls([_filter(_binding(*right)) for right in rights])
    assert all(len(future.result()) == 1 for future in done.values())
