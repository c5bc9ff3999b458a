"""The functions that check or make one record, generated for its fields, as `dataclasses` generates `__init__`.

A loop over the fields takes longer than fastavro does for all of them. Of a schema and a class only attributes get into
the source, which are Python names; all else is a literal or a variable.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import length_hint
from typing import Any, NamedTuple, TypeAlias

from cues_kafka.errors import CuesError

Convert: TypeAlias = Callable[[Any], Any]


class AvroRecord(dict[str, Any]):
    """
    A record or a map that was one of several in a union: a dict that knows which.

    Attributes:
        record_name: its full name, which `has_type` compares, too; of a map "map".
    """

    __slots__ = ("record_name",)

    def __init__(self, record_name: str, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.record_name = record_name

    def __reduce__(self) -> tuple[Any, ...]:
        return AvroRecord, (self.record_name, dict(self))


@dataclass(eq=False)
class Unfit(Exception):
    """A value that does not fit. On its way out each container adds its own part of the path."""

    expected: str
    found: str
    path: list[str] = field(default_factory=list)

    def text(self, root: str) -> str:
        """`Order.lines[3].price: expected decimal(12, 2), got text`."""
        return f"{root}{''.join(reversed(self.path))}: expected {self.expected}, got {self.found}"


class RefusedByClass(Unfit):
    """
    A class refuses a value when it validates itself: `Order.lines[3]: ValueError: no such article`.

    Attributes:
        error: what the class raised.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__("a value that the class takes", type(error).__name__)
        self.error = error

    def text(self, root: str) -> str:
        """With what the class says."""
        said = f"{type(self.error).__name__}: {self.error}"[:300].rstrip(": ")
        return f"{root}{''.join(reversed(self.path))}: {said}"


def unfit_at(error: Exception, *parts: str) -> Exception:
    """
    What to raise for an error that came while a value was made.

    Args:
        error: `Unfit`, or what a class raises; an error of ours, such as that a registry does not answer, stays.
        parts: of the path to it, the innermost first.
    """
    if isinstance(error, CuesError):
        return error
    unfit = error if isinstance(error, Unfit) else RefusedByClass(error)
    unfit.path.extend(parts)
    return unfit


class ToWrite(NamedTuple):
    """
    A field of a record that is written.

    Attributes:
        name: in the schema.
        attribute: in the class.
        types: of values that fit and are plain; none: `convert` looks at each.
        convert: checks a value and makes it plain.
    """

    name: str
    attribute: str
    types: tuple[type[Any], ...]
    convert: Convert


class ToRead(NamedTuple):
    """
    A field of a record that is read.

    Attributes:
        name: in the schema.
        attribute: in the class.
        build: makes the value of what fastavro gives; None: it is the value.
        many: the value is a list, and `build` makes each item.
    """

    name: str
    attribute: str
    build: Convert | None
    many: bool = False


def writer(cls: type[Any] | None, fields: Sequence[ToWrite], slowly: Convert) -> Convert:
    """
    Generate what gives a record as fastavro takes it.

    Args:
        cls: whose instances are written; None: dicts.
        fields: those that are written.
        slowly: takes all other values, and those that do not fit; says where.
    """
    names: dict[str, Any] = {"cls": cls, "dict": dict, "AvroRecord": AvroRecord, "slowly": slowly, "Unfit": Unfit}
    same = all(each.name == each.attribute for each in fields)
    # fastavro takes from a dict what the schema names: what is looked at here is then what it writes
    whole = "value" if cls is None else "kept" if same and keeps_fields(cls) else None
    gets, tests, converts, items = ["kept = value.__dict__"] if whole == "kept" else [], [], [], []
    for n, each in enumerate(fields):
        gets.append(f"v{n} = {f'{whole}[{each.name!r}]' if whole else f'value.{each.attribute}'}")
        items.append(f"{each.name!r}: v{n}")
        if each.types:
            names |= {f"t{n}_{place}": one for place, one in enumerate(each.types)}
            tests.append("(" + " or ".join(f"type(v{n}) is t{n}_{at}" for at in range(len(each.types))) + ")")
        else:
            names[f"c{n}"] = each.convert
            converts += [f"at = {'.' + each.name!r}", f"v{n} = c{n}(v{n})"]
    other = "type(value) is not cls"
    if cls is None:
        other = f"type(value) is not dict and type(value) is not AvroRecord or len(value) != {len(fields)}"
    body = [f"if {other}:", "    return slowly(value)"]
    if gets:
        body += ["try:", *_inside(gets), "except (AttributeError, KeyError):", "    return slowly(value)"]
    if tests:
        body += [f"if not ({' and '.join(tests)}):", "    return slowly(value)"]
    if converts:
        body += ["try:", *_inside(converts), "except Unfit as unfit:", "    unfit.path.append(at)", "    raise"]
    given = whole if whole and not converts else "{" + ", ".join(items) + "}"
    return _generated("value", [*body, f"return {given}"], names)


def reader(cls: type[Any], fields: Sequence[ToRead], *, exact: bool) -> Convert:
    """
    Generate what makes an instance, or a dict, of the dict that fastavro gives.

    Args:
        cls: of the instances; dict: the dict itself is the value.
        fields: of the class.
        exact: whether the dict has no others.
    """
    names: dict[str, Any] = {"cls": cls, "unfit_at": unfit_at, "length_hint": length_hint}
    body, builds = [], []
    if not exact:
        own = ", ".join(f"{each.name!r}: found[{each.name!r}]" for each in fields)
        body += [f"if len(found) > {len(fields)}:", f"    found = {{{own}}}"]
    for n, each in enumerate(fields):
        if each.build is not None:
            names[f"b{n}"] = each.build
            value = f"found[{each.name!r}]"
            builds.append(f"at = {'.' + each.name!r}")
            if each.many:
                builds += [f"rest = iter({value})", f"{value} = [*map(b{n}, rest)]", "rest = None"]
            else:
                builds.append(f"{value} = b{n}({value})")
    if builds:
        item = "() if rest is None else (f'[{len(found[at[1:]]) - length_hint(rest) - 1}]',)"
        body += ["rest = None", "try:", *_inside(builds), "except Exception as error:"]
        body.append(f"    raise unfit_at(error, *({item}), at) from None")
    if any(each.name != each.attribute for each in fields):
        body.append("found = {" + ", ".join(f"{each.attribute!r}: found[{each.name!r}]" for each in fields) + "}")
    if cls is dict:
        body.append("return found")
    elif only_keeps(cls):
        names |= {"new": object.__new__, "fill": _own_dict(cls).__set__}
        body += ["made = new(cls)", "made.__dict__ = found" if _assigns(cls) else "fill(made, found)", "return made"]
    else:
        body.append("return cls(**found)")
    return _generated("found", body, names)


def _inside(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _generated(parameter: str, body: Sequence[str], names: Mapping[str, Any]) -> Convert:
    """A function of one parameter; the names of its source are variables around it."""
    source = [
        f"def around({', '.join(names)}):",
        f"    def convert({parameter}):",
        *_inside(_inside(body)),
        "    return convert",
    ]
    made: dict[str, Any] = {}
    exec("\n".join(source), made)  # noqa: S102  see the module
    convert: Convert = made["around"](**names)
    return convert


def _own_dict(cls: type[Any]) -> Any:
    """What sets the `__dict__` of an instance, also of a frozen one."""
    return next(vars(base)["__dict__"] for base in cls.__mro__ if "__dict__" in vars(base))


def keeps_fields(cls: type[Any]) -> bool:
    """Whether instances of a dataclass have their fields in `__dict__`: in no slot, and behind no property."""
    usual: Any = object.__getattribute__
    if not dataclasses.is_dataclass(cls) or cls.__getattribute__ is not usual:
        return False
    if not any("__dict__" in vars(base) for base in cls.__mro__):
        return False
    found = (
        vars(base)[each.name] for each in dataclasses.fields(cls) for base in cls.__mro__ if each.name in vars(base)
    )
    return not any(hasattr(type(one), "__set__") for one in found)


def only_keeps(cls: type[Any]) -> bool:
    """Whether making an instance only keeps its fields, so that `__init__` can be left out."""
    new: Any = cls.__new__
    params = vars(cls).get("__dataclass_params__")
    if params is None or not params.init or hasattr(cls, "__post_init__") or new is not object.__new__:
        return False
    init, fields = vars(cls).get("__init__"), dataclasses.fields(cls)
    if (
        not (_assigns(cls) or _by_dataclass(cls.__setattr__))
        or not _by_dataclass(init)
        or not all(each.init for each in fields)
    ):
        return False
    code = init.__code__  # an InitVar is passed, and is no field
    return keeps_fields(cls) and code.co_argcount + code.co_kwonlyargcount == len(fields) + 1


def _assigns(cls: Any) -> bool:
    """Whether attributes are set as usual: the class is not frozen, and has no way of its own."""
    usual: Any = object.__setattr__
    return cls.__setattr__ is usual


def _by_dataclass(function: Any) -> bool:
    """Whether `dataclasses` generated a method."""
    return getattr(getattr(function, "__code__", None), "co_filename", "") == "<string>"
