"""
The table of extras in docs/install.md: what each one adds, and how large it is when installed.

``python -m tests.install.extras --write`` measures the environment, which holds the locked version of every extra, and
writes the table into the page. A size is the sum of all files that the packages' records name, without compiled Python.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "install.md"

HEAD = "| extra | for | brings | packages | size |\n| --- | --- | --- | --- | --- |\n"

FOR: Mapping[str, str] = {
    "": "everything else",
    "amqp": "[brokers of AMQP 1.0](amqp.md), in and out; built with a C compiler",
    "arrow": '[functions with columns](columns.md), `batch="arrow"`',
    "blobs": "[Parquet files, JSON lines and objects](files.md), in directories and in S3",
    "delta": "[tables of Delta Lake](delta.md), in directories and in S3",
    "demo": "the demos, `make demo` in a clone",
    "disk": "[stores in a file](state.md#on-disk), `Store(on_disk=True)`",
    "http": "[calls of servers](calls.md), `Http(...)`",
    "ibmmq": "[IBM MQ](ibmmq.md), in and out; needs IBM's C client besides; not run against a real "
    "IBM MQ; tested on a fake of its client",
    "jsonschema": "[JSON Schema](schemas.md#use-json-schema), `JsonSchema(...)`",
    "local": "a Java runtime for `cues-kafka broker up`, where no Java is installed; Kafka itself comes by "
    "[Maven, pyspark or Docker](quick-start.md)",
    "metrics": "[Prometheus metrics](watch.md#serve-health-and-metrics), `cues-kafka run --http`",
    "mqtt": "[MQTT brokers](bridges.md#mqtt), in and out",
    "mysql": "[MariaDB and MySQL](effects.md), and an [outbox](feeds.md#an-outbox-in-a-database) there",
    "openlineage": "[lineage events to a server](watch.md#tell-a-catalog-of-data)",
    "postgres": "[PostgreSQL](effects.md), and an [outbox](feeds.md#an-outbox-in-a-database) there",
    "protobuf": "[Protobuf](schemas.md#use-protobuf), `Protobuf(...)`",
    "rabbitmq": "[RabbitMQ](bridges.md#rabbitmq): queues, in and out; its streams need no extra",
    "registry": "a [schema registry](schemas.md#use-a-registry), `Registry(...)`",
    "spans": "[spans of OpenTelemetry](watch.md#trace-messages-from-hop-to-hop), `cues-kafka run --spans`",
    "spark": "[Spark](spark.md); needs Java 17 or 21 besides",
    "testing": "[tests of your graphs](testing.md) with pytest, on a real broker",
    "testing-containers": "a broker and a schema registry [in containers](testing.md#servers-in-containers) for tests",
}
"""What an extra is for; the empty name is the core."""


class Measured(NamedTuple):
    """
    What an extra adds to the core, here.

    Attributes:
        direct: the packages that pyproject.toml names.
        packages: all packages that are not in the core.
        missing: those of them that are not installed here.
        size: in bytes; that of the core has this package in it.
    """

    direct: tuple[str, ...]
    packages: tuple[str, ...]
    missing: tuple[str, ...]
    size: int


def project() -> dict[str, Any]:
    """The table `project` of pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def measure() -> dict[str, Measured]:
    """The core, under the empty name, and every extra."""
    declared = project()
    core = closure(declared["dependencies"])
    extras = {name: closure(wanted) for name, wanted in sorted(declared["optional-dependencies"].items())}
    direct = {"": declared["dependencies"], **declared["optional-dependencies"]}
    found = {"": core} | {
        name: {package: of for package, of in needed.items() if package not in core} for name, needed in extras.items()
    }
    return {
        name: Measured(
            tuple(canonicalize_name(Requirement(text).name) for text in direct[name]),
            tuple(sorted(needed)),
            tuple(sorted(package for package, of in needed.items() if of is None)),
            sum(size(of) for of in needed.values() if of is not None) + (0 if name else own()),
        )
        for name, needed in found.items()
    }


def closure(wanted: Iterable[str]) -> dict[str, metadata.Distribution | None]:
    """The packages that these requirements bring, by name; None: it is not installed."""
    found: dict[str, metadata.Distribution | None] = {}
    seen = set()
    left: list[tuple[Requirement, Sequence[str]]] = [(Requirement(text), ("",)) for text in wanted]
    while left:
        requirement, of = left.pop()
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in of):
            continue
        name, extras = canonicalize_name(requirement.name), ("", *sorted(requirement.extras))
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            found[name] = None
        else:
            left += [(Requirement(text), extras) for text in metadata.requires(name) or ()]
    return found


def size(of: metadata.Distribution) -> int:
    """Bytes of the files of a package; what Python compiled is left out."""
    paths = [Path(str(file.locate())) for file in of.files or () if file.suffix != ".pyc"]
    return sum(path.stat().st_size for path in paths if path.is_file())


def own() -> int:
    """Bytes of this package, as its wheel installs it."""
    files = [path for folder in ("cues_kafka", "schemas") for path in (ROOT / folder).rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files if path.suffix != ".pyc")


def row(name: str, measured: Measured) -> str:
    """A line of the table."""
    title = f"`{name}`" if name else "none"
    brought = ", ".join(measured.direct)
    return f"| {title} | {FOR[name]} | {brought} | {len(measured.packages)} | {megabytes(measured.size)} |"


def megabytes(of: int) -> str:
    """A size with two digits."""
    number = of / 1e6
    return f"{number:.1f} MB" if number < 10 else f"{number:.0f} MB"


def written() -> dict[str, list[str]]:
    """The table of the page: the cells of each row, by extra."""
    text = PAGE.read_text(encoding="utf-8")
    table = text.split(HEAD, 1)[1].split("\n\n", 1)[0]
    rows = [re.split(r" \| ", line.strip("| ")) for line in table.strip().splitlines()]
    return {cells[0].strip("`").replace("none", ""): cells[1:] for cells in rows}


def write(measured: Mapping[str, Measured]) -> None:
    """Put the table into the page."""
    before, rest = PAGE.read_text(encoding="utf-8").split(HEAD, 1)
    rows = "".join(row(name, one) + "\n" for name, one in measured.items())
    PAGE.write_text(f"{before}{HEAD}{rows}\n{rest.split(chr(10) * 2, 1)[1]}", encoding="utf-8")


def main() -> int:
    """Print the table, or write it into the page."""
    measured = measure()
    if away := sorted({package for one in measured.values() for package in one.missing}):
        print(f"not installed here, so not measured: {', '.join(away)}. Run .ci/setup", file=sys.stderr)
        return 1
    if "--write" in sys.argv[1:]:
        write(measured)
    print(HEAD + "\n".join(row(name, one) for name, one in measured.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
