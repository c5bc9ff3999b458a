"""``cues-kafka plan``: compare a graph with the cluster, and create its topics with ``--apply``."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from cues_kafka.cli.config import ClusterOptions
from cues_kafka.cli.interrupted import begin
from cues_kafka.cli.options import BROKEN, DIFFERS, WRONG, New, Options, Require, Target
from cues_kafka.cli.printing import say, say_lines
from cues_kafka.errors import BrokerError, ConfigError
from cues_kafka.graph.names import no_such_processor
from cues_kafka.graph.packages import require_packages
from cues_kafka.plan.wellness import is_well
from cues_kafka.words import count

if TYPE_CHECKING:
    from cues_kafka.brokers.options import Kafka
    from cues_kafka.cli.config import Config
    from cues_kafka.graph.definition import Graph
    from cues_kafka.plan.plan import Plan
    from cues_kafka.ports.broker import Broker

epilog = f"""
\b
Examples:
  cues-kafka plan shop:graph
  cues-kafka plan path/shop.py:graph --offline
  # a graph that is written in a file
  cues-kafka plan path/shop.toml --offline
  # the commands that grant each role its permissions
  cues-kafka plan shop:graph --acls
  # a script that grants them; also to clients that connect with a name
  cues-kafka plan shop:graph --acls --format kafka-acls --client billing-1
  # create topics, and add what cues-kafka's own topics lack
  cues-kafka plan shop:graph --apply
  cues-kafka plan shop:graph --json | jq .refusals
  # before you deploy new code: would its tasks continue?
  cues-kafka plan shop:graph --records
  # refuse a graph with an edge that may lose or repeat messages
  cues-kafka plan shop:graph --require exactly-once
  # in a pipeline: is the cluster as the graph declares it?
  cues-kafka plan shop:graph --exit-code

Exits with {BROKEN} if the graph must not run on this cluster. With --records, also
exits with {BROKEN} if a task would stop, or if the running graph has a problem. Exits
with {WRONG} if the graph or a setting is wrong. With --exit-code, exits with {DIFFERS} if
--apply would change something.
"""


@dataclass(frozen=True, slots=True)
class PlanOptions(Options):
    """What to plan, what to print of it, and whether to apply it."""

    target: Target
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask the cluster.")] = False
    apply: Annotated[bool, typer.Option("--apply", help="Create and change topics as printed.")] = False
    topics: Annotated[bool, typer.Option("--topics", help="Also print all names, and the settings of new topics.")] = (
        False
    )
    acls: Annotated[bool, typer.Option("--acls", help="Also print the permissions that each role needs.")] = False
    principal: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE=USER", help="With --acls: the user of a role, such as worker=User:shop-1; repeatable."
        ),
    ] = None
    client: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="With --acls: also for a client with this name; repeatable."),
    ] = None
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="With --acls: text (in the plan), kafka-acls (a script of the permissions alone) or json (the same as "
            "data).",
        ),
    ] = "text"
    command_config: Annotated[
        str | None,
        typer.Option("--command-config", metavar="FILE", help="With --format kafka-acls: the administrator's login."),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help=f"Exit with {DIFFERS} if --apply would change something.")
    ] = False
    without: Annotated[
        list[str] | None,
        typer.Option(
            "--except", metavar="NAME", help="Ignore refusals of this processor, as for `run --except`; repeatable."
        ),
    ] = None
    records: Annotated[
        bool,
        typer.Option("--records", help="Also read the newest records: print which tasks would stop, and the remedy."),
    ] = False
    require: Require = None
    new: New = None

    def show(self, planned: Plan, *, acls: bool = False) -> None:
        """Print a plan as it was asked for; `acls`: also with the permissions."""
        if self.as_json:
            text = json.dumps(planned.to_dict(), indent=2)
        else:
            principals = principals_of(self.principal or ())
            text = planned.text(topics=self.topics, acls=self.acls or acls, principals=principals)
        say_lines(text.replace("MODULE:GRAPH", self.target))  # so that commands can be pasted

    def running(self, graph: Graph) -> tuple[str, ...]:
        """The processors that --except leaves."""
        return tuple({*graph.all_processors} - set(self.without or ()))


def plan(options: PlanOptions, cluster: ClusterOptions) -> None:
    """
    Show what a graph would change on the cluster.

    Prints what would change, a line for each processor, the guarantee of each edge, and the weakest edges. An edge is
    one way that messages take: into Kafka, from Kafka to Kafka, or out of Kafka. Then come warnings, and the reasons
    why the graph must not run. Creates nothing without --apply.
    """
    if options.exit_code and (options.offline or options.apply):
        without = "--offline: without a cluster nothing is compared"
        other = "--apply, which makes the changes" if options.apply else without
        raise ConfigError(f"--exit-code compares the graph with the cluster. Drop {other}.")
    principals = principals_of(options.principal or ())
    if not options.acls and (options.client or options.command_config or options.form != "text"):
        raise ConfigError("--client, --format and --command-config say more of permissions. Add --acls.")
    if options.form != "text":
        _print_acls(options, principals, cluster)
        return
    planned = _planned(options, cluster)
    if planned.refusals or planned.stops or not is_well(planned.unwell):
        raise typer.Exit(BROKEN)
    if options.exit_code and planned.would_change:
        raise typer.Exit(DIFFERS)


def _print_acls(options: PlanOptions, principals: dict[str, str], cluster: ClusterOptions) -> None:
    """Print the permissions alone; the cluster is not asked, they follow from the graph."""
    from cues_kafka.cli.loading import load_graph
    from cues_kafka.plan.acls import acls_data, acls_of, script

    found = cluster.load()
    acls = acls_of(load_graph(options.target), options.client or (), sides=found.sides)
    match options.form:
        case "json":
            say_lines(json.dumps(acls_data(acls, principals), indent=2))
        case "kafka-acls":
            address = found["bootstrap"] if found.named else None
            say_lines("\n".join(script(acls, principals, bootstrap=address, command_config=options.command_config)))
        case _:
            raise ConfigError(f"--format {options.form}: write text, kafka-acls or json.")


def principals_of(given: Collection[str]) -> dict[str, str]:
    """Principals by role."""
    from cues_kafka.plan.acls import Role

    found = dict(one.partition("=")[::2] for one in given)
    for role, principal in found.items():
        if role not in get_args(Role) or ":" not in principal:
            roles = ", ".join(get_args(Role))
            raise ConfigError(f"--principal {role}={principal}: write ROLE=User:NAME. Roles: {roles}.")
    return found


def _planned(options: PlanOptions, cluster: ClusterOptions) -> Plan:
    """The plan, which is printed, and applied if that was asked for."""
    from cues_kafka.cli.loading import load_graph

    if options.offline and options.apply:
        raise ConfigError("--apply needs the cluster. Drop --offline.")
    if options.offline and options.records:
        raise ConfigError("--records reads the cluster. Drop --offline.")
    graph = load_graph(options.target)
    require_packages(graph, options.running(graph))
    return (_offline if options.offline else _on_cluster)(options, graph, cluster.load())


def _offline(options: PlanOptions, graph: Graph, found: Config) -> Plan:
    from cues_kafka.plan.plan import plan as plan_graph
    from cues_kafka.task.making.prepare import unset_text, unset_variables

    planned = _with_clients(plan_graph(graph, sides=found.sides), graph, options)
    planned = _as_run_refuses(planned, graph, options.without or (), options.require)
    unset = unset_variables(graph, options.running(graph))
    warnings = (f"{where}: {unset_text(one)} where workers run" for where, one in unset)
    planned = replace(planned, warnings=(*planned.warnings, *warnings))
    options.show(planned)
    return planned


def _on_cluster(options: PlanOptions, graph: Graph, found: Config) -> Plan:
    from cues_kafka.brokers.open import open_broker
    from cues_kafka.operate.look.forgotten import forgotten_tailers
    from cues_kafka.plan.inspectors import Terms
    from cues_kafka.plan.plan import plan as plan_graph
    from cues_kafka.plan.refusals import outgrown
    from cues_kafka.task.making.prepare import plan_start

    kafka = found.kafka()
    with closing(open_broker(kafka)) as broker:
        graph, without, new = _on_topics(graph, broker, options.without or (), options.new or ())
        running = tuple({*graph.all_processors} - set(without))
        terms = Terms(running, tuple(new), accept_unchecked=kafka.accept_unchecked, cluster=kafka)
        try:
            planned = plan_start(graph, broker, terms)
        except BrokerError as error:
            if not error.forbidden:
                raise
            planned = _with_clients(plan_graph(graph, sides=found.sides), graph, options)
            planned = replace(planned, refusals=(str(error),))
            options.show(planned, acls=True)  # what would help, as far as it follows from the graph alone
            return planned
        planned = _as_run_refuses(_with_clients(planned, graph, options), graph, without, options.require, kafka)
        planned = replace(planned, warnings=(*planned.warnings, *forgotten_tailers(graph, broker)))
        if options.records:
            planned = _with_records(planned, graph, broker, running, kafka)
        unnamed = options.apply and planned.create and not found.named
        applies = options.apply and not unnamed and not planned.refusals
        solved = set(outgrown(planned.processors)) if applies else set()
        options.show(replace(planned, warnings=tuple(one for one in planned.warnings if one not in solved)))
        if unnamed:
            raise found.refuse_to_create(f"{count(len(planned.create), 'topic')} missing")
        if applies:
            _apply(planned, graph, broker, running)
        return planned


def _apply(planned: Plan, graph: Graph, broker: Broker, running: Sequence[str]) -> None:
    from cues_kafka.operate.applying import apply_plan
    from cues_kafka.task.making.prepare import make_stores, make_tables

    make_stores(graph, running, created=None)
    begin()
    apply_plan(planned, broker)
    make_tables(graph, running, create=True)
    done = [f"{count(len(planned.create), 'topic')} created"] if planned.create else []
    done += [f"partitions added to {count(len(planned.grow), 'topic')}"] if planned.grow else []
    done += [f"{count(len(planned.alter), 'setting')} changed"] if planned.alter else []
    say(f"Applied: {', '.join(done) or 'nothing had to change'}.", err=True)


def _on_topics(
    graph: Graph, broker: Broker, without: Collection[str], new: Collection[str]
) -> tuple[Graph, Collection[str], Collection[str]]:
    """The graph with the topics of its patterns, and what --except and --new name then."""
    from cues_kafka.task.making.patterns import resolved

    if not graph.patterns:
        return graph, without, new
    if unknown := sorted(set(without) - set(graph.all_processors)):
        raise ConfigError(f"--except: {no_such_processor(graph.name, unknown, graph.all_processors)}")
    chosen = [name for name in graph.all_processors if name not in without]
    found, running, new = resolved(graph, broker, chosen, tuple(new))
    return found, set(found.all_processors) - set(running or ()), new


def _with_records(planned: Plan, graph: Graph, broker: Broker, names: Sequence[str], kafka: Kafka) -> Plan:
    """The plan with the tasks that would stop, and with what is unwell now."""
    from cues_kafka.brokers.secrets import without_user
    from cues_kafka.operate.look.foreseen import foresee
    from cues_kafka.operate.look.unwell import ask
    from cues_kafka.plan.topics import Sides

    seen = foresee(graph, broker, planned, names, cluster=kafka)
    asked = ask(graph, broker, sides=Sides.of(kafka)).before_a_start(
        {task for stop in seen.stops for task in stop.tasks}
    )
    now = asked.of_processors(names).at(without_user(kafka.bootstrap))
    warnings = (*planned.warnings, *seen.warnings, *now.unseen)
    unwell = tuple(one for one in now.unwell if one.kind != "refused")  # the plan has its own refusals
    return replace(planned, stops=seen.stops, warnings=warnings, unwell=unwell)


def _with_clients(planned: Plan, graph: Graph, options: PlanOptions) -> Plan:
    """The plan with the permissions of clients with names, which the graph does not know."""
    from cues_kafka.plan.acls import acls_of
    from cues_kafka.plan.topics import Sides

    sides = Sides(status=planned.status is not None, control=planned.control is not None)
    return replace(planned, acls=acls_of(graph, options.client or (), sides=sides))


def _as_run_refuses(
    planned: Plan, graph: Graph, without: Collection[str], require: str | None, kafka: Kafka | None = None
) -> Plan:
    """What this release cannot run, it must not approve either; nor an edge that is weaker than `--require`."""
    from cues_kafka.plan.edges import required_level, too_weak
    from cues_kafka.task.making.prepare import refusals

    known = [*graph.all_processors]
    if unknown := sorted(set(without) - set(known)):
        raise ConfigError(f"--except: {no_such_processor(graph.name, unknown, known)}")
    names = [name for name in graph.processors if name not in without]
    weak = too_weak(planned.edges, required_level(require), set(known) - set(without)) if require else ()
    return replace(planned, refusals=(*planned.refusals, *refusals(graph, names, kafka), *weak))
