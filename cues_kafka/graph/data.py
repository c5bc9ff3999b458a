"""Graphs as data: written down and read back."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any, Final, NamedTuple, TypeVar, cast

from cues_kafka.arguments import given_arguments
from cues_kafka.errors import GraphError
from cues_kafka.graph.blobs import Blobs, FileTable
from cues_kafka.graph.calls import Http, Once, call_from_json, call_to_json
from cues_kafka.graph.codec import Codec
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.declare import CodecSpec, CommitPolicy, GlobalTable, Json, Limits, Raw, Retry, Store, Table
from cues_kafka.graph.effects import Effect, Sql, SqlTable, Upsert
from cues_kafka.graph.error_message import ErrorMessages, Errors
from cues_kafka.graph.feed import Feed
from cues_kafka.graph.filters import (
    AllOf,
    AnyOf,
    Filter,
    HasHeader,
    HasTag,
    HasType,
    Not,
    Predicate,
    has_header,
    has_tag,
    has_type,
)
from cues_kafka.graph.formats import Avro, JsonSchema, Protobuf
from cues_kafka.graph.graph_parts import GraphParts
from cues_kafka.graph.handler import Handler
from cues_kafka.graph.names import hint, quoted
from cues_kafka.graph.processor import Declaration, Processor, Source
from cues_kafka.graph.publish import Published
from cues_kafka.graph.targets import TargetPart, TransactionalTarget
from cues_kafka.graph.timers import Timers
from cues_kafka.graph.topic import Topic
from cues_kafka.graph.written_values import (
    object_from_json,
    object_to_json,
    reference,
    resolve,
    value_from_json,
    value_to_json,
)

VERSION = 1

Made = TypeVar("Made")


def _names(cls: type[Any]) -> tuple[str, ...]:
    return tuple(each.name for each in fields(cls) if each.init)


# --- Codecs and topics


def _codec_to_json(codec: CodecSpec) -> dict[str, Any]:
    match codec:
        case Json(cls=cls):
            settings: dict[str, Any] = {"cls": None if cls is None else reference(cls)}
        case Avro() | JsonSchema() | Protobuf():
            own = given_arguments(codec, _names(type(codec)))
            if not isinstance(codec, Protobuf) and codec.cls is codec.schema:
                own.pop("cls", None)
            settings = {
                name: value_to_json(asdict(one) if isinstance(one, Limits) else one) for name, one in own.items()
            }
        case Codec() if is_dataclass(codec) or getattr(codec, "__dict__", None):
            settings = {name: one or None for name, one in object_to_json(codec, f"{codec!r:.200}").items()}
        case Codec():
            settings = {"class": reference(type(codec))}
        case _:
            settings = {}
    return {"kind": codec.kind} | {name: value for name, value in settings.items() if value is not None}


_FORMATS: Final[dict[str, Callable[..., CodecSpec]]] = {one.kind: one for one in (Avro, JsonSchema, Protobuf)}


def _codec_from_json(data: Any) -> CodecSpec:
    if not isinstance(data, Mapping):
        raise GraphError(f"{data!r} is not a codec. Write a mapping: {{'kind': 'json', 'cls': 'shop:Order'}}.")
    own: Any
    match data.get("kind"):
        case "json" | "raw" as kind:
            own = {name: resolve(one) if name == "cls" else one for name, one in data.items() if name != "kind"}
            return _made(Json if kind == "json" else Raw, own, f"the codec {kind!r}")
        case "avro" | "json-schema" | "protobuf" as kind:
            own = {name: value_from_json(one) for name, one in data.items() if name != "kind"}
            limits = {"limits": _made(Limits, own["limits"], "limits")} if "limits" in own else {}
            return _made(_FORMATS[kind], own | limits, f"the codec {kind!r}")
        case "errors":
            return ErrorMessages()
        case "own":
            own = object_from_json(data)
            if isinstance(own, Codec):
                return own
    raise GraphError(
        f"{data.get('kind')!r} is not a kind of codec. Choose one of 'json', {', '.join(map(repr, _FORMATS))}, 'raw', "
        "'errors', 'own'."
    )


def _topic_to_json(topic: Topic) -> dict[str, Any]:
    writers: dict[str, Callable[[Any], Any]] = {
        "value": _codec_to_json,
        "key_codec": lambda codec: codec and _codec_to_json(codec),
        "config": dict,
        "meta": lambda marks: sorted(marks) if isinstance(marks, frozenset) else marks,
    }
    return {name: writers[name](item) if name in writers else item for name, item in topic.given.items()}


def _topic_from_json(data: Any, what: str) -> Topic:
    if not isinstance(data, Mapping):
        raise GraphError(f"{what} is {data!r}. Write a mapping: {{'partitions': 4}}.")
    codecs = {name: data[name] and _codec_from_json(data[name]) for name in ("value", "key_codec") if name in data}
    return _made(Topic, {**data, **codecs}, what)


def _filter_to_json(predicate: Predicate) -> Any:
    match predicate:
        case HasType(types):
            return {"has_type": [value_to_json(one) for one in types]}
        case HasTag(tags):
            return {"has_tag": list(tags)}
        case HasHeader(name, value):
            return {"has_header": [name] if value is None else [name, value_to_json(value)]}
        case AllOf(filters):
            return {"all": [_filter_to_json(one) for one in filters]}
        case AnyOf(filters):
            return {"any": [_filter_to_json(one) for one in filters]}
        case Not(negated):
            return {"not": _filter_to_json(negated)}
    return reference(predicate)


_FILTERS: Final[dict[str, Callable[[Any], Filter]]] = {
    "has_type": lambda types: has_type(*map(value_from_json, types)),
    "has_tag": lambda tags: has_tag(*tags),
    "has_header": lambda words: has_header(*map(value_from_json, words)),
    "all": lambda filters: AllOf(tuple(map(_filter_from_json, filters))),
    "any": lambda filters: AnyOf(tuple(map(_filter_from_json, filters))),
    "not": lambda negated: Not(_negated(_filter_from_json(negated))),
}


def _filter_from_json(data: Any) -> Predicate:
    if isinstance(data, str):
        found: Predicate = resolve(data)
        return found
    if isinstance(data, Mapping) and len(data) == 1:
        [(kind, given)] = data.items()
        if kind in _FILTERS and given and isinstance(given, str | Mapping if kind == "not" else list):
            return _FILTERS[kind](given)
    raise GraphError(
        f"{data!r} is not a filter. Write 'module:function', or a mapping with one of the keys {quoted(_FILTERS)}: "
        "{'has_tag': ['audit']}, {'not': {'has_header': ['region', 'eu']}}."
    )


def _negated(predicate: Predicate) -> Filter:
    if isinstance(predicate, Filter):
        return predicate
    raise GraphError(
        f"{predicate!r} is a function, which has no contrary as data. Write one that returns the contrary."
    )


def _errors_to_json(errors: Any) -> Any:
    return asdict(errors) | {"redact": list(errors.redact)} if isinstance(errors, Errors) else errors


def _errors_from_json(data: Any) -> Any:
    return _made(Errors, data, "errors") if isinstance(data, Mapping) else data


_OF_HANDLER = ("max_bytes", "per_task", "max_resets", "drain_timeout_s", "reset_timeout_s")


def _retry_to_json(retry: Retry) -> dict[str, Any]:
    numbers = {name: getattr(retry, name) for name in ("for_s", "first_s", "max_s", "then")}
    return {"on": [reference(cls) for cls in retry.classes], **numbers}


def _retry_from_json(data: Mapping[str, Any]) -> Retry:
    on = {"on": tuple(resolve(name) for name in data["on"])} if "on" in data else {}
    return _made(Retry, {**data, **on}, "retry")


def _store_to_json(store: Store) -> dict[str, Any]:
    if isinstance(store, Handler):
        return {"make": reference(store.make), **{name: getattr(store, name) for name in _OF_HANDLER}}
    if isinstance(store, Timers):
        return {"fire": reference(store.fn), "by": store.by, "max_bytes": store.max_bytes}
    key = {} if store.key is None else {"key": _codec_to_json(store.key)}
    ttl = {} if store.ttl is None else {"ttl": store.ttl}
    messages = {} if store.ttl_messages is None else {"ttl_messages": store.ttl_messages}
    flags = {name: True for name in ("per_task", "on_disk") if getattr(store, name)}
    return {"value": _codec_to_json(store.value), "max_bytes": store.max_bytes, **key, **ttl, **messages, **flags}


def _store_from_json(data: Mapping[str, Any]) -> Store:
    own = dict(data)
    if "make" in own:
        return _made(Handler, {**own, "make": resolve(own["make"])}, "a handler")
    if "fire" in own:
        return _made(Timers, {"fn": resolve(own.pop("fire")), **own}, "timers")
    own |= {name: _codec_from_json(own[name]) for name in ("value", "key") if name in own}
    return _made(Store, own, "a store")


def _table_to_json(table: Table) -> dict[str, Any]:
    waits = {} if table.wait is None else {"wait": table.wait, "then": table.then}
    return {"kind": table.kind, "topic": table.topic, "max_bytes": table.max_bytes, **waits}


def _table_from_json(data: Mapping[str, Any]) -> Table:
    own = dict(data)
    made = GlobalTable if own.pop("kind", Table.kind) == GlobalTable.kind else Table
    return _made(made, own, "a table")


def _effects_to_json(effects: bool | Mapping[str, Effect]) -> Any:
    return effects if isinstance(effects, bool) else {name: _effect_to_json(name, one) for name, one in effects.items()}


def _effect_to_json(name: str, effect: Effect) -> dict[str, Any]:
    if isinstance(effect, Once | Http):
        return call_to_json(name, effect)
    if isinstance(effect, TransactionalTarget | TargetPart | Published):
        return {"kind": effect.kind, **object_to_json(effect, f"effects={{{name!r}: ...}}")}
    if isinstance(effect.home, Blobs):
        return _files_to_json(name, effect)
    database = effect.database
    if database is None or not database.env:
        raise GraphError(
            f"effects={{{name!r}: ...}} cannot be written down: its address would be in the text. Name the environment "
            'variable that holds it: Sql(env="SHOP_DATABASE").'
        )
    data: dict[str, Any] = {"kind": effect.kind, "env": database.env}
    if isinstance(effect, SqlTable | Upsert):
        data |= {"table": effect.table, "columns": dict(effect.columns)}
    return data | ({"key": list(effect.key)} if isinstance(effect, Upsert) else {})


def _files_to_json(name: str, effect: Effect) -> dict[str, Any]:
    home = effect.home
    assert isinstance(home, Blobs)
    if not home.env or home.options:
        raise GraphError(
            f"effects={{{name!r}: ...}} cannot be written down: its address or options would be in the text. Name the "
            'environment variable that holds the address, Blobs(env="SHOP_FILES"), and give options by the environment.'
        )
    data: dict[str, Any] = {"kind": effect.kind, "env": home.env}
    if isinstance(effect, FileTable):
        data |= {"table": effect.table, "format": effect.format, "max_file_bytes": effect.max_file_bytes}
        data |= {"schema": dict(effect.schema)} if effect.schema else {}
    return data


def _into_to_json(into: FileTable | str) -> dict[str, Any] | str:
    return into if isinstance(into, str) else _effect_to_json("into", into)  # a feed's is a topic


def _into_from_json(data: Any) -> Any:
    return data if isinstance(data, str) else _effect_from_json(data)


def _effects_from_json(data: bool | Mapping[str, Any]) -> Any:
    return data if isinstance(data, bool) else {name: _effect_from_json(one) for name, one in data.items()}


def _effect_from_json(data: Mapping[str, Any]) -> Effect:
    if data["kind"] in (Http.kind, Once.kind):
        return call_from_json(data)
    if data["kind"] in (TransactionalTarget.kind, TargetPart.kind, Published.kind):
        return cast("Effect", object_from_json(data))
    if data["kind"] in (Blobs.kind, FileTable.kind):
        store = Blobs(env=data["env"])
        if data["kind"] == Blobs.kind:
            return store
        return FileTable(store, data["table"], data["format"], data.get("schema", {}), data["max_file_bytes"])
    database = Sql(env=data["env"])
    match data["kind"]:
        case Sql.kind:
            return database
        case SqlTable.kind:
            return database.table(data["table"], columns=data["columns"])
        case Upsert.kind:
            return database.upsert(data["table"], key=data["key"], columns=data["columns"])
    raise GraphError(
        f"{data['kind']!r} is not a kind of effect. This release knows 'sql', 'table', 'upsert', 'blobs', "
        "'file-table', 'http', 'once', 'target' and 'target-part'."
    )


# --- Parts


class _ArgumentForm(NamedTuple):
    """How an argument of a part that is no plain data is written, and how it is read."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _each(form: _ArgumentForm) -> _ArgumentForm:
    """The form of a mapping whose items have this form."""
    return _ArgumentForm(
        lambda items: {name: form.write(one) for name, one in items.items()},
        lambda items: {name: form.read(one) for name, one in items.items()},
    )


_VALUE: Final = _ArgumentForm(value_to_json, value_from_json)
_BINDINGS: Final = _ArgumentForm(dict, lambda bindings: bindings)
_FORMS: Final[dict[str, _ArgumentForm]] = {
    "fn": _ArgumentForm(reference, resolve),
    "errors": _ArgumentForm(_errors_to_json, _errors_from_json),
    "filter": _ArgumentForm(_filter_to_json, _filter_from_json),
    "retry": _ArgumentForm(_retry_to_json, _retry_from_json),
    "commit": _ArgumentForm(asdict, lambda limits: _made(CommitPolicy, limits, "commit")),
    "effects": _ArgumentForm(_effects_to_json, _effects_from_json),
    "into": _ArgumentForm(_into_to_json, _into_from_json),
    "state": _each(_ArgumentForm(_store_to_json, _store_from_json)),
    "tables": _each(_ArgumentForm(_table_to_json, _table_from_json)),
    "opts": _each(_VALUE),
    "tailers": _BINDINGS,
    "appenders": _BINDINGS,
    "start": _VALUE,
    "from": _ArgumentForm(dict, object_from_json),
}


def _part_to_json(part: Declaration) -> dict[str, Any]:
    if isinstance(part, Source):
        return {"source": part.topic, **given_arguments(part, _names(Source)[1:])}
    data = part.arguments()
    source = {"from": object_to_json(data.pop("source"), f"{part.label}: its source")} if "source" in data else {}
    data = {name: _FORMS[name].write(item) if name in _FORMS else item for name, item in data.items()}
    return {part.kind if part.kind in _KINDS else "processor": data.pop("name"), **data, **source}


def described(part: Processor | DataFrameProcessor | Feed) -> dict[str, Any]:
    """
    What a part was declared as, for people: as `Graph.to_dict` has it, and never an error.

    A function that cannot be imported has its name all the same. What could hold a secret is left out: the values of
    `opts=`, the settings of a feed's source, and addresses.
    """
    found: dict[str, Any] = {"name": part.name, "kind": part.kind}
    for name, value in part.arguments().items():
        with contextlib.suppress(GraphError):  # it cannot be written down
            match name:
                case "name":
                    pass
                case "fn" | "source":
                    found[name] = _named(value)
                case "filter" if not isinstance(value, Filter):
                    found[name] = _named(value)
                case "opts":
                    found[name] = sorted(value)
                case _:
                    found[name] = _FORMS.get(name, _VALUE).write(value)
    return found


def _named(target: Any) -> str:
    """The name of a function, or of an object's class, whether or not it can be imported."""
    one = target if hasattr(target, "__qualname__") else type(target)
    home = getattr(one, "__module__", None) or getattr(one, "__objclass__", type(one)).__module__  # str.upper has none
    return f"{home}:{one.__qualname__}"


_KINDS: Final[dict[str, Callable[..., Declaration]]] = {
    "source": Source,
    "processor": Processor,
    "dataframe": DataFrameProcessor,
    "feed": Feed,
}
"""By the key that has a part's name, what it is."""

_NAMES: Final = {"processor": "name", "dataframe": "name", "feed": "name", "from": "source"}
"""Arguments of parts that are written under other names."""


def _part_from_json(data: Any) -> Declaration:
    kinds = [kind for kind in _KINDS if kind in data] if isinstance(data, Mapping) else []
    if len(kinds) != 1:
        raise GraphError(
            f"A part is a mapping with one of the keys {quoted(_KINDS)}, which has its name: not {data!r:.200}."
        )
    [kind] = kinds
    what = f"the {kind} {data[kind]!r}"
    if kind == "source":
        return _made(Source, {"topic": data[kind], **{name: one for name, one in data.items() if name != kind}}, what)
    read = {name: _FORMS[name].read(one) if name in _FORMS else one for name, one in data.items()}
    return _made(_KINDS[kind], {_NAMES.get(name, name): one for name, one in read.items()}, what)


def _made(make: Callable[..., Made], given: Mapping[str, Any], what: str) -> Made:
    """
    Make something of settings by name.

    Raises:
        GraphError: it has no setting of such a name, or one that it needs is missing.
    """
    known = {name: one for name, one in inspect.signature(make).parameters.items() if one.kind is not one.VAR_KEYWORD}
    _check_known(given, known, what)
    if missing := [name for name, one in known.items() if one.default is one.empty and name not in given]:
        raise GraphError(f"The data does not describe a graph: {what} has no {quoted(missing)}. Add it.")
    return make(**given)


def _check_known(given: Mapping[str, Any], known: Iterable[str], what: str) -> None:
    for name in given:
        if name not in known:
            raise GraphError(
                f"The data does not describe a graph: {what} has no setting {name!r}{hint(name, known)}. Its settings: "
                f"{quoted(known)}."
            )


_OF_GRAPH: Final = ("version", "name", "parts", "errors", "defaults", "topics", "system", "strategy", "cuts", "prefix")


def to_dict(graph: GraphParts) -> dict[str, Any]:
    """The graph as plain data; see `Graph.to_dict`."""
    return {
        "version": VERSION,
        "name": graph.name.removeprefix(graph.prefix),
        "parts": [_part_to_json(part) for part in graph.parts],
        "errors": _errors_to_json(graph.errors),
        "defaults": _topic_to_json(graph.defaults),
        "topics": {name: _topic_to_json(topic) for name, topic in graph.topics.items()},
        "system": {name: reference(factory) for name, factory in graph.system.items()},
        "strategy": graph.strategy,
        **({} if graph.cuts is None else {"cuts": graph.cuts}),
        **({"prefix": graph.prefix} if graph.prefix else {}),
    }


def from_dict(make: Callable[..., Made], data: Mapping[str, Any]) -> Made:
    """See `Graph.from_dict`; `make` is the class."""
    if data.get("version") != VERSION:
        raise GraphError(
            f"This release reads version {VERSION} of a written graph, not {data.get('version')!r}. Write version = "
            f"{VERSION} into data that is written by hand; write other data again, with Graph.to_dict()."
        )
    _check_known(data, _OF_GRAPH, "a graph")
    if not isinstance(data.get("name"), str) or not isinstance(data.get("parts"), list):
        raise GraphError(
            "The data does not describe a graph. Give it a 'name', and 'parts', a list of mappings: in TOML, [[parts]]."
        )
    try:
        return make(
            data["name"],
            *(_part_from_json(part) for part in data["parts"]),
            errors=_errors_from_json(data.get("errors")),
            defaults=_topic_from_json(data.get("defaults", {}), "defaults"),
            topics={
                name: _topic_from_json(topic, f"the topic {name!r}") for name, topic in data.get("topics", {}).items()
            },
            system={name: resolve(factory) for name, factory in data.get("system", {}).items()},
            strategy=data.get("strategy", "exactly-once"),
            cuts=data.get("cuts"),
            prefix=data.get("prefix", ""),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise GraphError(f"The data does not describe a graph: {error}. Write it with Graph.to_dict().") from error
