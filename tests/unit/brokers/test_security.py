"""`Kafka(security=...)`: the settings that each value stands for, what is refused, and what is never shown."""

from __future__ import annotations

import base64
import json
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cues_kafka import ConfigError, Kafka, OAuthBearer, Oidc, Plain, Scram, Secret, Tls
from cues_kafka.brokers.security import Security, security_of
from cues_kafka.brokers.token_sources import ClientCredentials, TokenFile, end_of
from cues_kafka.brokers.tokens import portable, tokens_of
from cues_kafka.cli.config import FILE, load
from cues_kafka.cli.main import app
from cues_kafka.errors import LoginError

HERE = "127.0.0.1:1"
CANARY = "canary-6f1d"
PEM = f"-----BEGIN CERTIFICATE-----\n{CANARY}\n-----END CERTIFICATE-----"
KEY = f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----"


def give(_: str | None) -> tuple[str, float]:
    """A token."""
    return "token", time.time() + 60


MADE: list[tuple[Security, dict[str, Any]]] = [
    (Tls(), {"security.protocol": "SSL"}),
    (
        Tls(ca=Path("/a/ca.pem"), certificate="/a/me.pem", key="/a/me.key", key_password=CANARY),
        {
            "security.protocol": "SSL",
            "ssl.ca.location": "/a/ca.pem",
            "ssl.certificate.location": "/a/me.pem",
            "ssl.key.location": "/a/me.key",
            "ssl.key.password": CANARY,
        },
    ),
    (
        Tls(ca=PEM, certificate=PEM, key=KEY),
        {"security.protocol": "SSL", "ssl.ca.pem": PEM, "ssl.certificate.pem": PEM, "ssl.key.pem": KEY},
    ),
    (
        Plain("me", CANARY, tls=None),
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "me",
            "sasl.password": CANARY,
        },
    ),
    (
        Scram("me", CANARY, mechanism="SCRAM-SHA-256", tls=Tls(ca="/a/ca.pem")),
        {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": "/a/ca.pem",
            "sasl.mechanisms": "SCRAM-SHA-256",
            "sasl.username": "me",
            "sasl.password": CANARY,
        },
    ),
    (
        OAuthBearer(token=give),
        {"security.protocol": "SASL_SSL", "sasl.mechanisms": "OAUTHBEARER", "oauth_cb": give},
    ),
    (
        OAuthBearer(file="/run/token"),
        {"security.protocol": "SASL_SSL", "sasl.mechanisms": "OAUTHBEARER", "oauth_cb": TokenFile("/run/token")},
    ),
    (
        Oidc("https://id.example/token", "shop", CANARY, scope="kafka"),
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "OAUTHBEARER",
            "oauth_cb": ClientCredentials("https://id.example/token", "shop", CANARY, "kafka", ""),
        },
    ),
    (
        Oidc("https://id.example/token", "shop", CANARY, extensions={"logicalCluster": "lkc-1", "identityPoolId": "p"}),
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "OAUTHBEARER",
            "oauth_cb": ClientCredentials(
                "https://id.example/token", "shop", CANARY, "", "", "logicalCluster=lkc-1,identityPoolId=p"
            ),
        },
    ),
    (
        OAuthBearer(file="/run/token", extensions="logicalCluster=lkc-1"),
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "OAUTHBEARER",
            "oauth_cb": TokenFile("/run/token", "logicalCluster=lkc-1"),
        },
    ),
]


@pytest.mark.parametrize(("security", "settings"), MADE, ids=lambda value: type(value).__name__)
def test_each_value_stands_for_settings_of_the_client(security: Security, settings: dict[str, Any]) -> None:
    """They reach every client, beside `config`."""
    options = Kafka(HERE, security=security, config={"client.rack": "a"})

    assert options.common() == {**settings, "client.rack": "a"}
    assert options.settings("session", client_id="x").items() >= settings.items()


@pytest.mark.parametrize("security", [security for security, _ in MADE], ids=repr)
def test_no_text_shows_a_secret(security: Security) -> None:
    """Neither of the value nor of the cluster, nor what the client says with it."""
    options = Kafka(HERE, security=security)

    assert CANARY not in repr(security) + repr(options) + str(options)
    assert CANARY not in repr(security.settings().get("oauth_cb"))
    assert CANARY not in options.scrubbed(f"refused: {CANARY} was wrong") or "sasl.password" not in security.settings()


WRONG: list[tuple[Any, str]] = [
    (lambda: Tls(certificate="/a.pem"), r"Tls\(certificate=...\) needs key=..., too"),
    (lambda: Tls(key="/a.key"), r"Tls\(key=...\) needs certificate="),
    (lambda: Tls(key_password="x"), "is the password of a key. Give key= and certificate="),
    (lambda: Tls(ca=KEY), "has no CERTIFICATE in its text"),
    (lambda: Tls(certificate=PEM, key=PEM), "has no PRIVATE KEY in its text"),
    (lambda: Plain("", "x"), "empty user"),
    (lambda: Scram("me", ""), "empty password"),
    (lambda: Scram("me", "x", mechanism="SHA-512"), "is SCRAM-SHA-512 or SCRAM-SHA-256"),  # type: ignore[arg-type]
    (lambda: Scram("me", "x", tls=True), r"takes Tls\(...\), or None"),  # type: ignore[arg-type]
    (OAuthBearer, "either token=function or file="),
    (lambda: OAuthBearer(token=give, file="/x"), "either token=function or file="),
    (lambda: OAuthBearer(token="eyJhbGciOi"), "'module:function', no token"),
    (lambda: Oidc("id.example", "a", "b"), "write https://host/path/token"),
    (lambda: Oidc("http://id.example/token", "a", "b"), "over the network unencrypted: use https"),
    (lambda: Oidc("https://a:b@id.example/token", "a", "b"), "write it as client_id="),
    (lambda: Oidc("https://id.example/token", "", "b"), "empty client_id"),
    (lambda: Oidc("https://id.example/token", "a", "b", extensions="pool"), "cannot send 'pool': write name=value"),
    (lambda: Oidc("https://id.example/token", "a", "b", extensions={"auth": "x"}), "letters other than auth"),
    (lambda: Oidc("https://id.example/token", "a", "b", extensions={"a": "x,y"}), "without blanks and commas"),
    (lambda: OAuthBearer(file="/run/token", extensions="a-b=c"), "cannot send 'a-b=c'"),
    (lambda: OAuthBearer(token=give, extensions="a=b"), "Return extensions from the function"),
    (Secret, "either env='VARIABLE' or file='PATH'"),
    (lambda: Kafka(HERE, security="scram"), r"security= takes Tls\(...\), Plain"),  # type: ignore[arg-type]
    (lambda: Kafka(HERE, security=Tls(), oauth="a:b"), r"Write security=OAuthBearer"),
    (
        lambda: Kafka(HERE, security=Scram("me", "x"), config={"sasl.password": "y"}),
        "'sasl.password': ...} and security=Scram.* Leave out one",
    ),
    (
        lambda: Kafka(HERE, security=Tls(), producer={"security.protocol": "PLAINTEXT"}),
        "producer={'security.protocol': ...} and security=Tls",
    ),
    (
        lambda: Kafka("kafka.example:9092", security=Plain("me", "x", tls=None)),
        r"another machine: all data, including passwords.*Set security=Tls",
    ),
]


@pytest.mark.parametrize(("make", "said"), WRONG, ids=[said[:50] for _, said in WRONG])
def test_a_wrong_value_is_refused_with_what_to_write(make: Any, said: str) -> None:
    """When it is made, before any client is."""
    with pytest.raises(ConfigError, match=said):
        make()


def test_a_secret_is_read_each_time_a_client_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a new password needs no other value; a place that is empty is named when a client needs it."""
    file = tmp_path / "password"
    options = Kafka(HERE, security=Scram("me", Secret(file=str(file)), tls=Tls(ca=Secret(env="AUTHORITY"))))
    monkeypatch.setenv("AUTHORITY", PEM)
    with pytest.raises(ConfigError, match=r"the file '.*password' cannot be read: No such file"):
        options.settings("admin", client_id="x")
    file.write_text("first\n")
    assert options.settings("admin", client_id="x")["sasl.password"] == "first"
    file.write_text("second")
    settings = options.settings("admin", client_id="x")
    assert (settings["sasl.password"], settings["ssl.ca.pem"]) == ("second", PEM)
    for secret in ("first", "second"):
        assert options.scrubbed(f"refused: {secret}") == "refused: ***", "a client that has the old one may name it"
    file.unlink()
    assert options.scrubbed("refused: second") == "refused: ***", "an error is told, also without the file"
    file.write_text("second")
    monkeypatch.delenv("AUTHORITY")
    with pytest.raises(ConfigError, match="no variable 'AUTHORITY'"):
        options.settings("admin", client_id="x")


def test_options_that_travel_hold_secrets_and_one_function_of_tokens(tmp_path: Path) -> None:
    """The processes of Spark have neither the files nor the variables of the driver."""
    (tmp_path / "password").write_text(CANARY)
    found = portable(Kafka(HERE, security=Scram("me", Secret(file=str(tmp_path / "password")))))
    assert found.security == Scram("me", CANARY)
    named = portable(Kafka(HERE, security=OAuthBearer(token=f"{__name__}:give")))
    assert named.common()["oauth_cb"] is tokens_of(f"{__name__}:give")
    assert pickle.loads(pickle.dumps(named)).security.token("x")[0] == "token"
    asked = Kafka(HERE, security=Oidc("https://id.example/token", "shop", CANARY))
    there = pickle.loads(pickle.dumps(portable(asked)))
    assert tokens_of(there.common()["oauth_cb"]) is tokens_of(asked.common()["oauth_cb"])


def jwt(**claims: Any) -> str:
    """A token whose signature says nothing."""
    parts = [{"alg": "none"}, claims]
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + ".x"


def test_a_token_in_a_file_ends_when_it_says_so(tmp_path: Path) -> None:
    """It is read again for the next one; what holds none says what is missing."""
    file = tmp_path / "token"
    file.write_text(jwt(sub="me", exp=2_000_000_000) + "\n")

    source = TokenFile(str(file))
    assert source(None) == (jwt(sub="me", exp=2_000_000_000), 2_000_000_000.0)
    extended = TokenFile(str(file), "logicalCluster=lkc-1,identityPoolId=p=1")
    assert extended(None) == (*source(None), "", {"logicalCluster": "lkc-1", "identityPoolId": "p=1"})
    for text in ("", "no-token", "a.b.c", jwt(sub="me")):
        file.write_text(text)
        with pytest.raises(LoginError, match="no signed token"):
            source(None)
    file.unlink()
    with pytest.raises(LoginError, match="cannot be read: No such file"):
        tokens_of(source)(None)
    assert end_of("") is None


TABLES: list[tuple[str, Security]] = [
    ('type = "tls"\nca = "/a/ca.pem"', Tls(ca="/a/ca.pem")),
    (
        'type = "tls"\nca = "/a/ca.pem"\ncertificate = "/a/me.pem"\nkey = "/a/me.key"',
        Tls(ca="/a/ca.pem", certificate="/a/me.pem", key="/a/me.key"),
    ),
    ('type = "plain"\nuser = "me"\npassword = "x"\ntls = false', Plain("me", "x", tls=None)),
    (
        'type = "scram"\nuser = "me"\npassword = "x"\nmechanism = "SCRAM-SHA-256"\nca = "/a/ca.pem"',
        Scram("me", "x", mechanism="SCRAM-SHA-256", tls=Tls(ca="/a/ca.pem")),
    ),
    ('type = "oauthbearer"\ntoken = "app.tokens:give"', OAuthBearer(token="app.tokens:give")),
    ('type = "oauthbearer"\nfile = "/run/token"', OAuthBearer(file="/run/token")),
    (
        'type = "oauthbearer"\nfile = "/run/token"\nextensions = "a=b, c=d"',
        OAuthBearer(file="/run/token", extensions={"a": "b", "c": "d"}),
    ),
    (
        'type = "oidc"\nurl = "https://id/token"\nclient_id = "a"\nclient_secret = "b"\nca = "/a/ca.pem"',
        Oidc("https://id/token", "a", "b", ca="/a/ca.pem", tls=Tls(ca="/a/ca.pem")),
    ),
]


@pytest.mark.parametrize(("text", "security"), TABLES, ids=lambda value: repr(value)[:60])
def test_a_table_of_the_configuration_is_the_same_value(tmp_path: Path, text: str, security: Security) -> None:
    """Each type, with the certificates beside it."""
    (tmp_path / FILE).write_text(f'bootstrap = "{HERE}"\n[security]\n{text}\n')

    assert load(env={}, cwd=tmp_path).kafka().security == security


def test_the_environment_sets_single_keys_of_the_table(tmp_path: Path) -> None:
    """With underscores, as in the file."""
    (tmp_path / FILE).write_text('[security]\ntype = "tls"\ncertificate = "/a/me.pem"\nkey = "/a/me.key"\n')
    env = {"CUES_KAFKA_SECURITY__KEY_PASSWORD": CANARY, "CUES_KAFKA_SECURITY__CA": "/b/ca.pem"}

    found = load(env=env, cwd=tmp_path).kafka().security

    assert found == Tls(ca="/b/ca.pem", certificate="/a/me.pem", key="/a/me.key", key_password=CANARY)
    whole = {"CUES_KAFKA_SECURITY": '{"type": "scram", "user": "me", "password": "x"}'}
    assert load(env=whole, cwd=tmp_path / "..").kafka().security == Scram("me", "x")


def test_a_secret_in_a_file_stays_there_and_is_missed_at_once(tmp_path: Path) -> None:
    """A new client reads it again, so a mounted secret may change."""
    secret = tmp_path / "password"
    (tmp_path / FILE).write_text(f'[security]\ntype = "scram"\nuser = "me"\npassword = {{file = "{secret}"}}\n')
    with pytest.raises(ConfigError, match=r"security 'password': the file '.*password' cannot be read"):
        load(env={}, cwd=tmp_path)
    secret.write_text(CANARY)

    assert load(env={}, cwd=tmp_path).kafka().security == Scram("me", Secret(file=str(secret)))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"user": "me"}, "needs a type, one of 'tls', 'plain', 'scram', 'oauthbearer', 'oidc'"),
        ({"type": "scran"}, "did you mean 'scram'"),
        ({"type": "scram", "user": "me"}, "lacks password"),
        ({"type": "scram", "user": "me", "pasword": "x"}, "no setting 'pasword' \\(did you mean 'password'"),
        ({"type": "oidc", "url": "https://x/t", "client_id": "a"}, "lacks client_secret"),
        ({"type": "plain", "user": "me", "password": "x", "tls": False, "ca": "/x"}, "tls = false and certificates"),
        ({"type": "tls", "password": "x"}, "no setting 'password'"),
    ],
    ids=str,
)
def test_a_wrong_table_is_named_with_the_fix(table: dict[str, Any], said: str) -> None:
    """Before anything connects."""
    with pytest.raises(ConfigError, match=said):
        security_of(table)


def test_the_command_config_masks_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names, files and types are shown; passwords and pasted keys are not."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / FILE).write_text(
        f'bootstrap = "{HERE}"\n[security]\ntype = "tls"\nca = "/a/ca.pem"\nkey_password = "{CANARY}"\n'
        f'certificate = """{PEM}"""\nkey = """{KEY}"""\n'
    )

    result = CliRunner().invoke(app, ["config"])

    assert result.exit_code == 0, result.output
    assert CANARY not in result.output
    assert '"ca": "/a/ca.pem"' in result.output
