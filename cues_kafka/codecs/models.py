"""Fields of a pydantic model, for programs that have pydantic: this package does not need it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple

from cues_kafka.errors import GraphError
from cues_kafka.graph.declare import Alias, Digits


class ModelField(NamedTuple):
    """
    A field of a model.

    Attributes:
        name: as in the class.
        annotation: with what stands beside the type.
        default: makes the value of a field that is missing; None: the field is required.
        alias: its name in messages where that is another one; the constructor takes it by that name, too.
    """

    name: str
    annotation: Any
    default: Callable[[], Any] | None
    alias: str | None


def is_model(cls: type[Any]) -> bool:
    """Whether a class is a pydantic model with fields."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(cls, pydantic.BaseModel) and not issubclass(cls, pydantic.RootModel)


def validates(cls: type[Any]) -> bool:
    """Whether pydantic makes the instances: of a model, and of a dataclass of its own."""
    return hasattr(cls, "__pydantic_validator__")


def why_refused(cls: type[Any], error: ValueError) -> str:
    """The text of a `ValidationError` without the values, which logs must not show."""
    found = error.errors(include_url=False, include_context=False, include_input=False)  # type: ignore[attr-defined]
    return "; ".join(f"{'.'.join(map(str, (cls.__name__, *each['loc'])))}: {each['msg']}" for each in found)


def model_fields(cls: type[Any]) -> Iterator[ModelField]:
    """
    The fields that travel.

    Raises:
        GraphError: a field has several names.
    """
    cls.model_rebuild()  # annotations may name what came later in the module
    for name, info in cls.model_fields.items():
        alias = info.validation_alias
        if not isinstance(alias, str | None) or any(isinstance(one, Alias) for one in info.metadata):
            raise GraphError(f"{cls.__name__}.{name}: a field has one name in messages. Write Field(alias='...').")
        notes = [*info.metadata, *_digits(info.metadata)]
        annotation = Annotated[(info.annotation, *notes)] if notes else info.annotation
        yield ModelField(name, annotation, _default(info), None if alias == name else alias)


def _digits(notes: list[Any]) -> list[Digits]:
    """What `Field(max_digits=12, decimal_places=2)` says."""
    found: dict[str, int] = {}
    for note in notes:
        for key in ("max_digits", "decimal_places"):
            if (value := getattr(note, key, None)) is not None:
                found[key] = value
    return [Digits(found["max_digits"], found["decimal_places"])] if len(found) == 2 else []


def _default(info: Any) -> Callable[[], Any] | None:
    if info.is_required() or (info.default_factory is not None and info.default_factory_takes_validated_data):
        return None
    return lambda: info.get_default(call_default_factory=True)
