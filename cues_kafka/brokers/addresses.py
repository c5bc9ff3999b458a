"""Addresses of brokers, as users write them."""

from __future__ import annotations

from cues_kafka.errors import ConfigError


def addresses(bootstrap: str) -> list[tuple[str, int]]:
    """
    Hosts and ports of a bootstrap string.

    Raises:
        ConfigError: one of them is not ``host:port``.
    """
    found = []
    for part in bootstrap.split(","):
        scheme, _, address = part.strip().rpartition("://")
        if scheme and scheme.lower() not in ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"):
            raise ConfigError(
                f"{part.strip()!r} is an address for {scheme}, but brokers speak Kafka's own protocol. Write "
                f"{address.partition('/')[0]!r}, and encryption as config={{'security.protocol': 'SSL'}}"
            )
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise ConfigError(f"{part.strip()!r} is not the address of a broker; write host:port, several with commas")
        found.append((host.strip("[]"), int(port)))
    return found


def check_bootstrap(bootstrap: str) -> None:
    """
    Check the address of a cluster.

    Raises:
        ConfigError: it is empty or none, or it holds a login.
    """
    if not bootstrap.strip():
        raise ConfigError("Kafka(...) needs the address of a broker: Kafka('localhost:9092')")
    if "@" in bootstrap:
        raise ConfigError(
            "the address of a broker holds no user name and no password: write host:port only, and the login as "
            "security=Scram(user, password), or as config={'sasl.username': ..., 'sasl.password': ...}"
        )
    addresses(bootstrap)
