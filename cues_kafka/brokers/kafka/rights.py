"""Which right a client lacks, which user that is, and the command that grants it.

The cluster answers an unauthorised request with the kind of the resource alone. The caller names the rights that its
call needs, and the kind picks among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from cues_kafka.brokers.options import login_of
from cues_kafka.plan.acls import grant

KINDS: Final = {
    "TOPIC_AUTHORIZATION_FAILED": "topic",
    "GROUP_AUTHORIZATION_FAILED": "group",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "transactional-id",
    "CLUSTER_AUTHORIZATION_FAILED": "cluster",
}
"""The kind of resource that an answer is about."""

_VERBS: Final = {
    ("DescribeConfigs", "topic"): "read the settings of",
    ("Alter", "topic"): "add partitions to",
    ("AlterConfigs", "topic"): "change the settings of",
    ("Write", "topic"): "write to",
    ("Write", "transactional-id"): "use",
}
"""The verbs of operations whose name is not one."""


class Right(NamedTuple):
    """A right that a call needs: Kafka's name of the operation, the kind of resource (see `KINDS`), and its name."""

    operation: str
    resource: str
    name: str


def user_of(settings: Mapping[str, Any]) -> str | None:
    """The user of a client with these settings, as the brokers know it; None: it is in a certificate or a token."""
    protocol, mechanism = login_of(settings)
    if protocol == "plaintext":
        return "ANONYMOUS"
    if not protocol.startswith("sasl_") or not mechanism.upper().startswith(("PLAIN", "SCRAM-")):
        return None
    return settings.get("sasl.username")


def refusal(code: str, needs: Sequence[Right], user: str | None) -> tuple[str, str] | None:
    """
    What the cluster refused to a call that needs these rights, and the remedy, as two sentences without a full stop.

    None: the answer with this code is not about these rights. A `user` of None is not known.
    """
    lacking = [right for right in needs if right.resource == KINDS.get(code)]
    if not lacking:
        return None
    operation, resource, name = lacking[0]
    names = list(dict.fromkeys(right.name for right in lacking if right.operation == operation))
    shown = ", ".join(f"`{one}`" for one in names)
    who = f"user `{user}`" if user else "the user of this client"
    verb = _VERBS.get((operation, resource), operation.lower())
    kind = resource.replace("-", " ") + ("s" if len(names) > 1 else "")
    principal = f"User:{user or 'NAME'}"
    if resource == "cluster":  # there is one, and the command names none
        return f"{who} may not {verb} the cluster", f"Grant it with `{grant(principal, [operation], resource, [])}`"
    if resource == "transactional-id":  # as the printed ACL: one prefix for all tasks of the processor
        command = grant(principal, [operation], resource, [f"{name.rpartition('.')[0]}."], pattern="prefixed")
    else:
        command = grant(principal, [operation], resource, names)
    return f"{who} may not {verb} {kind} {shown}", f"Grant it with `{command}`"
