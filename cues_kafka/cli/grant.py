"""``cues-kafka grant``: creates the ACLs that ``plan --acls`` prints."""

from __future__ import annotations

from typing import Annotated, get_args

import typer

from cues_kafka.cli.config import ClusterOptions
from cues_kafka.cli.interrupted import begin
from cues_kafka.cli.options import BROKEN, WRONG, Target
from cues_kafka.cli.plan import principals_of
from cues_kafka.errors import ConfigError
from cues_kafka.words import count

epilog = f"""
\b
Examples:
  # say which ACLs would be created
  cues-kafka grant shop:graph --profile admin
  cues-kafka grant shop:graph --profile admin --yes
  # also for programs that call connect(..., name="billing")
  cues-kafka grant shop:graph --profile admin --client billing --yes
  # two roles, with your own users
  cues-kafka grant shop:graph --role worker --role sender --principal worker=User:shop-1 --yes

Log in as a user with the right to create ACLs. Existing ACLs stay. Exits with
{BROKEN} if the cluster refuses, and with {WRONG} if the graph or a setting is
wrong.
"""


def grant(
    target: Target,
    *,
    role: Annotated[
        list[str] | None,
        typer.Option("--role", metavar="ROLE", help="Only for this role; repeatable [default: all roles]."),
    ] = None,
    principal: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE=USER", help="The user of a role, such as worker=User:shop-1; repeatable."),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Also for a client with this name; repeatable."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Create the ACLs. Without this option, only print them.")] = False,
    cluster: ClusterOptions,
) -> None:
    """Create the ACLs that the roles of a graph need."""
    from cues_kafka.cli.loading import load_graph
    from cues_kafka.plan.acls import Role, acls_of, kafka_acls

    known = get_args(Role)
    if unknown := sorted(set(role or ()) - set(known)):
        raise ConfigError(f"--role {unknown[0]}: this role does not exist. Roles: {', '.join(known)}.")
    principals = principals_of(principal or ())
    found = cluster.load()
    acls = [acl for acl in acls_of(load_graph(target), client or (), sides=found.sides) if not role or acl.role in role]
    for commands in kafka_acls(acls, principals).values():
        for command in commands:
            typer.echo(command)
    if not yes:
        typer.echo(f"{count(len(acls), 'ACL')} for {found.address}. Nothing is created without --yes.", err=True)
        return
    if not found.named:
        raise ConfigError("No cluster is named, so nothing is created. Name it with --bootstrap, --profile or --file")
    from cues_kafka.brokers.kafka.users import UserAdmin

    users = UserAdmin(found.kafka())
    users.reach()
    begin()
    users.grant((principals.get(acl.role, f"User:{acl.role}"), acl) for acl in acls)
    typer.echo(f"Created: {count(len(acls), 'ACL')} at {found.address}.", err=True)
