"""What a processor acts on besides Kafka: declarations for `effects={"name": ...}`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final
from urllib.parse import urlsplit

from cues_kafka.errors import GraphError

DIALECTS: Final = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
}
"""The schemes of addresses, and which database each of them means."""


class Effect:
    """
    Base of all declarations of `effects=`.

    Attributes:
        kind: its name in a graph that is written down.
        transactional: it commits what user code writes in one transaction with the attempt (E1).
        what: what it is, for plans.
        level: what it guarantees: `exactly once` or `at least once`.
        why: what gives this level, and what it asks for.
    """

    kind: ClassVar[str] = ""
    transactional: ClassVar[bool] = False
    what: ClassVar[str] = "target"
    level: ClassVar[str] = "at least once"
    why: ClassVar[str] = ""


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Sql(Effect):
    """
    A database in whose transaction a processor's function reads and writes, exactly once (E1).

    The function gets a connection in an open transaction under the name that it is declared with. What it writes is
    committed together with the place in the input, and with what the function sends to Kafka.

    The address shows in no text that the project prints: no plan, no log, no `repr`.

    Attributes:
        url: ``postgresql://user@host/database``, ``mysql://...``, ``mariadb://...`` or ``sqlite:///path``.
        env: the environment variable that holds the address; then `url` is empty.
    """

    kind: ClassVar[str] = "sql"
    transactional: ClassVar[bool] = True
    what: ClassVar[str] = "database"
    level: ClassVar[str] = "exactly once"
    why: ClassVar[str] = "rows, outcomes and place in one transaction of the database; it must keep what it commits"

    url: str = field(repr=False)
    env: str

    def __init__(self, url: str = "", *, env: str = "") -> None:
        if bool(url) == bool(env):
            raise GraphError(
                'Sql() takes an address, Sql("postgresql://user@host/database"), or the name of the environment '
                'variable that holds it, Sql(env="SHOP_DATABASE").'
            )
        if url:
            dialect_of(url)
        object.__setattr__(self, "url", url)
        object.__setattr__(self, "env", env)

    def __repr__(self) -> str:
        return f"Sql(env={self.env!r})" if self.env else f"Sql({dialect_of(self.url)})"


def dialect_of(url: str) -> str:
    """
    The database that an address means: `postgresql`, `mysql` or `sqlite`.

    Raises:
        GraphError: it is none of them; the text does not show the address.
    """
    scheme = urlsplit(url).scheme.partition("+")[0] if isinstance(url, str) else ""
    if scheme not in DIALECTS:
        raise GraphError(
            f"Sql(...): the address begins with {scheme or 'no scheme'!r}. Write postgresql://, mysql://, mariadb:// "
            "or sqlite:///path."
        )
    if DIALECTS[scheme] == "sqlite" and not urlsplit(url).path.strip("/"):
        raise GraphError("Sql(...): sqlite in memory is gone with the process. Write sqlite:///path/to/file.")
    return DIALECTS[scheme]
