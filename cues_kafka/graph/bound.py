"""`BoundFunction`: a function and the topics that it is bound to, which processors of both kinds are."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, TypeAlias

from cues_kafka.arguments import given_arguments
from cues_kafka.errors import GraphError
from cues_kafka.graph.kind import InputShape, OutputShape
from cues_kafka.graph.names import check_name, check_topic, check_written_topic
from cues_kafka.graph.topic import check_choice, read_only, set_fields

Bindings: TypeAlias = tuple[tuple[str, str], ...]
"""(binding, topic) pairs in the order of declaration."""


@dataclass(frozen=True, slots=True, init=False)
class BoundFunction:
    """
    A function and the topics that it is bound to; what processors of both kinds have in common.

    Attributes:
        fn: the function.
        name: its name in the graph; by default the function's.
        inputs: (binding, topic) of each input in the order of declaration, also for alts.
        input_shape: single, join (the k-th message of each input) or alts (one of any).
        outputs: (binding, topic) of each output.
        output_shape: none, one (``outputs="topic"``) or many (``outputs={...}``).
        by_name: whether inputs are passed by name.
    """

    fn: Callable[..., Any]
    name: str
    inputs: Bindings
    input_shape: InputShape
    outputs: Bindings
    output_shape: OutputShape
    by_name: bool

    def _bind(self, fn: Callable[..., Any], name: str | None, inputs: Any, alts: Any, outputs: Any) -> None:
        set_fields(self, fn=fn, name=_name_of(fn) if name is None else name)
        check_name(self.name, self.label)
        input_shape, input_bindings = _inputs(inputs, alts, self.label)
        output_shape, output_bindings = _outputs(outputs, self.label)
        set_fields(self, inputs=input_bindings, input_shape=input_shape, by_name=not isinstance(inputs, str))
        set_fields(self, outputs=output_bindings, output_shape=output_shape)

    @property
    def label(self) -> str:
        """How error messages name the processor."""
        return f"{type(self).__name__} {self.name!r}"

    @property
    def inputs_word(self) -> str:
        """The argument that declared the inputs: inputs or alts."""
        return "alts" if self.input_shape == "alts" else "inputs"

    @property
    def input_topics(self) -> tuple[str, ...]:
        """Topics of the inputs, in order."""
        return tuple(topic for _, topic in self.inputs)

    @property
    def read_topics(self) -> tuple[str, ...]:
        """All topics that it reads."""
        return self.input_topics

    @property
    def output_topics(self) -> tuple[str, ...]:
        """All topics that it writes, without its errors topic."""
        return tuple(topic for _, topic in self.outputs)

    def offsets_of(self, binding: str) -> Mapping[int, int]:
        """The offsets that `start=` names of this input's partitions; empty if it names none."""
        start: Any = getattr(self, "start", None)
        if not isinstance(start, Mapping):
            return {}
        return start.get(binding, {}) if len(self.inputs) > 1 else start

    def arguments(self) -> dict[str, Any]:
        """The arguments that construct an equal processor; those that equal a default are left out."""
        own: dict[str, Any] = {"fn": self.fn, "name": self.name}
        own[self.inputs_word] = dict(self.inputs) if self.by_name else self.inputs[0][1]
        if self.outputs:
            own["outputs"] = dict(self.outputs) if self.output_shape == "many" else self.outputs[0][1]
        settings = [each.name for each in fields(self) if each.compare and each.name not in BoundFunction.__slots__]
        return own | given_arguments(self, settings)


def _name_of(fn: Any) -> str:
    if isinstance(fn, str):
        raise GraphError(f"Processor({fn!r}): a name is not a function. Write Processor(function, name={fn!r}, ...).")
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = str(getattr(fn, "__name__", None) or type(fn).__name__)
    if name == "<lambda>":
        raise GraphError('A lambda has no name of its own. Write Processor(lambda ..., name="...").')
    return name


def check_mapping(value: Any, what: str) -> Mapping[str, Any]:
    """A read-only copy of `opts=`, `state=` or another mapping by name; empty for None."""
    if value is None:
        return read_only({})
    if not isinstance(value, Mapping):
        raise GraphError(f'{what}={value!r}: takes a mapping. Write {what.rpartition(" ")[2]}={{"name": ...}}.')
    for name in value:
        if not isinstance(name, str):
            raise GraphError(f"{what}= has the name {name!r}. Names are strings.")
    return read_only(value)


def bound_topics(value: Any, label: str, what: str, check: Callable[[object, str], str] = check_topic) -> Bindings:
    """The pairs of a mapping from bindings to topics, checked."""
    place = f"{label}, {what}="
    if not isinstance(value, Mapping):
        raise GraphError(f'{label}: {what}={value!r}: takes a mapping. Write {what}={{"binding": "topic"}}.')
    return tuple((check_name(binding, place), check(topic, place)) for binding, topic in value.items())


def _inputs(inputs: Any, alts: Any, label: str) -> tuple[InputShape, Bindings]:
    shape: InputShape = "single"
    pairs: Bindings = ()
    if inputs is not None and alts is not None:
        raise GraphError(f"{label}: inputs= (one of each) and alts= (one of any) exclude each other. Drop one of them.")
    if isinstance(alts, str):
        raise GraphError(f'{label}: alts={alts!r} is one topic. Write inputs={alts!r}, or alts={{"binding": "topic"}}.')
    if alts is not None:
        shape, pairs = "alts", bound_topics(alts, label, "alts")
    elif isinstance(inputs, str):
        pairs = (("input", check_topic(inputs, f"{label}, inputs=")),)
    elif inputs is not None:
        pairs = bound_topics(inputs, label, "inputs")
        shape = "join" if len(pairs) > 1 else "single"
    if not pairs:
        raise GraphError(
            f"{label} has no inputs. Give inputs= or alts=; where messages enter the graph, write Source(topic)."
        )
    return shape, pairs


def _outputs(outputs: Any, label: str) -> tuple[OutputShape, Bindings]:
    if outputs is None:
        return "none", ()
    if isinstance(outputs, str):
        return "one", (("output", check_written_topic(outputs, f"{label}, outputs=")),)
    pairs = bound_topics(outputs, label, "outputs", check_written_topic)
    if not pairs:
        raise GraphError(f"{label}: outputs={{}} is empty. Name a topic, or drop outputs= (a sink).")
    return "many", pairs


def fixed_place(start: Any) -> Any:
    """A place in which nothing can be changed any more."""
    if not isinstance(start, Mapping):
        return start
    return types.MappingProxyType({key: fixed_place(item) for key, item in start.items()})


def check_place(start: Any, label: str, words: tuple[str, ...]) -> None:
    """Check a `start=`: one of these words, a time with a zone, or an offset of each partition."""
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise GraphError(f"{label}: start={start!r} has no zone. Write datetime(..., tzinfo=UTC).")
    elif not isinstance(start, Mapping):
        check_choice(start, words, f"{label}: start")
    else:
        whole = [number for pair in start.items() for number in pair]
        if not whole or any(not isinstance(number, int) or isinstance(number, bool) or number < 0 for number in whole):
            raise GraphError(
                f"{label}: start={dict(start)!r}. Write the offset of each partition: start={{0: 17, 1: 4}}."
            )
