"""Where settings come from: explicit > environment > profile > file > default."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cues_kafka.cli.config import CALLS, COMMIT, FILE, RUN, load
from cues_kafka.cli.main import app
from cues_kafka.cli.run_options import RunOptions
from cues_kafka.errors import ConfigError
from cues_kafka.graph.declare import CallPolicy, CommitPolicy

TOML = """
bootstrap = "file:9092"
session_timeout_s = 20
[config]
"client.dns.lookup" = "use_all_dns_ips"
[commit]
max_messages = 500
[profile.prod]
bootstrap = "prod:9092"
allow_plaintext = true
[profile.prod.config]
"sasl.password" = "secret-of-the-file"
"""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A directory with a configuration file."""
    (tmp_path / FILE).write_text(TOML)
    return tmp_path


def test_each_place_wins_over_the_ones_behind_it(written: Path) -> None:
    """Five places, one after the other taken away."""
    env = {"CUES_KAFKA_BOOTSTRAP": "env:9092", "CUES_KAFKA_PROFILE": "prod"}

    def bootstrap(explicit: str | None, env: dict[str, str], cwd: Path) -> tuple[str, str]:
        setting = load({"bootstrap": explicit}, env=env, cwd=cwd).settings["bootstrap"]
        return setting.value, setting.origin.replace(str(written), "")

    assert [
        bootstrap("given:9092", env, written),
        bootstrap(None, env, written),
        bootstrap(None, {"CUES_KAFKA_PROFILE": "prod"}, written),
        bootstrap(None, {}, written),
        bootstrap(None, {}, written.parent),
    ] == [
        ("given:9092", "--bootstrap"),
        ("env:9092", "CUES_KAFKA_BOOTSTRAP"),
        ("prod:9092", "/cues-kafka.toml [profile.prod]"),
        ("file:9092", "/cues-kafka.toml"),
        ("localhost:9092", "default"),
    ]


def test_a_profile_adds_to_the_tables_above_it(written: Path) -> None:
    """Key by key."""
    assert load(profile="prod", env={}, cwd=written)["config"] == {
        "client.dns.lookup": "use_all_dns_ips",
        "sasl.password": "secret-of-the-file",
    }


def test_settings_become_the_cluster_and_the_commit_policy(written: Path) -> None:
    """With their types: a whole number will do for seconds."""
    found = load(env={"CUES_KAFKA_BOOTSTRAP": "localhost:1", "CUES_KAFKA_COMMIT_MAX_SECONDS": "0.5"}, cwd=written)

    assert found.kafka().session_timeout_s == 20.0
    assert found.given("commit") == {"max_messages": 500, "max_seconds": 0.5}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("bootstrap = ", "is not valid TOML"),
        ("bootstrp = 'a:1'", "Did you mean 'bootstrap'"),
        ("bootstrap = 7", "takes text, not int"),
        ("session_timeout_s = 'long'", "takes a number, not str"),
        ("group_protocol = 'modern'", "Choose one of classic, consumer"),
        ("[commit]\nmax_mesages = 1", "Did you mean 'commit.max_messages'"),
        ("config = 'x'", "takes a table"),
        ("commit = 5", r"commit is a table. Write its settings below \[commit\]"),
        ("profile = 'prod'", "profiles are tables"),
        ("[profile]\nprod = 1", "profiles are tables"),
    ],
)
def test_a_wrong_file_is_named_with_the_fix(tmp_path: Path, text: str, words: str) -> None:
    """Unknown names too: a misspelt setting would be none."""
    (tmp_path / FILE).write_text(text)

    with pytest.raises(ConfigError, match=words):
        load(env={}, cwd=tmp_path)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"CUES_KAFKA_HEARTBEAT_S": "soon"}, "CUES_KAFKA_HEARTBEAT_S: write a number"),
        ({"CUES_KAFKA_ALLOW_PLAINTEXT": "maybe"}, "true or false"),
        ({"CUES_KAFKA_CONFIG": "a=b"}, "an object in JSON"),
        ({"CUES_KAFKA_CONFIG": "[1]"}, "takes a table, not list"),
        ({"CUES_KAFKA_PROFILE": "prod"}, "needs a file"),
        ({"CUES_KAFKA_FILE": "/nowhere.toml"}, "configuration file '/nowhere.toml' does not exist"),
        ({"CUES_KAFKA_LOG_LEVEL": "loud"}, "Choose one of debug"),
    ],
)
def test_a_wrong_variable_is_named_with_the_fix(tmp_path: Path, env: dict[str, str], words: str) -> None:
    """Without its value where that may be a secret."""
    with pytest.raises(ConfigError, match=words):
        load(env=env, cwd=tmp_path)


def test_an_unknown_profile_is_refused_with_those_that_there_are(written: Path) -> None:
    """Not silently the default."""
    with pytest.raises(ConfigError, match=r"no profile 'dev'. Profiles: prod"):
        load(profile="dev", env={}, cwd=written)


def test_the_command_prints_values_with_their_origin_and_no_secret(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it prints may be pasted into an issue."""
    monkeypatch.chdir(written)
    monkeypatch.setenv("CUES_KAFKA_PRODUCER", '{"ssl.key.password": "secret-of-the-environment"}')

    result = CliRunner().invoke(app, ["config", "--profile", "prod"])

    assert result.exit_code == 0, result.output
    assert '"prod:9092"' in result.output
    assert "[profile.prod]" in result.output
    assert "CUES_KAFKA_PRODUCER" in result.output
    assert "secret-of" not in result.output
    assert '"***"' in result.output


def test_an_option_is_checked_as_the_file_is(tmp_path: Path) -> None:
    """`--log-level verbose` is refused in one sentence."""
    with pytest.raises(ConfigError, match=r"--log-level: this value is unknown. Choose one of debug, info"):
        load({"log_level": "verbose"}, env={}, cwd=tmp_path)


def test_a_misspelt_variable_is_refused_and_a_strangers_is_not(tmp_path: Path) -> None:
    """A setting that is silently not taken is worse than none; Kubernetes puts variables of its own there."""
    with pytest.raises(ConfigError, match=r"not a setting. Did you mean CUES_KAFKA_SOCKET_TIMEOUT_S\?"):
        load(env={"CUES_KAFKA_SOCKET_TIMEOUT": "5"}, cwd=tmp_path)
    ours = {"CUES_KAFKA_HOME": "/x", "CUES_KAFKA_MAVEN_MIRROR": "x", "CUES_KAFKA_SERVICE_HOST": "10.0.0.1"}

    assert load(env={**ours, "CUES_KAFKA_PORT_9092_TCP": "x"}, cwd=tmp_path).kafka()


def test_settings_of_the_file_are_joined_by_single_keys_of_the_environment(written: Path) -> None:
    """As in Kubernetes: settings in a file, the password in a variable; a whole table in JSON is merged too."""
    env = {
        "CUES_KAFKA_CONFIG": '{"client.rack": "a", "sasl.username": "json"}',
        "CUES_KAFKA_CONFIG__SASL_USERNAME": "single",
        "CUES_KAFKA_PRODUCER__LINGER_MS": "7",
    }
    found = load(profile="prod", env=env, cwd=written)

    assert found["config"] == {
        "client.dns.lookup": "use_all_dns_ips",
        "sasl.password": "secret-of-the-file",
        "client.rack": "a",
        "sasl.username": "single",
    }
    assert found["producer"] == {"linger.ms": "7"}
    assert found.settings["config"].origin.endswith("CUES_KAFKA_CONFIG, CUES_KAFKA_CONFIG__SASL_USERNAME")


def test_a_key_without_quotes_is_the_setting_that_it_looks_like(tmp_path: Path) -> None:
    """TOML makes tables of its dots."""
    (tmp_path / FILE).write_text(
        '[config]\nsasl.password = "x"\nssl.ca.location = "/ca.pem"\nsasl.oauthbearer.assertion.file = "/token"\n'
    )

    assert load(env={}, cwd=tmp_path)["config"] == {
        "sasl.password": "x",
        "ssl.ca.location": "/ca.pem",
        "sasl.oauthbearer.assertion.file": "/token",
    }


def test_a_value_is_fetched_from_a_variable_or_a_mounted_file(tmp_path: Path) -> None:
    """A missing one is named, with its place."""
    secret = tmp_path / "password"
    secret.write_text("of-the-file\n")
    (tmp_path / FILE).write_text(
        f'[config]\n"sasl.username" = {{env = "WHO"}}\n"sasl.password" = {{file = "{secret}"}}\n'
    )

    assert load(env={"WHO": "me"}, cwd=tmp_path)["config"] == {"sasl.username": "me", "sasl.password": "of-the-file"}
    with pytest.raises(ConfigError, match=r"config 'sasl.username': the environment has no variable 'WHO'"):
        load(env={}, cwd=tmp_path)
    secret.unlink()
    with pytest.raises(ConfigError, match=r"password' cannot be read: No such file or directory"):
        load(env={"WHO": "me"}, cwd=tmp_path)


def test_a_variable_named_after_a_setting_of_the_client_is_refused(tmp_path: Path) -> None:
    """What people try first would do nothing, in silence."""
    with pytest.raises(ConfigError, match=r"write CUES_KAFKA_CONFIG__SASL_PASSWORD, or 'sasl.password' under"):
        load(env={"CUES_KAFKA_SASL_PASSWORD": "x"}, cwd=tmp_path)


def test_the_command_shows_the_numbers_that_the_worker_uses(tmp_path: Path) -> None:
    """The defaults of the policies, too; a call has no end unless one is given."""
    found = load(env={}, cwd=tmp_path)

    assert CommitPolicy(**{name: found[f"commit.{name}"] for name in COMMIT}) == CommitPolicy()
    assert CallPolicy(**{name: found[f"calls.{name}"] for name in CALLS}) == CallPolicy()
    assert [name for name, one in found.settings.items() if one.value is None and not name.startswith("run.")] == [
        "calls.end_seconds"
    ]
    [shown] = [line for line in CliRunner().invoke(app, ["config"]).output.splitlines() if "calls.end_" in line]
    assert shown.split() == ["calls.end_seconds", "none", "(default)"]


def test_settings_of_calls_come_from_file_and_option(tmp_path: Path) -> None:
    """The option of `run` wins."""
    (tmp_path / FILE).write_text("[calls]\nwarn_seconds = 5\nend_seconds = 30\n")

    assert load(env={}, cwd=tmp_path).given("calls") == {"warn_seconds": 5.0, "end_seconds": 30.0}
    assert load({"calls.end_seconds": 7.0}, env={}, cwd=tmp_path).given("calls")["end_seconds"] == 7.0
    with pytest.raises(ConfigError, match=r"calls.end_seconds must be more than 0 seconds, not 0"):
        CallPolicy(end_seconds=0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("url = 'http://localhost:1'\npasswrod = 'x'", "no setting 'passwrod' .did you mean 'password'"),
        ("url = 'http://localhost:1'\npassword = 'x'", "a password without a user"),
        ("user = 'x'", "has no url"),
    ],
)
def test_a_wrong_registry_is_named_with_the_fix(tmp_path: Path, text: str, words: str) -> None:
    """In the words of the file, not of the class."""
    (tmp_path / FILE).write_text(f"[registry]\n{text}")

    with pytest.raises(ConfigError, match=words):
        load(env={}, cwd=tmp_path).kafka()


def test_options_of_run_are_settings_with_the_same_names(tmp_path: Path) -> None:
    """Each option of `run` but those that name a processor, the file, or a setting at the top level or of calls."""
    others = {"bootstrap", "log_level", "log_format", "state_dir", "call_timeout"}
    chosen = {"target", "only", "without", "new", "profile", "file", "parent", "unwarned"}
    assert set(RUN) == inspect.signature(RunOptions).parameters.keys() - others - chosen
    (tmp_path / FILE).write_text('[run]\nworkers = 4\nstop_timeout = 60\n[profile.prod.run]\nhttp = "9100"\n')
    found = load({"run.workers": 2}, profile="prod", env={"CUES_KAFKA_RUN_FAIL_FAST": "yes"}, cwd=tmp_path)

    assert found.given("run") == {"workers": 2, "stop_timeout": 60.0, "http": "9100", "fail_fast": True}
    assert found.settings["run.workers"].origin == "--workers"
    (tmp_path / FILE).write_text("run = 4")
    with pytest.raises(ConfigError, match=r"run is a table. Write its settings below \[run\]"):
        load(env={}, cwd=tmp_path)


def test_variable_of_an_option_of_run_has_run_in_its_name(tmp_path: Path) -> None:
    """Without it the variable would have no effect, and no one would know."""
    with pytest.raises(
        ConfigError, match=r"CUES_KAFKA_WORKERS is not a setting\. Did you mean CUES_KAFKA_RUN_WORKERS\?"
    ):
        load(env={"CUES_KAFKA_WORKERS": "2"}, cwd=tmp_path)
    assert load(env={"CUES_KAFKA_HTTP_PORT": "tcp://10.0.0.1:80"}, cwd=tmp_path).given("run") == {}
