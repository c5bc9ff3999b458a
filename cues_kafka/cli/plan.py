"""``cues-kafka plan``: what a graph is on the cluster, before anything is created."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args

import typer

from cues_kafka.cli.config import Bootstrap, File, Profile
from cues_kafka.cli.options import BROKEN, DIFFERS, WRONG, New, Require, Target
from cues_kafka.cli.printing import say, say_lines
from cues_kafka.errors import BrokerError, ConfigError
from cues_kafka.graph.names import no_such_processor
from cues_kafka.graph.packages import require_packages
from cues_kafka.plan.wellness import is_well
from cues_kafka.words import count

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cues_kafka.brokers.options import Kafka
    from cues_kafka.graph.definition import Graph
    from cues_kafka.plan.plan import Plan
    from cues_kafka.ports import Broker

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
  # create topics, and give the framework's own what they lack
  cues-kafka plan shop:graph --apply
  cues-kafka plan shop:graph --json | jq .refusals
  # before new code is deployed: would its tasks go on?
  cues-kafka plan shop:graph --records
  # refuse a graph with an edge that may lose or repeat messages
  cues-kafka plan shop:graph --require exactly-once
  # in a pipeline: is the cluster as the graph declares it?
  cues-kafka plan shop:graph --exit-code

Exits with {BROKEN} if the graph must not run on this cluster, or with --records if a
task would stop or the graph is not well now, and with {WRONG} if the graph or a
setting is wrong. With --exit-code, exits with {DIFFERS} if --apply would change something.
"""


def plan(
    target: Target,
    *,
    offline: Annotated[bool, typer.Option("--offline", help="Ask no cluster.")] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Create the topics, and make the changes to topics that are printed.")
    ] = False,
    topics: Annotated[bool, typer.Option("--topics", help="Add all names and the settings of new topics.")] = False,
    acls: Annotated[bool, typer.Option("--acls", help="Add the permissions that each role needs.")] = False,
    principal: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE=USER", help="With --acls: who has a role, such as worker=User:shop-1; repeatable."),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="With --acls: also what a client with this name needs; repeatable."),
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="With --acls: text (in the plan), kafka-acls (a script of the permissions alone) or json (the same as "
            "data).",
        ),
    ] = "text",
    command_config: Annotated[
        str | None,
        typer.Option("--command-config", metavar="FILE", help="With --format kafka-acls: the administrator's login."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help=f"Exit with {DIFFERS} if --apply would change something.")
    ] = False,
    without: Annotated[
        list[str] | None,
        typer.Option(
            "--except", metavar="NAME", help="Ignore what refuses this processor, as for `run --except`; repeatable."
        ),
    ] = None,
    records: Annotated[
        bool,
        typer.Option("--records", help="Read the newest records too: which tasks would stop, and what to do first."),
    ] = False,
    require: Require = None,
    new: New = None,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    file: File = None,
) -> None:
    """
    Show what a graph would change on the cluster.

    Prints what would change, a line for each processor, what each edge guarantees, and which edge is the weakest; then
    warnings, and the reasons why the graph must not run.
    Nothing is created without --apply.
    """

    def show(planned: Plan, *, acls: bool = acls) -> None:
        if as_json:
            text = json.dumps(planned.to_dict(), indent=2)
        else:
            text = planned.text(topics=topics, acls=acls, principals=principals)
        say_lines(text.replace("MODULE:GRAPH", target))  # so that commands can be pasted

    if exit_code and (offline or apply):
        other = "--apply, which makes the changes" if apply else "--offline: without a cluster nothing is compared"
        raise ConfigError(f"--exit-code compares the graph with the cluster. Drop {other}.")
    principals = principals_of(principal or ())
    if not acls and (client or command_config or form != "text"):
        raise ConfigError("--client, --format and --command-config say more of permissions. Add --acls.")
    if form != "text":
        asked = AclOptions(form, principals, client or (), command_config)
        _print_acls(target, asked, bootstrap=bootstrap, profile=profile, file=file)
        return
    where = (bootstrap, profile, file)
    planned = _plan(
        *(target, without or (), client or (), show),
        offline=offline,
        apply=apply,
        records=records,
        require=require,
        new=new or (),
        settings=where,
    )
    if planned.refusals or planned.stops or not is_well(planned.unwell):
        raise typer.Exit(BROKEN)
    if exit_code and planned.would_change:
        raise typer.Exit(DIFFERS)


class AclOptions(NamedTuple):
    """How permissions are printed alone; see the options of `plan`."""

    form: str
    principals: dict[str, str]
    clients: Collection[str]
    command_config: str | None


def _print_acls(target: str, asked: AclOptions, **settings: Any) -> None:
    """Print the permissions alone; the cluster is not asked, they follow from the graph."""
    from cues_kafka.cli.config import load
    from cues_kafka.cli.loading import load_graph
    from cues_kafka.plan.acls import acls_data, acls_of, script

    found = load({"bootstrap": settings.pop("bootstrap")}, **settings)
    acls = acls_of(load_graph(target), asked.clients, sides=found.sides)
    match asked.form:
        case "json":
            say_lines(json.dumps(acls_data(acls, asked.principals), indent=2))
        case "kafka-acls":
            address = found["bootstrap"] if found.named else None
            lines = script(acls, asked.principals, bootstrap=address, command_config=asked.command_config)
            say_lines("\n".join(lines))
        case _:
            raise ConfigError(f"--format {asked.form}: write text, kafka-acls or json.")


def principals_of(given: Collection[str]) -> dict[str, str]:
    """Principals by role."""
    from cues_kafka.plan.acls import Role

    found = dict(one.partition("=")[::2] for one in given)
    for role, principal in found.items():
        if role not in get_args(Role) or ":" not in principal:
            roles = ", ".join(get_args(Role))
            raise ConfigError(f"--principal {role}={principal}: write ROLE=User:NAME. Roles: {roles}.")
    return found


def _plan(
    target: str,
    without: Collection[str],
    clients: Collection[str],
    show: Callable[..., None],
    *,
    offline: bool,
    apply: bool,
    records: bool,
    require: str | None,
    new: Collection[str],
    settings: tuple[str | None, str | None, Path | None],
) -> Plan:
    from cues_kafka.cli.config import load
    from cues_kafka.cli.loading import load_graph
    from cues_kafka.plan.plan import plan as plan_graph
    from cues_kafka.plan.refusals import outgrown

    if offline and apply:
        raise ConfigError("--apply needs the cluster. Drop --offline.")
    if offline and records:
        raise ConfigError("--records reads the cluster. Drop --offline.")
    graph = load_graph(target)
    require_packages(graph, {*graph.all_processors} - set(without))
    bootstrap, profile, file = settings
    found = load({"bootstrap": bootstrap}, profile=profile, file=file)
    if offline:
        from cues_kafka.task.making.prepare import unset_text, unset_variables

        planned = _with_clients(plan_graph(graph, sides=found.sides), graph, clients)
        planned = _as_run_refuses(planned, graph, without, require)
        running = tuple({*graph.all_processors} - set(without))
        unset = (f"{where}: {unset_text(one)} where workers run" for where, one in unset_variables(graph, running))
        planned = dataclasses.replace(planned, warnings=(*planned.warnings, *unset))
        show(planned)
        return planned
    from cues_kafka.brokers.open import open_broker
    from cues_kafka.operate.look.forgotten import forgotten_tailers
    from cues_kafka.plan.inspectors import Terms
    from cues_kafka.task.making.prepare import plan_start

    kafka = found.kafka()
    broker = open_broker(kafka)
    try:
        graph, without, new = _on_topics(graph, broker, without, new)
        running = tuple({*graph.all_processors} - set(without))
        terms = Terms(running, tuple(new), accept_unchecked=kafka.accept_unchecked, cluster=kafka)
        try:
            planned = plan_start(graph, broker, terms)
        except BrokerError as error:
            if not error.forbidden:
                raise
            planned = _with_clients(plan_graph(graph, sides=found.sides), graph, clients)
            planned = dataclasses.replace(planned, refusals=(str(error),))
            show(planned, acls=True)  # what would help, as far as it follows from the graph alone
            return planned
        planned = _as_run_refuses(_with_clients(planned, graph, clients), graph, without, require, kafka)
        planned = dataclasses.replace(planned, warnings=(*planned.warnings, *forgotten_tailers(graph, broker)))
        if records:
            planned = _with_records(planned, graph, broker, running, kafka)
        unnamed = apply and planned.create and not found.named
        applies = apply and not unnamed and not planned.refusals
        resolved = set(outgrown(planned.processors)) if applies else set()
        show(dataclasses.replace(planned, warnings=tuple(one for one in planned.warnings if one not in resolved)))
        if unnamed:
            raise found.refuse_to_create(f"{count(len(planned.create), 'topic')} missing")
        if applies:
            from cues_kafka.operate.applying import apply_plan
            from cues_kafka.task.making.prepare import make_stores, make_tables

            make_stores(graph, running, created=None)
            apply_plan(planned, broker)
            make_tables(graph, running, create=True)
            done = [f"{count(len(planned.create), 'topic')} created"] if planned.create else []
            done += [f"partitions added to {count(len(planned.grow), 'topic')}"] if planned.grow else []
            done += [f"{count(len(planned.alter), 'setting')} changed"] if planned.alter else []
            say(f"Applied: {', '.join(done) or 'nothing had to change'}.", err=True)
        return planned
    finally:
        broker.close()


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
    return dataclasses.replace(planned, stops=seen.stops, warnings=warnings, unwell=unwell)


def _with_clients(planned: Plan, graph: Graph, clients: Collection[str]) -> Plan:
    """The plan with the permissions of clients with names, which the graph does not know."""
    from cues_kafka.plan.acls import acls_of
    from cues_kafka.plan.topics import Sides

    sides = Sides(status=planned.status is not None, control=planned.control is not None)
    return dataclasses.replace(planned, acls=acls_of(graph, clients, sides=sides))


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
    return dataclasses.replace(planned, refusals=(*planned.refusals, *refusals(graph, names, kafka), *weak))
