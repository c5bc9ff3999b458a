"""
The packages of extras, and the error if one of them is not installed.

The core has none of them. A declaration says which packages it needs (`packages()`), so commands can ask for them all
before they connect to anything.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cues_kafka.errors import MissingExtra


@dataclass(frozen=True, slots=True, order=True)
class Package:
    """
    A package that an extra brings.

    Attributes:
        extra: the extra's name.
        name: the package's name, as pip takes it.
        module: what is imported.
    """

    extra: str
    name: str
    module: str

    @property
    def installed(self) -> bool:
        """Whether it can be imported; asked without an import."""
        top = self.module.partition(".")[0]
        try:
            return importlib.util.find_spec(top) is not None
        except ValueError:  # it is imported, and does not say from where
            return sys.modules.get(top) is not None


DELTALAKE: Final = Package("delta", "deltalake", "deltalake")
HTTPX2: Final = Package("http", "httpx2", "httpx2")
IBMMQ: Final = Package("ibmmq", "ibmmq", "ibmmq")
JSONSCHEMA: Final = Package("jsonschema", "jsonschema", "jsonschema")
LMDB: Final = Package("disk", "lmdb", "lmdb")
OPENLINEAGE: Final = Package("openlineage", "openlineage-python", "openlineage")
PAHO: Final = Package("mqtt", "paho-mqtt", "paho")
PIKA: Final = Package("rabbitmq", "pika", "pika")
PROMETHEUS: Final = Package("metrics", "prometheus-client", "prometheus_client")
PROTOBUF: Final = Package("protobuf", "protobuf", "google")
PROTON: Final = Package("amqp", "python-qpid-proton", "proton")
PSYCOPG: Final = Package("postgres", "psycopg", "psycopg")
PYMYSQL: Final = Package("mysql", "PyMySQL", "pymysql")
PYTEST: Final = Package("testing", "pytest", "pytest")
REGISTRY: Final = Package("registry", "authlib", "authlib")
SPANS: Final = Package("spans", "opentelemetry-api", "opentelemetry")
TESTCONTAINERS: Final = Package("testing-containers", "testcontainers", "testcontainers")

FSSPEC: Final = Package("blobs", "fsspec", "fsspec")
PYARROW: Final = Package("blobs", "pyarrow", "pyarrow")
PYARROW_OF_DELTA: Final = Package("delta", "pyarrow", "pyarrow")
S3FS: Final = Package("blobs", "s3fs", "s3fs")

SPARK: Final = (
    Package("spark", "pyspark", "pyspark"),
    Package("spark", "pyarrow", "pyarrow"),
    Package("spark", "pandas", "pandas"),
)

ARROW: Final = (Package("arrow", "pyarrow", "pyarrow"),)

DATABASES: Final = {"postgresql": (PSYCOPG,), "mysql": (PYMYSQL,), "sqlite": ()}
"""What the driver of each kind of database is."""

PACKAGES: Final = (
    *(DELTALAKE, FSSPEC, HTTPX2, IBMMQ, JSONSCHEMA, LMDB, OPENLINEAGE, PAHO, PIKA, PROMETHEUS, PROTOBUF, PROTON),
    *(PSYCOPG, PYARROW, PYMYSQL, PYTEST, REGISTRY, S3FS, SPANS, *SPARK, TESTCONTAINERS),
)
"""All that are looked for by name. The Java runtime of `local` is looked for as a program."""


def install(*extras: str) -> str:
    """The command that installs extras."""
    return f"pip install 'cues-kafka[{','.join(sorted(set(extras)))}]'"


def missing(what: str, *packages: Package, otherwise: str = "", error: ImportError | None = None) -> MissingExtra:
    """
    The error about packages that are not there. It says all, so raise it `from None`: it ends in one sentence.

    Args:
        what: who needs them, as the subject of a sentence in the singular.
        packages: at least one.
        otherwise: what follows the command.
        error: of the import that failed. If all packages are installed, it is why one of them cannot be imported.
    """
    names = list(dict.fromkeys(package.name for package in packages))
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    verb = "is" if len(names) == 1 else "are"
    command = install(*(package.extra for package in packages))
    state = f"{verb} not installed here"
    if error is not None and all(package.installed for package in packages):
        state = f"cannot be imported here ({' '.join(str(error).split())})"
    made = MissingExtra(f"{what} needs {listed}, which {state}: {command}{otherwise}")
    made.name = packages[0].module
    return made


def require(what: str, packages: Iterable[Package]) -> None:
    """
    Ask for packages before anything is done.

    Args:
        what: who needs them; see `missing`.
        packages: which ones.

    Raises:
        MissingExtra: some are not installed; the text has all of them.
    """
    if away := [package for package in dict.fromkeys(packages) if not package.installed]:
        raise missing(what, *away)


def package_of(module: str | None) -> Package | None:
    """The package of an extra that has this module; None: no extra is known for it."""
    top = (module or "").partition(".")[0]
    # pandas is what many programs import for purposes of their own.
    return next((package for package in PACKAGES if package.module == top and top != "pandas"), None)
