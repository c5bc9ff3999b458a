"""Graphs as data: written down and read back.

Functions and classes are written as ``module:qualname``. Reading imports those modules: read trusted data only.
"""

from __future__ import annotations

import contextlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields, is_dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

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

VERSION = 1

Made = TypeVar("Made")


# --- References


def reference(target: Any) -> str:
    """
    The name to import a function or class by: ``module:qualname``.

    Raises:
        GraphError: it has no such name.
    """
    name = f"{getattr(target, '__module__', None)}:{getattr(target, '__qualname__', None)}"
    with contextlib.suppress(ImportError, AttributeError, ValueError):
        if pkgutil.resolve_name(name) == target:
            return name
    raise GraphError(
        f"{target!r} cannot be written down, because it cannot be imported by its name. "
        "Define it with def or class at the top level of a module."
    )


def resolve(name: object) -> Any:
    """
    Import what a reference names.

    Raises:
        GraphError: it cannot be imported.
    """
    if not (isinstance(name, str) and name.partition(":")[2]):
        raise GraphError(f"{name!r} cannot be imported. Write it as 'module:name'.")
    try:
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise GraphError(f"{name!r} cannot be imported: {error}. Check that it exists and can be imported.") from error


# --- Values


def _to_json(value: Any) -> Any:
    """A value as JSON; a type that JSON lacks becomes a mapping with one key that begins with ``$``."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return {"$bytes": value.hex()}
        case datetime():
            return {"$time": value.isoformat()}
        case list():
            return [_to_json(item) for item in value]
        case tuple():
            return {"$tuple": [_to_json(item) for item in value]}
        case set() | frozenset():
            kind = "$set" if isinstance(value, set) else "$frozenset"
            return {kind: sorted((_to_json(item) for item in value), key=repr)}
        case Mapping():
            if all(isinstance(key, str) and not key.startswith("$") for key in value):
                return {key: _to_json(item) for key, item in value.items()}
            return {"$mapping": [[_to_json(key), _to_json(item)] for key, item in value.items()]}
    return {"$ref": reference(value)}


_READERS: dict[str, Callable[[Any], Any]] = {
    "$bytes": bytes.fromhex,
    "$time": datetime.fromisoformat,
    "$tuple": lambda items: tuple(_from_json(item) for item in items),
    "$set": lambda items: {_from_json(item) for item in items},
    "$frozenset": lambda items: frozenset(_from_json(item) for item in items),
    "$mapping": lambda pairs: {_from_json(key): _from_json(item) for key, item in pairs},
    "$ref": resolve,
    "$object": lambda written: _object_from_json(dict(written)),
}


def _from_json(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_from_json(item) for item in plain]
    if isinstance(plain, Mapping):
        for mark, item in plain.items():
            if mark.startswith("$") and len(plain) == 1 and mark in _READERS:
                return _READERS[mark](item)
        return {key: _from_json(item) for key, item in plain.items()}
    return plain


def _codec_to_json(codec: CodecSpec) -> dict[str, Any]:
    match codec:
        case Json(cls=cls):
            settings: dict[str, Any] = {"cls": None if cls is None else reference(cls)}
        case Avro() | JsonSchema() | Protobuf():
            given = {each.name: getattr(codec, each.name) for each in fields(codec) if each.init}
            own = {
                each.name: given[each.name] for each in fields(codec) if each.init and given[each.name] != each.default
            }
            if not isinstance(codec, Protobuf) and codec.cls is codec.schema:
                own.pop("cls", None)
            settings = {name: _to_json(asdict(one) if isinstance(one, Limits) else one) for name, one in own.items()}
        case Codec():
            settings = {"class": reference(type(codec)), "settings": _settings(codec)}
        case _:
            settings = {}
    return {"kind": codec.kind} | {name: value for name, value in settings.items() if value is not None}


def _settings(codec: Codec) -> dict[str, Any] | None:
    if is_dataclass(codec):
        return {each.name: _to_json(getattr(codec, each.name)) for each in fields(codec) if each.init} or None
    if getattr(codec, "__dict__", None):
        raise GraphError(f"{codec!r:.200} cannot be written down. Make {type(codec).__name__} a dataclass.")
    return None


_FORMATS: Final[dict[str, Callable[..., CodecSpec]]] = {one.kind: one for one in (Avro, JsonSchema, Protobuf)}


def _codec_from_json(data: Any) -> CodecSpec:
    if not isinstance(data, Mapping):
        raise GraphError(f"{data!r} is no codec. Write a mapping: {{'kind': 'json', 'cls': 'shop:Order'}}.")
    own: Any
    match data.get("kind"):
        case "json" | "raw" as kind:
            own = {name: resolve(one) if name == "cls" else one for name, one in data.items() if name != "kind"}
            return _made(Json if kind == "json" else Raw, own, f"the codec {kind!r}")
        case "avro" | "json-schema" | "protobuf" as kind:
            own = {name: _from_json(one) for name, one in data.items() if name != "kind"}
            limits = {"limits": _made(Limits, own["limits"], "limits")} if "limits" in own else {}
            return _made(_FORMATS[kind], own | limits, f"the codec {kind!r}")
        case "errors":
            return ErrorMessages()
        case "own":
            own = resolve(data["class"])(**{name: _from_json(one) for name, one in data.get("settings", {}).items()})
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
            return {"has_type": [_to_json(one) for one in types]}
        case HasTag(tags):
            return {"has_tag": list(tags)}
        case HasHeader(name, value):
            return {"has_header": [name] if value is None else [name, _to_json(value)]}
        case AllOf(filters):
            return {"all": [_filter_to_json(one) for one in filters]}
        case AnyOf(filters):
            return {"any": [_filter_to_json(one) for one in filters]}
        case Not(negated):
            return {"not": _filter_to_json(negated)}
    return reference(predicate)


_FILTERS: Final[dict[str, Callable[[Any], Filter]]] = {
    "has_type": lambda types: has_type(*map(_from_json, types)),
    "has_tag": lambda tags: has_tag(*tags),
    "has_header": lambda words: has_header(*map(_from_json, words)),
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
        f"{data!r} is no filter. Write 'module:function', or a mapping with one of the keys {quoted(_FILTERS)}: "
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
        return {"kind": effect.kind, **_object_to_json(effect, f"effects={{{name!r}: ...}}")}
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


def _effects_from_json(data: bool | Mapping[str, Any]) -> Any:
    return data if isinstance(data, bool) else {name: _effect_from_json(one) for name, one in data.items()}


def _effect_from_json(data: Mapping[str, Any]) -> Effect:
    if data["kind"] in (Http.kind, Once.kind):
        return call_from_json(data)
    if data["kind"] in (TransactionalTarget.kind, TargetPart.kind, Published.kind):
        found: Effect = _object_from_json(data)
        return found
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
        f"{data['kind']!r} is no kind of effect. This release knows 'sql', 'table', 'upsert', 'blobs', "
        "'file-table', 'http', 'once', 'target' and 'target-part'."
    )


# --- Feeds


HIDDEN = "hidden"
"""In the metadata of a source's field: it may hold a password, and is not written down."""


def _feed_to_json(feed: Feed) -> dict[str, Any]:
    data, source = feed.arguments(), _object_to_json(feed.source, f"{feed.label}: its source")
    own = {"commit": asdict(data["commit"])} if "commit" in data else {}
    own |= {"errors": _errors_to_json(data["errors"])} if "errors" in data else {}
    del data["source"]
    return {"feed": data.pop("name"), **data, **own, "from": source}


def _object_to_json(given: Any, what: str) -> dict[str, Any]:
    """An object of a dataclass, which may be the user's; `what` is how errors call it."""
    if not is_dataclass(given):
        raise GraphError(f"{what} cannot be written down. Make {type(given).__name__} a dataclass.")
    values = {each.name: getattr(given, each.name) for each in fields(given) if each.init}
    for each in fields(given):
        if each.metadata.get(HIDDEN) and values.pop(each.name, None):
            raise GraphError(
                f"{what} cannot be written down: its address would be in the text. Name the environment variable that "
                f'holds it: {type(given).__name__}(env="SHOP_DATABASE").'
            )
    settings = {
        name: {"$object": _object_to_json(value, what)} if is_dataclass(value) else _to_json(value)
        for name, value in values.items()
    }
    return {"class": reference(type(given)), "settings": settings}


def _object_from_json(written: Mapping[str, Any]) -> Any:
    """Make what `_object_to_json` wrote."""
    return resolve(written["class"])(**{name: _from_json(one) for name, one in written.get("settings", {}).items()})


def _feed_from_json(data: Mapping[str, Any]) -> Feed:
    source = _object_from_json(data["from"])
    own = {name: one for name, one in data.items() if name not in {"feed", "from"}}
    if "commit" in own:
        own["commit"] = _made(CommitPolicy, own["commit"], "commit")
    if "errors" in own:
        own["errors"] = _errors_from_json(own["errors"])
    return _made(Feed, {"source": source, "name": data["feed"], **own}, f"the feed {data['feed']!r}")


# --- Parts


_WRITERS: Final[dict[str, Callable[[Any], Any]]] = {
    "fn": reference,
    "errors": _errors_to_json,
    "filter": _filter_to_json,
    "retry": _retry_to_json,
    "commit": asdict,
    "effects": _effects_to_json,
    "into": _into_to_json,
    "state": lambda stores: {name: _store_to_json(store) for name, store in stores.items()},
    "tables": lambda tables: {name: _table_to_json(table) for name, table in tables.items()},
    "opts": lambda opts: {name: _to_json(item) for name, item in opts.items()},
    "tailers": dict,
    "appenders": dict,
    "start": _to_json,
}


def _part_to_json(part: Declaration) -> dict[str, Any]:
    if isinstance(part, Source):
        given = {each.name: (getattr(part, each.name), each.default) for each in fields(part)[1:]}
        return {"source": part.topic, **{name: one for name, (one, default) in given.items() if one != default}}
    if isinstance(part, Feed):
        return _feed_to_json(part)
    data = {name: _WRITERS[name](item) if name in _WRITERS else item for name, item in part.arguments().items()}
    return {"processor" if isinstance(part, Processor) else "dataframe": data.pop("name"), **data}


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
                    found[name] = _WRITERS.get(name, _to_json)(value)
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


def _part_from_json(data: Any) -> Declaration:
    kinds = [kind for kind in _KINDS if kind in data] if isinstance(data, Mapping) else []
    if len(kinds) != 1:
        raise GraphError(
            f"A part is a mapping with one of the keys {quoted(_KINDS)}, which has its name: not {data!r:.200}."
        )
    [kind] = kinds
    own = dict(data)
    if kind == "source":
        return _made(Source, {"topic": own.pop(kind), **own}, f"the source {data[kind]!r}")
    if kind == "feed":
        return _feed_from_json(own)
    readers: dict[str, Callable[[Any], Any]] = {
        "fn": resolve,
        "errors": _errors_from_json,
        "filter": _filter_from_json,
        "retry": _retry_from_json,
        "commit": lambda limits: _made(CommitPolicy, limits, "commit"),
        "effects": _effects_from_json,
        "into": _effect_from_json,
        "state": lambda stores: {name: _store_from_json(store) for name, store in stores.items()},
        "tables": lambda tables: {name: _table_from_json(table) for name, table in tables.items()},
        "opts": lambda opts: {name: _from_json(item) for name, item in opts.items()},
        "start": _from_json,
    }
    arguments = {"name": own.pop(kind)}
    arguments |= {key: readers[key](item) if key in readers else item for key, item in own.items()}
    return _made(_KINDS[kind], arguments, f"the {kind} {data[kind]!r}")


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
    """See `Graph.to_dict`."""
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
