"""Schemas of a registry, through confluent-kafka's client, each one asked for once.

A schema that does not exist is asked for once in `MISSING_S` seconds by a process. That bounds what a flood of messages
with one such id costs the registry. Each of many different ids must be asked for, as any of them may be new.

A schema that the registry does not have is the message's fault, and so is one that it keeps from this user while it
answers for others: no later try reads it, and the messages behind it wait. Everything else that goes wrong between here
and the registry (silence, a wrong login, an error of its own) is an outage: no message becomes an error for it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from cues_kafka.codecs.registered import Own, Registered
from cues_kafka.codecs.same_schema import difference
from cues_kafka.errors import CodecError, ConfigError, RetriableError
from cues_kafka.extras import REGISTRY, missing

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import RegisteredSchema, Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.error import SchemaRegistryError

MOST_VERSIONS: Final = 20
"""Versions of a subject, from the newest on, that are compared with a declared schema."""

MOST_DEEP: Final = 64
"""How many schemas may each name the next one."""

MISSING_S: Final = 30.0
"""How long an id counts as missing before the registry is asked again; a flood of such messages asks once."""

MOST_MISSING: Final = 10_000
"""How many missing ids are remembered, the newest ones: a few megabytes."""

LAST_ID: Final = 2**31 - 1
"""The largest id. Registries hold ids in 32 bits with a sign, and take a larger one for an unknown path."""

_NOT_FOUND: Final = {40401, 40402, 40403}
"""A registry's codes for subjects, versions and schemas that it does not have."""

_NO_SUCH_PATH: Final = 404
_LOGIN: Final = 401
_FORBIDDEN: Final = 403


class Denied(RetriableError):
    """
    The registry refuses this user: a right, or the login. No try succeeds before that is corrected.

    Attributes:
        login: whether it is the login, so that nothing is answered.
    """

    def __init__(self, message: str, *, login: bool) -> None:
        super().__init__(message)
        self.login = login


class RegistrySchemas:
    """
    The schemas of one registry, shared by the threads of a process.

    Args:
        options: a `Registry(...)`.
    """

    def __init__(self, options: Any) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._found: dict[int | UUID, Registered] = {}
        self._missing: dict[int | UUID, tuple[float, str]] = {}
        self._ids: dict[tuple[str, Own], int] = {}
        self._made: SchemaRegistryClient | None = None

    @property
    def client(self) -> SchemaRegistryClient:
        """Confluent's client, made when it is first needed."""
        with self._lock:
            if self._made is None:
                self._made = _client(self._options)
            return self._made

    def by_id(self, name: int | UUID) -> Registered:
        if (found := self._found.get(name)) is not None:
            return found
        if isinstance(name, int) and name > LAST_ID:
            raise self._unknown(name)
        until, why = self._missing.get(name, (0.0, ""))
        if until > time.monotonic():
            raise CodecError(why)
        try:
            found = self._ask(name)
        except CodecError as error:
            self._forget(name, str(error))
            raise
        except Denied as error:
            if not self._answers_for_others(name):
                raise
            why = (
                f"The message names the schema {name}, and {error}. Then replay the error message with `cues-kafka "
                "errors replay`"
            )
            self._forget(name, why)
            raise CodecError(why) from None
        if len(self._found) >= self._options.cache:
            self._found.clear()
        self._found[name] = found
        return found

    def _ask(self, name: int | UUID) -> Registered:
        with self._asking(f"the schema {name}") as missing:
            try:
                schema = self._schema_of(name)
            except Exception as error:
                if not self._knows_no_guids(name, error):
                    raise
                raise CodecError(
                    f"The message names its schema by the GUID {name}, and the registry {self._options.url} has no "
                    "GUIDs. Have its producer write the id of the schema in front of the value, or use a registry "
                    "that has them."
                ) from None
            if schema.schema_type == "PROTOBUF":  # as a descriptor, where the registry can
                schema = self._schema_of(name, "serialized")
        if missing:
            raise self._unknown(name)
        with self._asking(f"the schemas that the schema {name} names") as missing:
            return self._registered(name if isinstance(name, int) else 0, schema)
        raise CodecError(
            f"The message names the schema {name}, which names a schema that the registry {self._options.url} does not "
            "have. Restore the schemas that it refers to."
        )

    def _knows_no_guids(self, name: int | UUID, error: Exception) -> bool:
        """
        Whether something is a registry that has no GUIDs. They are new; others answer as to an unknown path.

        So does what is no registry. An id that no schema has tells which it is.
        """
        if not isinstance(name, UUID) or getattr(error, "http_status_code", None) != _NO_SUCH_PATH:
            return False
        if getattr(error, "error_code", None) in _NOT_FOUND:
            return False
        with self._asking(f"the schema {name}") as missing:
            self._schema_of(LAST_ID)
        return bool(missing)

    def _answers_for_others(self, name: int | UUID) -> bool:
        """
        Whether the registry lets this user ask for other schemas than one that it denies.

        It says so where no schema has the last id. One that says nothing of ids without a schema is asked for one that
        it gave before; Confluent's client remembers its answers, so a new one asks.
        """
        known = next((one for one in self._found if isinstance(one, int) and one != name), None)
        for other in (LAST_ID, known):
            if other is None:
                continue
            try:
                with self._asking(f"the schema {other}"), _client(self._options) as client:
                    client.get_schema(other)
            except Denied:
                continue
            return True
        return False

    def _forget(self, name: int | UUID, why: str) -> None:
        """Take an id for missing, for a while."""
        with self._lock:
            self._missing.pop(name, None)  # so that the first is always the oldest
            while len(self._missing) >= MOST_MISSING:
                del self._missing[next(iter(self._missing))]
            self._missing[name] = time.monotonic() + MISSING_S, why

    def _schema_of(self, name: int | UUID, form: str | None = None) -> Schema:
        client = self.client
        if isinstance(name, int):
            return client.get_schema(name, fmt=form)
        return client.get_schema_by_guid(str(name), fmt=form)

    def id_of(self, subject: str, own: Own) -> int:
        key = (subject, own)
        if key not in self._ids:
            if (number := self._exactly(subject, own)) is None:
                number, why = self._alike(subject, own)
            if number is None:
                raise ConfigError(
                    f"the subject {subject!r} of {self._options.url} does not have the declared schema{why}. Look with "
                    "`cues-kafka schemas check MODULE:GRAPH`, and add it with `cues-kafka schemas register`."
                )
            self._ids[key] = number
        return self._ids[key]

    def _exactly(self, subject: str, own: Own) -> int | None:
        """The id of the schema as it is written, else as the registry normalises it; None: it has none."""
        for normalised in (False, True):
            with self._asking(f"the subject {subject!r}") as missing:
                found = _number(self.client.lookup_schema(subject, self._schema(own), normalize_schemas=normalised))
            if not missing:
                return found
        return None

    def _alike(self, subject: str, own: Own) -> tuple[int | None, str]:
        """The id of the newest version that means the same; None: there is none, and how the newest one differs."""
        with self._asking(f"the subject {subject!r}") as missing:
            numbers = sorted(self.client.get_versions(subject), reverse=True)
        if missing:
            return None, ""
        why = ""
        for number in numbers[:MOST_VERSIONS]:
            with self._asking(f"the subject {subject!r}") as missing:
                version = self.client.get_version(subject, number)
                found = self._registered(_number(version), version.schema)
            if missing:  # it was deleted meanwhile
                continue
            if not (differs := difference(own, found)):
                return found.number, ""
            why = why or f"; its version {number} differs: {differs}"
        return None, why

    def latest(self, subject: str) -> Registered:
        with self._asking(f"the subject {subject!r}") as missing:
            newest = self.client.get_latest_version(subject)
            found = self._registered(_number(newest), newest.schema)
        if missing:
            raise ConfigError(
                f"{self._options.url} has no subject {subject!r}. Register a schema, or name one with subject=."
            )
        return found

    def compatible(self, subject: str, own: Own) -> bool | None:
        """
        Ask whether the registry would take a schema as the next version of a subject; None: there is no such subject.

        Raises:
            RetriableError: the registry does not answer, or denies it.
        """
        with self._asking(f"the subject {subject!r}") as missing:
            answer = self.client.test_compatibility(subject, self._schema(own))
        return None if missing else bool(answer)

    def register(self, subject: str, own: Own) -> int:
        """
        Add a schema to a subject, and return its id. The schemas that it names must be registered.

        Raises:
            ConfigError: the registry refuses it.
            RetriableError: the registry does not answer, or denies it.
        """
        from confluent_kafka.schema_registry.error import SchemaRegistryError  # noqa: PLC0415  an extra

        try:
            return int(self.client.register_schema(subject, self._schema(own)))
        except SchemaRegistryError as error:
            if error.http_status_code in (409, 422):
                raise ConfigError(f"{subject!r}: the registry refuses the schema: {error.error_message}") from error
            raise self._refused(f"the subject {subject!r}", error, "write") from None
        except _network_errors() as error:
            raise self._outage(f"the subject {subject!r}", error) from None

    def _schema(self, own: Own) -> Schema:
        """A declared schema as the client sends it; those that it names are in the subjects of their names."""
        from confluent_kafka.schema_registry import Schema, SchemaReference  # noqa: PLC0415  an extra

        named = [
            SchemaReference(name, name, self.client.lookup_schema(name, self._schema(one)).version)
            for name, one in own.references
        ]
        return Schema(own.text, own.kind, named)

    def _registered(self, number: int, schema: Schema) -> Registered:
        if not schema.schema_str:
            raise ValueError("the answer has no schema")
        return Registered(number, schema.schema_str, self._references(schema), schema.schema_type or "AVRO")

    def _references(self, schema: Schema, within: tuple[str, ...] = ()) -> tuple[tuple[str, str], ...]:
        """The schemas that this one names, and those that they name, those that others need first."""
        found: dict[str, str] = {}
        form = "serialized" if schema.schema_type == "PROTOBUF" else None
        for each in schema.references or ():
            name = each.name or ""
            if name in within or len(within) >= MOST_DEEP:
                raise ValueError(f"its references lead from {within[0]!r:.80} to {name!r:.80} without an end")
            named = self.client.get_version(each.subject or "", each.version or "latest", fmt=form).schema
            found |= dict(self._references(named, (*within, name)))
            found[name] = named.schema_str or ""
        return tuple(found.items())

    @contextlib.contextmanager
    def _asking(self, what: str) -> Iterator[list[bool]]:
        """Ask the registry; the list is filled if it has no such thing. All other failures are outages."""
        from confluent_kafka.schema_registry.error import SchemaRegistryError  # noqa: PLC0415  an extra

        missing: list[bool] = []
        try:
            yield missing
        except SchemaRegistryError as error:
            if error.error_code not in _NOT_FOUND:  # at another path, or where no registry is, 404 has another code
                raise self._refused(what, error) from None
            missing.append(True)
        except _network_errors() as error:
            raise self._outage(what, error) from None

    def _refused(self, what: str, error: SchemaRegistryError, right: str = "read") -> RetriableError:
        """The meaning of an answer other than a schema or "not found"."""
        if error.http_status_code not in (_LOGIN, _FORBIDDEN):
            return self._outage(what, error)
        options = self._options
        user = f"user `{options.auth[0]}`" if isinstance(options.auth, tuple) else "this user"
        text = options.scrubbed(f"{error.http_status_code}: {error.error_message}")
        if error.http_status_code == _LOGIN:
            return Denied(
                f"the registry {options.url} refuses the login of {user}, who asked for {what} ({text:.300}). Correct "
                "the user and the password, or the token, of Registry(...)",
                login=True,
            )
        return Denied(
            f"the registry {options.url} does not let {user} {right} {what} ({text:.300}). Grant the right to {right} "
            f"it, such as the role Developer{right.capitalize()} on its subject",
            login=False,
        )

    def _outage(self, what: str, error: Exception) -> RetriableError:
        text = self._options.scrubbed(f"{type(error).__name__}: {error}")
        return RetriableError(
            f"the registry {self._options.url} did not return {what}: {text:.300}. Check that it "
            "runs, and its address and login"
        )

    def _unknown(self, name: int | UUID) -> CodecError:
        return CodecError(
            f"The message names the schema {name}, which the registry {self._options.url} does not have. Its producer "
            "uses another registry."
        )


def _number(found: RegisteredSchema) -> int:
    """The id in an answer; messages must not name a schema that the registry did not."""
    if not isinstance(found.schema_id, int):
        raise ValueError("the answer has no id")
    return found.schema_id


def _network_errors() -> tuple[type[Exception], ...]:
    from confluent_kafka.schema_registry.error import OAuthTokenError  # noqa: PLC0415  an extra
    from httpx2 import HTTPError  # noqa: PLC0415  an extra

    # An answer that the client cannot take apart.
    odd = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
    return HTTPError, OAuthTokenError, OSError, *odd


def _client(options: Any) -> SchemaRegistryClient:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient  # noqa: PLC0415  an extra

        from cues_kafka.codecs.registry_answers import bound  # noqa: PLC0415  the same
    except ImportError as error:
        raise missing("Registry(...)", REGISTRY, error=error) from None
    files = {"ca": "ssl.ca.location", "certificate": "ssl.certificate.location", "key": "ssl.key.location"}
    settings: dict[str, Any] = {
        "url": options.url,
        "timeout": options.timeout_s,
        "max.retries": 0,  # a task that fails is tried again, with growing pauses
        "cache.capacity": options.cache,
        **{files[name]: path for name, path in options.tls.items()},
    }
    if isinstance(options.auth, str):
        settings |= {
            "bearer.auth.credentials.source": "STATIC_TOKEN",
            "bearer.auth.token": options.auth,
            "bearer.auth.logical.cluster": "",  # of Confluent Cloud, which names it in config=
        }
    elif options.auth:
        settings["basic.auth.user.info"] = ":".join(options.auth)
    try:
        return bound(SchemaRegistryClient({**settings, **options.config}))
    except (ValueError, TypeError, OSError) as error:
        raise ConfigError(f"{options!r}: {options.scrubbed(str(error))}") from None


_open: dict[str, RegistrySchemas] = {}
_lock = threading.Lock()


def schemas_of(options: Any) -> RegistrySchemas:
    """The schemas of a registry; one for all codecs of the process."""
    key = repr((options.url, options.auth, sorted(options.tls.items()), sorted(options.config.items()), options.cache))
    with _lock:
        return _open.setdefault(key, RegistrySchemas(options))
