"""Configuration of the command line: explicit > ``CUES_KAFKA_*`` > ``cues-kafka.toml`` with profiles > default.

The one place where that order is. A file looks like this; what a profile gives wins over what stands above it::

    bootstrap = "localhost:9092"

    [commit]
    max_messages = 5000

    [profile.prod]
    bootstrap = "kafka-1:9093,kafka-2:9093"

    [profile.prod.config]
    "security.protocol" = "SASL_SSL"
    "sasl.password" = {file = "/run/secrets/kafka"}

Tables are merged key by key: what a variable gives of ``[config]`` wins, and the rest stays.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import tomllib
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from cues_kafka.brokers.options import Kafka
from cues_kafka.brokers.secrets import HARMLESS, masked, without_user
from cues_kafka.errors import ConfigError

FILE: Final = "cues-kafka.toml"
PREFIX: Final = "CUES_KAFKA_"
DEFAULT_BOOTSTRAP: Final = "localhost:9092"

COMMIT: Final = {
    "max_messages": (int, 10_000),
    "max_bytes": (int, 32 * 1024 * 1024),
    "max_seconds": (float, 1.0),
    "idle_seconds": (float, 60.0),
}
"""Settings of `CommitPolicy` and their defaults, under ``[commit]``; not imported from there, to keep `--help` fast. A
test compares them."""

CALLS: Final = {"warn_seconds": (float, 60.0), "end_seconds": (float, None)}
"""Settings of `CallPolicy` and their defaults, under ``[calls]``."""

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class Setting:
    """
    One value, and where it came from.

    Attributes:
        name: as in the file, a table's with a dot: ``commit.max_messages``.
        value: of its type.
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
        file: the file that was read; None: there is none.
        profile: the profile that was chosen.
    """

    settings: Mapping[str, Setting]
    file: Path | None
    profile: str | None

    def kafka(self) -> Kafka:
        """
        The cluster.

        Raises:
            ConfigError: a setting contradicts the guarantee or another one.
        """
        return Kafka(**{s.name: s.value for s in self.settings.values() if "." not in s.name and s.name != "log_level"})

    @property
    def address(self) -> str:
        """The address of the cluster, and where it came from: ``localhost:9092 (default)``."""
        setting = self.settings["bootstrap"]
        return f"{without_user(setting.value)} ({setting.origin})"

    @property
    def named(self) -> bool:
        """Whether a user gave the address. Commands create nothing on a cluster that only listens at the default."""
        return self.settings["bootstrap"].origin != "default"

    def refuse_to_create(self, missing: str) -> ConfigError:
        """
        The refusal to create topics at the default address.

        Args:
            missing: which topics, as a sentence.
        """
        return ConfigError(
            f"{missing}. No cluster is named, so nothing is created at {self.address}. Name it with --bootstrap "
            f'HOST:PORT, with {PREFIX}BOOTSTRAP, or with bootstrap = "HOST:PORT" in {FILE}'
        )

    def commit(self) -> dict[str, Any]:
        """Arguments of `CommitPolicy` that were given."""
        return self._table("commit.")

    def calls(self) -> dict[str, Any]:
        """Arguments of `CallPolicy` that were given."""
        return self._table("calls.")

    def _table(self, prefix: str) -> dict[str, Any]:
        given = (s for s in self.settings.values() if s.name.startswith(prefix) and s.origin != "default")
        return {s.name.removeprefix(prefix): s.value for s in given}

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
    Settle every setting.

    Args:
        explicit: by name, from options of the command line; None means not given.
        profile: of the file; None: ``CUES_KAFKA_PROFILE``, else none.
        file: None: ``CUES_KAFKA_FILE``, else ``cues-kafka.toml`` in the working directory, where it is.
        env: None: this process's.
        cwd: None: this process's.

    Raises:
        ConfigError: the file or the profile is not there, a variable is misspelt, or a value is unknown or of another
            type.
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
            option = f"--{name.replace('_', '-')}"
            setting = Setting(name, _check(kind, given[name], option), option)
        elif env.get(variable):
            setting = Setting(name, _parse(kind, env[variable], variable), variable)
        elif name in written:
            value, origin = written[name]
            setting = Setting(name, _check(kind, value, f"{name} in {origin}"), origin)
        else:
            setting = Setting(name, default, "default")
        settings[name] = _merged(setting, written.get(name), env) if _is_mapping(kind) else setting
    return Config(settings, path, profile)


def _known() -> dict[str, tuple[Any, Any]]:
    """Type and default of every setting."""
    hints = typing.get_type_hints(Kafka)
    known: dict[str, tuple[Any, Any]] = {}
    for field in dataclasses.fields(Kafka):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        known[field.name] = hints[field.name], DEFAULT_BOOTSTRAP if default is dataclasses.MISSING else default
    known |= {f"commit.{name}": of for name, of in COMMIT.items()}
    known |= {f"calls.{name}": of for name, of in CALLS.items()}
    known["log_level"] = Literal["debug", "info", "warning", "error"], "info"
    return known


def _merged(setting: Setting, written: tuple[Any, str] | None, env: Mapping[str, str]) -> Setting:
    """A table with what stands in the file, in its variable, and in variables for single keys, the last winning."""
    found: dict[str, Any] = {}
    origins = []
    variable = PREFIX + setting.name.upper()
    if written is not None:
        found |= _flattened(_check(dict, written[0], f"{setting.name} in {written[1]}"))
        origins.append(written[1])
    if setting.origin not in ("default", *origins):
        found |= _flattened(setting.value)
        origins.append(setting.origin)
    for single in sorted(env):
        key = single.removeprefix(f"{variable}__")
        if key != single and key:
            found[key.lower().replace("_", ".")] = env[single]
            origins.append(single)
    settled = {key: _settled(value, f"{setting.name} {key!r}", env) for key, value in found.items()}
    return Setting(setting.name, settled, ", ".join(origins) or "default")


def _flattened(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Without quotes, `sasl.password = "x"` is a table in a table for TOML: its keys are joined by dots again."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        name = prefix + key
        if isinstance(value, Mapping) and not _refers(name, value):
            found |= _flattened(value, f"{name}.")
        else:
            found[name] = value
    return found


def _refers(name: str, value: Mapping[str, Any]) -> bool:
    """Whether a table is `{env = ...}` or `{file = ...}`, and not the rest of a name: there are keys like `x.file`."""
    return len(value) == 1 and bool(value.keys() & {"env", "file"}) and f"{name}.{next(iter(value))}" not in HARMLESS


def _settled(value: Any, what: str, env: Mapping[str, str]) -> Any:
    """The value, fetched where it is said to be."""
    if not isinstance(value, Mapping):
        return value
    ((kind, place),) = value.items()
    if kind == "env":
        if place not in env:
            raise ConfigError(f"{what}: the environment has no variable {place!r}. Set it, or give another place.")
        return env[place]
    try:
        return Path(str(place)).read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(
            f"{what}: the file {str(place)!r} cannot be read: {why}. Mount it, or name another."
        ) from None


OTHERS: Final = ("FILE", "PROFILE", "HOME", "CACHE", "STATE", "MAVEN_MIRROR")
"""Variables of ours that are no settings."""


_TABLES: Final = ("CONFIG__", "PRODUCER__", "CONSUMER__")
"""Begin the variables for single keys of a table."""

_LIBRDKAFKA: Final = ("SASL_", "SSL_", "SECURITY_")
"""Beginnings of names that users mistake for our variables; ignored, a setting, often a password, would be lost."""


def _refuse_misspelt(env: Mapping[str, str]) -> None:
    """Only what is near a name of ours: others may put variables there too, as Kubernetes does for a service's name."""
    known = [*(name.replace(".", "_").upper() for name in _known()), *OTHERS]
    for variable in sorted(env):
        name = variable.removeprefix(PREFIX)
        if name == variable or name in known or name.startswith(_TABLES):
            continue
        if name.startswith(_LIBRDKAFKA):
            key = name.lower().replace("_", ".")
            raise ConfigError(
                f"{variable} is no setting, and would do nothing. {key} is a setting of librdkafka: write "
                f"{PREFIX}CONFIG__{name}, or {key!r} under [config] in {FILE}."
            )
        if near := difflib.get_close_matches(name, known, n=1, cutoff=0.8):
            raise ConfigError(f"{variable} is no setting. Did you mean {PREFIX}{near[0]}?")


def _file(file: Path | None, env: Mapping[str, str], cwd: Path) -> Path | None:
    named = file or (Path(env[f"{PREFIX}FILE"]) if env.get(f"{PREFIX}FILE") else None)
    if named is None:
        usual = cwd / FILE
        return usual if usual.is_file() else None
    if not named.is_file():
        raise ConfigError(f"there is no configuration file {str(named)!r}. Name another with --file, or leave it out.")
    return named


def _written(path: Path | None, profile: str | None) -> dict[str, tuple[Any, str]]:
    """Values in the file, with where in it."""
    if path is None:
        if profile:
            raise ConfigError(f"profile {profile!r} needs a file {FILE}, and there is none here. Name one with --file.")
        return {}
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no TOML: {error}") from None
    profiles = data.pop("profile", {})
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
        inner = {f"{key}.{k}": v for k, v in value.items()} if key in ("commit", "calls") else {key: value}
        for name, one in inner.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(known)}, and [profile.NAME]."
                raise ConfigError(f"{origin}: {name!r} is no setting. {hint}")
            found[name] = one, origin
    return found


def _parse(kind: Any, text: str, variable: str) -> Any:
    """A value from an environment variable."""
    if kind is bool:
        if text.lower() not in (*_TRUE, *_FALSE):
            raise ConfigError(f"{variable}: write true or false.")
        return text.lower() in _TRUE
    readers: dict[Any, Callable[[str], Any]] = {int: int, float: float}
    try:
        value = json.loads(text) if _is_mapping(kind) else readers.get(kind, str)(text)
    except ValueError:
        wanted = 'an object in JSON, such as {"security.protocol": "SSL"}' if _is_mapping(kind) else "a number"
        raise ConfigError(f"{variable}: {wanted} is needed.") from None  # without the value: it may hold a secret
    return _check(kind, value, variable)


def _check(kind: Any, value: Any, what: str) -> Any:
    """A value of the right type; whole numbers will do for others."""
    allowed: tuple[Any, ...] = typing.get_args(kind) if typing.get_origin(kind) is Literal else ()
    if allowed:
        if value not in allowed:
            raise ConfigError(f"{what}: this value is not known. Choose one of {', '.join(map(str, allowed))}.")
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    wanted = dict if _is_mapping(kind) else kind
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise ConfigError(f"{what}: takes {_words(wanted)}, not {type(value).__name__}.")
    return value


def _words(kind: type) -> str:
    return {dict: "a table", bool: "true or false", int: "a whole number", float: "a number", str: "text"}[kind]


def _is_mapping(kind: Any) -> bool:
    return typing.get_origin(kind) in (dict, Mapping, types.MappingProxyType)


Bootstrap = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Brokers to connect to, separated by commas.")]
Profile = Annotated[str | None, typer.Option(metavar="NAME", help=f"Profile of {FILE} to use.")]
File = Annotated[Path | None, typer.Option("--file", metavar="PATH", help=f"Configuration file [default: ./{FILE}].")]

New = Annotated[
    list[str] | None,
    typer.Option("--new", metavar="NAME", help="This processor is new, not another one renamed; repeatable."),
]


def config(bootstrap: Bootstrap = None, profile: Profile = None, file: File = None) -> None:
    """
    Print every setting and where it came from.

    Secrets are masked.
    """
    found = load({"bootstrap": bootstrap}, profile=profile, file=file)
    width = max(map(len, found.settings))
    for setting in found.settings.values():
        shown = masked(setting.value) if isinstance(setting.value, dict) else _address_masked(setting)
        text = "none" if shown is None else json.dumps(shown)
        typer.echo(f"{setting.name:{width}}  {text}  ({setting.origin})")
    found.kafka()  # says what contradicts what, after all of it was shown


def _address_masked(setting: Setting) -> Any:
    return without_user(setting.value) if isinstance(setting.value, str) else setting.value


config_epilog = """
\b
Examples:
  cues-kafka config
  CUES_KAFKA_BOOTSTRAP=kafka:9092 cues-kafka config --profile prod

Options win over CUES_KAFKA_* variables, these over cues-kafka.toml, and that
over defaults.
"""
