"""Settings of the command line: option, then ``CUES_KAFKA_*``, then ``cues-kafka.toml`` with profiles, then default.

A value in a profile replaces the value above it; tables are merged key by key::

    bootstrap = "localhost:9092"

    [commit]
    max_messages = 5000

    [registry]
    url = "https://registry:8081"
    token = {file = "/run/secrets/registry"}

    [profile.prod]
    bootstrap = "kafka-1:9093,kafka-2:9093"

    [profile.prod.security]
    type = "scram"
    user = "shop"
    password = {file = "/run/secrets/kafka"}
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from cues_kafka.brokers.options import Kafka, Registry
from cues_kafka.brokers.secrets import masked, without_user
from cues_kafka.brokers.security import Secret, security_of, shown_table
from cues_kafka.cli.options import Options
from cues_kafka.errors import ConfigError
from cues_kafka.graph.names import hint, quoted

if TYPE_CHECKING:
    from cues_kafka.plan.topics import Sides
from cues_kafka.cli.setting_values import checked_value, fetched_value, flat_table, is_mapping, parsed_value

FILE: Final = "cues-kafka.toml"

PREFIX: Final = "CUES_KAFKA_"

DEFAULT_BOOTSTRAP: Final = "localhost:9092"

COMMIT: Final = {
    "max_messages": (int, 10_000),
    "max_bytes": (int, 32 * 1024 * 1024),
    "max_seconds": (float, 1.0),
    "idle_seconds": (float, 60.0),
}
"""Type and default of each setting of `CommitPolicy`, under ``[commit]``. Copied, because its import slows `--help`; a
test compares them."""

CALLS: Final = {"warn_seconds": (float, 60.0), "end_seconds": (float, None)}
"""The same for `CallPolicy`, under ``[calls]``."""

RUN: Final = {
    "workers": (int, None),
    "instance": (str, None),
    "engine": (str, "native"),
    "master": (str, None),
    "checkpoint": (str, None),
    "trigger": (str, None),
    "standby": (bool, False),
    "max_memory": (str, None),
    "stall_timeout": (float, None),
    "stop_timeout": (float, None),
    "openlineage": (str, None),
    "spans": (float, None),
    "http": (str, None),
    "fail_fast": (bool, False),
    "require": (str, None),
}
"""Options of `run` that are settings under ``[run]``, with the same names. A test compares them."""

OTHERS: Final = ("FILE", "PROFILE", "HOME", "CACHE", "STATE", "MAVEN_MIRROR", "READY", "GO")
"""Variables of ours that are not settings."""

_TABLES: Final = ("CONFIG__", "PRODUCER__", "CONSUMER__", "REGISTRY__", "SECURITY__")
"""Prefixes of the variables for single keys of a table."""

_PLAIN: Final = ("commit", "calls", "run")
"""Tables with one setting a key."""

_OURS: Final = ("registry", "security")
"""Tables whose keys are ours, with underscores; those of the others are librdkafka's, with dots."""

_LIBRDKAFKA: Final = ("SASL_", "SSL_", "SECURITY_")
"""Prefixes of names that users mistake for our variables; to ignore one would lose a setting, often a password."""


@dataclass(frozen=True, slots=True)
class Setting:
    """
    One value and where it came from.

    Attributes:
        name: as in the file, a table's with a dot: ``commit.max_messages``.
        value: already checked.
        origin: "default", a variable, a file with its profile, or an option.
    """

    name: str
    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class Config:
    """
    All settings.

    Attributes:
        settings: by name, in a fixed order.
    """

    settings: Mapping[str, Setting]

    def kafka(self) -> Kafka:
        """
        The cluster.

        Raises:
            ConfigError: a setting contradicts the guarantee or another one.
        """
        given = {s.name: s.value for s in self.settings.values() if "." not in s.name and s.name not in _LOG}
        ours = {"registry": _registry(given["registry"]), "security": security_of(given["security"])}
        return Kafka(**{**given, **ours})

    @property
    def sides(self) -> Sides:
        """Which topics graphs have that they can work without."""
        from cues_kafka.plan.topics import Sides

        return Sides(status=self["status_every_s"] > 0, control=self["control"])

    @property
    def address(self) -> str:
        """Where the cluster is, and where that came from: ``localhost:9092 (default)``."""
        setting = self.settings["bootstrap"]
        return f"{without_user(setting.value)} ({setting.origin})"

    @property
    def named(self) -> bool:
        """Whether the user gave the address; at the default address, commands create nothing."""
        return self.settings["bootstrap"].origin != "default"

    def refuse_to_create(self, missing: str) -> ConfigError:
        """The error for missing topics (a sentence) at an address that the user did not give."""
        return ConfigError(
            f"{missing}. No cluster is named, so nothing is created at {self.address}. Name it with --bootstrap "
            f'HOST:PORT, with {PREFIX}BOOTSTRAP, or with bootstrap = "HOST:PORT" in {FILE}'
        )

    def given(self, table: str) -> dict[str, Any]:
        """What the user gave of ``[commit]``, ``[calls]`` or ``[run]``, by the name behind the dot."""
        settings = (s for s in self.settings.values() if s.name.startswith(f"{table}.") and s.origin != "default")
        return {s.name.removeprefix(f"{table}."): s.value for s in settings}

    def __getitem__(self, name: str) -> Any:
        return self.settings[name].value


def load(
    explicit: Mapping[str, Any] | None = None,
    *,
    profile: str | None = None,
    file: Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Config:
    """
    Find the value of each setting.

    Args:
        explicit: values of options, by name; None: not given.
        profile: a profile of the file; None: ``CUES_KAFKA_PROFILE``.
        file: None: ``CUES_KAFKA_FILE``, else ``cues-kafka.toml`` in the working directory if it is there.
        env: None: the environment of this process.
        cwd: None: the working directory of this process.

    Raises:
        ConfigError: the file or the profile does not exist, a variable is misspelt, or a value is unknown or has
            another type.
    """
    env = os.environ if env is None else env
    _refuse_misspelt(env)
    path = _file(file, env, cwd or Path.cwd())
    profile = profile or env.get(f"{PREFIX}PROFILE") or None
    written = _written(path, profile)
    given = {name: value for name, value in (explicit or {}).items() if value is not None}
    settings = {}
    for name, (kind, default) in _known().items():
        variable = PREFIX + name.replace(".", "_").upper()
        if name in given:
            no = "no-" if given[name] is False else ""
            option = f"--{no}{name.removeprefix('run.').replace('_', '-')}"
            setting = Setting(name, checked_value(kind, given[name], option), option)
        elif env.get(variable):
            setting = Setting(name, parsed_value(kind, env[variable], variable), variable)
        elif name in written:
            value, origin = written[name]
            setting = Setting(name, checked_value(kind, value, f"{name} in {origin}"), origin)
        else:
            setting = Setting(name, default, "default")
        settings[name] = _merged(setting, written.get(name), env) if is_mapping(kind) else setting
    return Config(settings)


_REGISTRY: Final = (
    *("url", "user", "password", "token", "ca", "certificate", "key"),
    *("timeout_s", "cache", "config", "allow_plaintext"),
)
"""The settings of ``[registry]``."""


def _registry(table: Mapping[str, Any]) -> Registry | None:
    """The registry of ``[registry]``: url, user with password, or token; files ca, certificate, key; timeout_s."""
    if not table:
        return None
    rest = dict(table)
    tls: dict[str, str] = {name: str(rest.pop(name)) for name in ("ca", "certificate", "key") if name in rest}
    user, token = rest.pop("user", None), rest.pop("token", None)
    auth = token if user is None else (str(user), str(rest.pop("password", "")))
    if unknown := sorted(rest.keys() - set(_REGISTRY)):
        raise ConfigError(
            f"[registry] has no setting {unknown[0]!r}{hint(unknown[0], _REGISTRY)}. Known: {quoted(_REGISTRY)}."
        )
    if "url" not in rest:
        raise ConfigError('[registry] has no url. Add url = "https://registry:8081".')
    if "password" in rest:
        raise ConfigError("[registry] has a password without a user. Add user, or write a token instead.")
    return Registry(auth=auth, tls=tls, **rest)


_LOG: Final[dict[str, tuple[Any, Any]]] = {
    "log_level": (Literal["debug", "info", "warning", "error"], "info"),
    "log_format": (Literal["console", "json"], "console"),
}
"""Settings of `run` about its log: type and default."""


def _known() -> dict[str, tuple[Any, Any]]:
    """Type and default of each setting."""
    hints = typing.get_type_hints(Kafka)
    known: dict[str, tuple[Any, Any]] = {}
    for field in dataclasses.fields(Kafka):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        known[field.name] = hints[field.name], DEFAULT_BOOTSTRAP if default is dataclasses.MISSING else default
    known |= {table: (Mapping[str, Any], {}) for table in _OURS}
    for table, settings in (("commit", COMMIT), ("calls", CALLS), ("run", RUN)):
        known |= {f"{table}.{name}": kind_and_default for name, kind_and_default in settings.items()}
    known |= _LOG
    return known


def _merged(setting: Setting, written: tuple[Any, str] | None, env: Mapping[str, str]) -> Setting:
    """A table from the file, its variable and the variables of single keys; the later place wins."""
    found: dict[str, Any] = {}
    origins = []
    variable = PREFIX + setting.name.upper()
    if written is not None:
        found |= flat_table(checked_value(dict, written[0], f"{setting.name} in {written[1]}"))
        origins.append(written[1])
    if setting.origin not in ("default", *origins):
        found |= flat_table(setting.value)
        origins.append(setting.origin)
    for single in sorted(env):
        key = single.removeprefix(f"{variable}__")
        if key != single and key:
            found[key.lower() if setting.name in _OURS else key.lower().replace("_", ".")] = env[single]
            origins.append(single)
    fetched = {key: fetched_value(value, f"{setting.name} {key!r}", env) for key, value in found.items()}
    if setting.name == "security":  # a secret in a file or variable stays there, and each new client reads it again
        places = {key: value for key, value in found.items() if isinstance(value, Mapping)}
        fetched |= {key: Secret(**place) for key, place in places.items() if "file" in place or env is os.environ}
    return Setting(setting.name, fetched, ", ".join(origins) or "default")


def _refuse_misspelt(env: Mapping[str, str]) -> None:
    """Refuse names close to ours, and no others: Kubernetes sets variables that begin with a service's name."""
    known = [*(name.replace(".", "_").upper() for name in _known()), *OTHERS]
    for variable in sorted(env):
        name = variable.removeprefix(PREFIX)
        if name == variable or name in known or name.startswith(_TABLES):
            continue
        if name.startswith(_LIBRDKAFKA):
            key = name.lower().replace("_", ".")
            raise ConfigError(
                f"{variable} is not a setting, and has no effect. {key} is a setting of librdkafka: write "
                f"{PREFIX}CONFIG__{name}, or {key!r} under [config] in {FILE}."
            )
        if f"RUN_{name}" in known:  # no service of Kubernetes makes such a name: those end with HOST, PORT and the like
            raise ConfigError(f"{variable} is not a setting. Did you mean {PREFIX}RUN_{name}?")
        if near := difflib.get_close_matches(name, known, n=1, cutoff=0.8):
            raise ConfigError(f"{variable} is not a setting. Did you mean {PREFIX}{near[0]}?")


def _file(file: Path | None, env: Mapping[str, str], cwd: Path) -> Path | None:
    named = file or (Path(env[f"{PREFIX}FILE"]) if env.get(f"{PREFIX}FILE") else None)
    if named is None:
        usual = cwd / FILE
        return usual if usual.is_file() else None
    if not named.is_file():
        raise ConfigError(
            f"the configuration file {str(named)!r} does not exist. Name another with --file, or leave it out."
        )
    return named


def _written(path: Path | None, profile: str | None) -> dict[str, tuple[Any, str]]:
    """Values in the file, each with its place."""
    if path is None:
        if profile:
            raise ConfigError(
                f"profile {profile!r} needs a file, and {FILE} does not exist here. Name one with --file."
            )
        return {}
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}. Let this user read it, or name another.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    profiles = data.pop("profile", {})
    if not isinstance(profiles, dict) or not all(isinstance(one, dict) for one in profiles.values()):
        raise ConfigError(f"{path}: profiles are tables. Write the settings of one below [profile.NAME].")
    if profile and profile not in profiles:
        raise ConfigError(f"{path} has no profile {profile!r}. Profiles: {', '.join(sorted(profiles)) or 'none'}.")
    found = _flat(data, str(path))
    if profile:
        own = _flat(profiles[profile], f"{path} [profile.{profile}]")
        for name, (value, origin) in own.items():
            below = found[name][0] if name in found else None
            merged = {**below, **value} if isinstance(below, dict) and isinstance(value, dict) else value
            found[name] = merged, origin
    return found


def _flat(table: Mapping[str, Any], origin: str) -> dict[str, tuple[Any, str]]:
    known = _known()
    found = {}
    for key, value in table.items():
        if key in _PLAIN and not isinstance(value, Mapping):
            raise ConfigError(f"{origin}: {key} is a table. Write its settings below [{key}].")
        inner = {f"{key}.{k}": v for k, v in value.items()} if key in _PLAIN else {key: value}
        for name, one in inner.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(known)}, and [profile.NAME]."
                raise ConfigError(f"{origin}: {name!r} is not a setting. {hint}")
            found[name] = one, origin
    return found


Bootstrap = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Brokers to connect to, separated by commas.")]

Profile = Annotated[str | None, typer.Option(metavar="NAME", help=f"Profile of {FILE} to use.")]

File = Annotated[Path | None, typer.Option("--file", metavar="PATH", help=f"Configuration file [default: ./{FILE}].")]


@dataclass(frozen=True, slots=True)
class ClusterOptions(Options):
    """The options that say where the cluster is, and how to connect to it."""

    bootstrap: Bootstrap = None
    profile: Profile = None
    file: File = None

    def load(self) -> Config:
        """All settings; see `load`."""
        return load({"bootstrap": self.bootstrap}, profile=self.profile, file=self.file)

    def kafka(self) -> Kafka:
        """The cluster; see `Config.kafka`."""
        return self.load().kafka()


def config(cluster: ClusterOptions) -> None:
    """
    Print each setting and where it came from.

    Secrets are masked.
    """
    found = cluster.load()
    width = max(map(len, found.settings))
    for name, setting in found.settings.items():
        match setting.value:
            case None:
                shown = "none"
            case dict():
                shown = json.dumps((shown_table if name == "security" else masked)(setting.value))
            case str():
                shown = json.dumps(without_user(setting.value))
            case _:
                shown = json.dumps(setting.value)
        typer.echo(f"{name:{width}}  {shown}  ({setting.origin})")
    found.kafka()  # reports settings that contradict each other, after all of them are printed


epilog = """
\b
Examples:
  cues-kafka config
  CUES_KAFKA_BOOTSTRAP=kafka:9092 cues-kafka config --profile prod

An option wins over a CUES_KAFKA_* variable, a variable over the file, and the file over the default.
"""
