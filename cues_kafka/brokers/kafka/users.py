"""Users and their rights on a cluster: passwords for SCRAM, and ACLs. An administrator's login is needed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import confluent_kafka.admin

from cues_kafka.brokers.kafka.asking import Asking
from cues_kafka.brokers.kafka.rights import Right
from cues_kafka.brokers.options import Kafka
from cues_kafka.plan.acls import Acl

CLIENT: Any = confluent_kafka.admin  # its names of rights are not exported to type checkers

ITERATIONS: Final = 4096
"""The brokers' default for SCRAM's hash."""

_HASHES: Final = ("SCRAM_SHA_512", "SCRAM_SHA_256")
_KINDS: Final = {"topic": "TOPIC", "group": "GROUP", "transactional-id": "TRANSACTIONAL_ID"}
_ALTER: Final = Right("Alter", "cluster", "kafka-cluster")


class UserAdmin:
    """An administrative client that also makes users and ACLs; every method raises `BrokerError`."""

    def __init__(self, options: Kafka) -> None:
        self._asking = Asking(options)

    def reach(self) -> None:
        """Wait for the cluster; the error says why it cannot be reached."""
        self._asking.reach()

    def set_passwords(self, passwords: Mapping[str, str]) -> None:
        """Make users who log in by SCRAM with either hash, or give them another password."""
        for mechanism in _HASHES:
            how = CLIENT.ScramCredentialInfo(CLIENT.ScramMechanism[mechanism], ITERATIONS)
            wanted = [CLIENT.UserScramCredentialUpsertion(user, how, text.encode()) for user, text in passwords.items()]
            for user, future in self._asking.ask(self._asking.client.alter_user_scram_credentials, wanted).items():
                self._asking.result(future, f"setting the password of user {user}", _ALTER)
        self._asking.until(lambda: self._known(passwords), f"users {', '.join(passwords)} are not known to the brokers")

    def _known(self, users: Iterable[str]) -> bool:
        asked = self._asking.ask(self._asking.client.describe_user_scram_credentials, list(users))
        found = [
            self._asking.result(
                future, f"describing user {user}", Right("Describe", "cluster", "kafka-cluster"), ignore=_NONE
            )
            for user, future in asked.items()
        ]
        return all(one is not None and len(one.scram_credential_infos) == len(_HASHES) for one in found)

    def grant(self, acls: Iterable[tuple[str, Acl]]) -> None:
        """Create ACLs, each for a principal such as ``User:worker``; those that are there already stay."""
        bindings = [_binding(principal, acl) for principal, acl in acls]
        if not bindings:
            return
        for future in self._asking.ask(self._asking.client.create_acls, bindings).values():
            self._asking.result(future, "creating ACLs", _ALTER)
        # They are in the controller's log by now. A broker follows that log in order, so the last one stands for all.
        last = _filter(bindings[-1])
        self._asking.until(lambda: self._has(last), "the brokers have not heard of the new ACLs")

    def _has(self, wanted: Any) -> bool:
        asked = self._asking.ask(self._asking.client.describe_acls, wanted)
        return bool(self._asking.result(asked, "reading ACLs", Right("Describe", "cluster", "kafka-cluster")))


_NONE: Final = {"RESOURCE_NOT_FOUND"}


def _binding(principal: str, acl: Acl) -> Any:
    return CLIENT.AclBinding(
        CLIENT.ResourceType[_KINDS[acl.resource]],
        acl.name,
        CLIENT.ResourcePatternType[acl.pattern.upper()],
        principal,
        "*",
        CLIENT.AclOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", acl.operation).upper()],
        CLIENT.AclPermissionType.ALLOW,
    )


def _filter(one: Any) -> Any:
    return CLIENT.AclBindingFilter(
        one.restype, one.name, one.resource_pattern_type, one.principal, one.host, one.operation, one.permission_type
    )
