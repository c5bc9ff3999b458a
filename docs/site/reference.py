"""The pages of the API reference: which public name stands on which page. What they say comes from docstrings."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

from docs.site.index import ROOT


class Group(NamedTuple):
    """
    One page of the reference.

    Attributes:
        file: its name.
        title: its title.
        names: public names, by module in front; those of `cues_kafka` have none.
        about: a sentence, with a link to the page that explains them by task.
    """

    file: str
    title: str
    names: tuple[str, ...]
    about: str


def _of(module: str, names: str) -> tuple[str, ...]:
    return tuple(f"{module}.{name}" for name in names.split())


GROUPS: Final = (
    Group(
        "graphs",
        "Graphs, processors and messages",
        _of(
            "cues_kafka",
            "Graph Processor processor DataFrameProcessor Source Sink Topic Message Out Step Received Retry"
            " CommitPolicy CallPolicy has_type has_tag has_header Topology Meta Place",
        ),
        "What you declare, and what a function gets and returns. :doc:`/graphs` explains it by example.",
    ),
    Group(
        "errors",
        "Errors and exceptions",
        _of(
            "cues_kafka",
            "Errors ErrorMessage ErrorCause ErrorMessages error_context payload_of repairs Repairs Selection Interrupt"
            " CuesError GraphError ConfigError MissingExtra OutputError CodecError FactoryError RecoveryError"
            " TaskStopped HandlerFailed LateMessage EarlyMessage Unknown TaskElsewhere AnswerTooLarge CallError"
            " CallUnanswered CallRefused CallChanged UnreadableError BrokerError RetriableError AbortableError"
            " UnstableOffsets Fenced FatalError",
        ),
        "Error messages, their replay, and each exception with its remedy. :doc:`/errors` explains them.",
    ),
    Group(
        "codecs",
        "Codecs",
        _of("cues_kafka", "Json Avro JsonSchema Protobuf Raw Codec Alias Digits Limits Registry"),
        "How values and keys become bytes. :doc:`/schemas` explains them.",
    ),
    Group(
        "state",
        "State, tables and timers",
        _of(
            "cues_kafka",
            "Store State Handler StateHandler Table GlobalTable TableView StoreView Answer Dedupe rekey Header Timers"
            " Timer Tumbling",
        ),
        "What a processor keeps between messages. :doc:`/state`, :doc:`/regions` and :doc:`/timers` explain it.",
    ),
    Group(
        "outside",
        "Databases, files, servers and other brokers",
        _of(
            "cues_kafka",
            "Sql Upsert Delta Blobs files DataFile Http Once Feed Files Directory Iterate SqlOutbox ReplayableSource"
            " Encoded Mqtt RabbitMq Amqp Stomp IbmMq",
        ),
        "What messages go to, and come from, outside of Kafka. :doc:`/edges` says what each guarantees.",
    ),
    Group(
        "effects",
        "What effects give a function",
        _of(
            "cues_kafka.effects",
            "SqlSession RowWriter KeyedRows Result Objects HttpServer AsyncHttpServer Response KeptOnce AsyncKeptOnce"
            " MessagePublisher Destinations Destination",
        ),
        "From the module ``cues_kafka.effects``, for annotations. :doc:`/effects`, :doc:`/calls` and :doc:`/files` have"
        " examples.",
    ),
    Group(
        "clusters",
        "Clusters and logins",
        _of("cues_kafka", "Kafka Memory Secret Scram Plain OAuthBearer Oidc Tls"),
        "Where the brokers are, and how clients log in. :doc:`/connect` and :doc:`/security` explain it.",
    ),
    Group(
        "running",
        "Run and watch a graph",
        _of("cues_kafka", "start Running Status status GraphStatus SeenTask InputLag Spans OpenLineage"),
        "A graph in this process, and a graph seen from any machine. :doc:`/run` and :doc:`/watch` explain it.",
    ),
    Group(
        "clients",
        "Applications that run no graph",
        _of(
            "cues_kafka",
            "connect Client ClientTopic ClientTailer ClientTransaction alts Messages Sent Tailer Appender",
        ),
        "Topics, tailers and transactions as objects. :doc:`/primitives` and :doc:`/imperative` explain them.",
    ),
    Group(
        "aio",
        "Applications with asyncio",
        _of("cues_kafka.aio", "connect AsyncClient AsyncTopic AsyncTailer AsyncTransaction AsyncMessages alts"),
        "The same words for asyncio, from the module ``cues_kafka.aio``. :doc:`/primitives` has an example.",
    ),
    Group(
        "spark",
        "Spark",
        _of("cues_kafka.spark", "Spark explain Explanation Explained register options_of write_exactly_once Written"),
        "From the module ``cues_kafka.spark``, which needs the extra ``spark``. :doc:`/spark` explains it.",
    ),
    Group(
        "targets",
        "Targets of your own",
        _of(
            "cues_kafka.targets",
            "TransactionalTarget TargetPart TargetWriter TaskName Transactions Write TargetMoved",
        ),
        "From the module ``cues_kafka.targets``. :doc:`/targets` builds one in 80 lines.",
    ),
    Group(
        "testing",
        "Tests of your graphs",
        (
            *_of("cues_kafka.testing", "Tester Crash KafkaFixture FaultClusters KafkaContainer RegistryContainer"),
            *_of("cues_kafka.testing", "check_codec TargetContract TestRegistry"),
        ),
        "A graph without a broker, fixtures for pytest, and contracts for codecs and targets of your own.",
    ),
)


def modules() -> list[str]:
    """The public modules: each file directly below `cues_kafka` that has an `__all__`, and the package for tests."""
    package = ROOT / "cues_kafka"
    files = [package / "__init__.py", *sorted(package.glob("[!_]*.py")), package / "testing" / "__init__.py"]
    public = (file for file in files if re.search(r"^__all__ ", file.read_text(encoding="utf-8"), re.MULTILINE))
    return [".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in public]


def missing(module: str) -> list[str]:
    """Public names of a module that no page has."""
    there = {id(thing(name)) for group in GROUPS for name in group.names}
    return [name for name in importlib.import_module(module).__all__ if id(thing(f"{module}.{name}")) not in there]


def thing(name: str) -> Any:
    """What a name of a page stands for."""
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


def stage(into: Path) -> None:
    """
    Write the pages of the reference.

    Args:
        into: a folder.

    Raises:
        LookupError: a public name is on no page.
    """
    for module in modules():
        if names := missing(module):
            raise LookupError(
                f"{module}: {', '.join(names)} on no page of the reference; add them to docs/site/reference.py"
            )
    into.mkdir(parents=True, exist_ok=True)
    for group in GROUPS:
        (into / f"{group.file}.rst").write_text(_page(group), encoding="utf-8")
    (into / "index.rst").write_text(_index(), encoding="utf-8")


def _page(group: Group) -> str:
    lines = [group.title, "=" * len(group.title), "", group.about, ""]
    for name in group.names:
        lines += [_title(name), "-" * len(_title(name)), "", *_directive(name), ""]
    return "\n".join(lines)


def _title(name: str) -> str:
    return name.rpartition(".")[2]


def _directive(name: str) -> list[str]:
    found = thing(name)
    if not inspect.isclass(found):
        return [f".. autofunction:: {name}"]
    if issubclass(found, BaseException):
        return [f".. autoexception:: {name}", "   :members:"]
    return [f".. autoclass:: {name}", "   :members:"]


def _index() -> str:
    """All names, page by page, each with what it is."""
    title = "API reference"
    lines = [title, "=" * len(title), "", "Every public name. :doc:`/api` shows them by example.", ""]
    lines += [".. toctree::", "   :hidden:", "", *(f"   {group.file}" for group in GROUPS), ""]
    for group in GROUPS:
        lines += [f":doc:`{group.title} <{group.file}>`", "", ".. list-table::", "   :widths: 30 70", ""]
        for name in group.names:
            said = " ".join((inspect.getdoc(thing(name)) or "").split("\n\n")[0].split())
            lines += [f"   * - :py:obj:`{_title(name)} <{name}>`", f"     - {said}"]
        lines.append("")
    return "\n".join(lines)
