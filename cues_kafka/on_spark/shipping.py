"""Ship modules and classes from the driver to Spark's Python processes, and rehearse their use.

The user's modules travel by value, so they need not be copied to the executors. By value, a class takes the globals
along that its methods use, but not those that only its annotations name. Under `from __future__ import annotations` the
text "datetime" arrives without the module in which it could be looked up. So the driver looks annotations up before it
ships them.
"""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import sys
import sysconfig
import typing
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

from cues_kafka.brokers.options import Kafka
from cues_kafka.brokers.tokens import portable
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.codecs.models import is_model
from cues_kafka.codecs.schema import classes_of, describe, forget_decoders, is_struct
from cues_kafka.errors import ConfigError, CuesError
from cues_kafka.graph.declare import CodecSpec
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.error_message import ErrorMessages
from cues_kafka.graph.formats import Protobuf
from cues_kafka.observe.log import get_logger
from cues_kafka.on_spark.in_arrow import map_in_arrow

log = get_logger("cues_kafka.spark")

_pickle: Any = cloudpickle  # its functions have no types

_UNPICKLED = (pickle.PicklingError, TypeError, AttributeError, RecursionError)


class NotShipped(ConfigError):
    """Spark's Python processes cannot use what the driver sends them. Change the declaration as the message says."""


def ship(graph: Graph) -> None:
    """
    Make a graph ready to be sent to Spark's processes.

    Raises:
        GraphError: the class of `Json(cls)` of a topic has a field that cannot travel.
    """
    ship_codecs([graph.topic(name).value for name in graph.topics_used()])


def ship_codecs(declared: Iterable[CodecSpec]) -> None:
    """Make codecs ready to be sent to Spark's processes, see `ship`."""
    ship_modules()
    for one in declared:
        if one.record and not isinstance(one, Protobuf | ErrorMessages):
            resolve_annotations(one.record)


def ship_modules() -> None:
    """
    Let Spark's processes get the user's modules by value, as they are here, so that users need not copy or zip them.

    A module counts as the user's if it does not lie where packages are installed. Those that protoc generated cannot
    travel by value: where messages are declared their descriptions travel, and other code imports them.
    """
    _pickle.CloudPickler.dispatch_table[typing.NewType] = _new_type  # otherwise it travels as the name of its module
    paths = sysconfig.get_paths()
    installed = [Path(paths[key]).resolve() for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    ours = Path(__file__).resolve().parents[1]
    known = _pickle.list_registry_pickle_by_value()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is None or name == "__main__" or name in known or _is_generated(module):
            continue
        path = Path(file).resolve()
        if not any(path.is_relative_to(place) for place in (*installed, ours)):
            _pickle.register_pickle_by_value(module)


def _is_generated(module: Any) -> bool:
    return hasattr(getattr(module, "DESCRIPTOR", None), "serialized_pb")


def _new_type(one: typing.NewType) -> tuple[Any, ...]:
    return typing.NewType, (one.__name__, one.__supertype__)


def resolve_annotations(annotation: Any) -> None:
    """
    Replace names in the annotations of dataclasses by what they name, as if the classes had been written so.

    Args:
        annotation: a dataclass, or any other annotation that `describe` takes; all dataclasses in it count.

    Raises:
        NotShipped: a `msgspec.Struct` would arrive without its fields, and a pydantic model as another class.
    """
    shape = describe(annotation, models=True)
    forget_decoders(shape)  # which the user's own code made
    for cls in dict.fromkeys(classes_of(shape)):
        if (is_struct(cls) or is_model(cls)) and _goes_by_value(cls):
            kind = "msgspec.Struct" if is_struct(cls) else "pydantic model"
            raise NotShipped(
                f"{cls.__name__}: a {kind} cannot be sent to Spark's Python processes. Declare a dataclass, or "
                "put it into a package that is installed where the executors are"
            )
        if dataclasses.is_dataclass(cls):
            _resolve(cls)


def _resolve(cls: type[Any]) -> None:
    for base in cls.__mro__:
        if own := inspect.get_annotations(base):
            hints = typing.get_type_hints(base, include_extras=True)
            base.__annotations__ = {name: hints[name] for name in own}


def _goes_by_value(cls: type[Any]) -> bool:
    """Whether a class is sent as a whole, not as the name of its module."""
    modules = _pickle.list_registry_pickle_by_value()
    parents = cls.__module__.split(".")
    named = any(".".join(parents[: n + 1]) in modules for n in range(len(parents)))
    return named or cls.__module__ == "__main__" or "<locals>" in cls.__qualname__


def ship_options(options: Kafka) -> Kafka:
    """
    Return the cluster as Spark's processes can use it, with the function that gives tokens by value.

    Raises:
        ConfigError: `oauth=` names no function.
        NotShipped: the function cannot be shipped.
    """
    found = portable(options)
    if found is options:
        return options
    ship_modules()
    try:
        _pickle.dumps(found)
    except _UNPICKLED as error:
        raise NotShipped(
            f"oauth: the function that gives tokens cannot be sent to Spark's Python processes ({type(error).__name__}:"
            f" {error}). Open connections and make locks inside the function, or put it into a package that is "
            "installed where the executors are"
        ) from error
    return found


def packed(value: Any, codecs: Iterable[tuple[CodecSpec, MadeFor]]) -> bytes:
    """
    Pack what Spark's processes get, as bytes.

    Args:
        value: what a Spark task needs.
        codecs: what a Spark task makes its codecs of, see `codec_for`.

    Raises:
        NotShipped: something in it cannot be shipped.
    """
    try:
        return bytes(_pickle.dumps((value, list(codecs))))
    except _UNPICKLED as error:
        raise NotShipped(
            f"this graph cannot be sent to Spark's Python processes ({type(error).__name__}: {error}). Make in a "
            "factory of system= what one process cannot send to another: connections, locks, open files"
        ) from error


def rehearse(session: Any, data: bytes, width: int, *, frames: bool) -> None:
    """
    Let Spark's processes unpack what they will get, and make its codecs, before a query starts.

    The same processes serve the query's first batch, and by then have imported what it needs. Those of DataFrames have
    another environment than those of other jobs, so Spark has a daemon for each.

    Args:
        session: of Spark, with its Java.
        data: see `packed`.
        width: number of tasks of the processor.
        frames: whether the query computes DataFrames.

    Raises:
        NotShipped: they cannot unpack it.
        PySparkException: the job failed for another reason.
    """
    tasks, unpack = min(width, session.sparkContext.defaultParallelism), _Unpack(data)
    if frames:
        rows = map_in_arrow(session.range(0, tasks, 1, tasks), unpack.rows, "told STRING").collect()
        found = [row.told for row in rows]
    else:
        found = session.sparkContext.parallelize(range(tasks), tasks).mapPartitions(unpack).collect()
    if told := next(iter(found), ""):
        raise NotShipped(f"Spark's Python processes cannot use this graph: {told}")
    log.info("rehearsed", tasks=tasks)


class _Unpack:
    """
    The function of the job: return why it cannot be unpacked, or nothing.

    An exception would make Spark print pages.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data

    def rows(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The same for a job of DataFrames."""
        told = [text for _ in batches for text in self(())]
        yield pa.RecordBatch.from_pydict({"told": pa.array(told, pa.string())})

    def __call__(self, _: Iterable[int]) -> Sequence[str]:
        try:
            _, codecs = pickle.loads(self._data)  # noqa: S301 - the driver's own bytes
            for declared, made_for in codecs:
                codec_for(declared, made_for)
        except ImportError as error:
            return [f"{error}. Install it where the executors are, with the same Python"]
        except CuesError as error:
            return [str(error)]
        except Exception as error:  # noqa: BLE001 - unpacking runs code of the user's modules
            return [f"{type(error).__name__}: {error}"]
        return []
