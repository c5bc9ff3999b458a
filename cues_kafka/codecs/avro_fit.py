"""Whether a class can hold what a schema gives: fastavro makes the schema's values, and no dataclass looks at them."""

from __future__ import annotations

from collections.abc import Iterator

from cues_kafka.codecs.schema import (
    Anything,
    Choice,
    Items,
    Mapped,
    Null,
    OneOf,
    Ref,
    Scalar,
    Shape,
    Structure,
    shape_name,
)


def misfits(given: Shape, own: Shape, where: str) -> Iterator[str]:
    """
    The fields whose values would not be of the declared type.

    Args:
        given: the shape of the schema.
        own: the shape of the class.
        where: its name, for the texts.
    """
    options = given.options if isinstance(given, OneOf) else (given,)
    declared = own.options if isinstance(own, OneOf) else (own,)
    for option in options:
        found = [[*_against(option, one, where)] for one in declared]
        if all(found):
            yield from min(found, key=len) if len(declared) == 1 else [_text(option, own, where)]


def _against(given: Shape, own: Shape, where: str) -> Iterator[str]:
    match given, own:
        case (_, Anything()) | (Null(), Null()) | (Ref(), Structure() | Ref()) | (Structure(), Ref()):
            return
        case Scalar(cls), Scalar(wanted):
            fits = cls is wanted or (cls is int and wanted is float)
        case Scalar(cls), Choice(values):
            fits = all(type(value) is cls for value in values)
        case Choice(), Scalar(wanted):
            fits = wanted is str
        case Choice(), Choice(values):
            fits = all(type(value) is str for value in values)
        case (Items(item), Items(inner)) | (Mapped(item), Mapped(inner)):
            yield from misfits(item, inner, f"{where}[]")
            return
        case Structure(_, fields), Structure(_, wanted_fields):
            shapes = {each.wire_name: each.shape for each in fields}
            for each in wanted_fields:
                if each.wire_name in shapes:
                    yield from misfits(shapes[each.wire_name], each.shape, f"{where}.{each.name}")
            return
        case Structure(), Mapped(Anything()):
            return
        case _:
            fits = False
    if not fits:
        yield _text(given, own, where)


def _text(given: Shape, own: Shape, where: str) -> str:
    return f"{where} is declared as {shape_name(own)}, and the schema gives {shape_name(given)}"
