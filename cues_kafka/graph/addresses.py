"""The address of a database, and the texts of drivers without it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from cues_kafka.errors import ConfigError, GraphError
from cues_kafka.graph.effects import dialect_of

MASK: Final = "***"

_BAD_PORT: Final = re.compile(r"option \"port\"|invalid port number|Servname not supported")
"""What PostgreSQL's driver says of a port, such as the end of a password that has a slash."""

_ATTEMPT: Final = re.compile(r"(?:connection (?:failed|is bad): )?connection to server (?:at|on socket) .*? failed: ")
"""What PostgreSQL's driver puts before the kind of failure: a host, its number and a port, or a path."""

_QUOTED: Final = (r"(?<!\w)([\"'`]).*\1", r"«.*»", r"»\s?.*\s?«", r"[„“].*[“”]", r"‘.*’")
"""From the first quote to the last: a password may have quotes in it. A server may speak another language."""

_NUMBERS: Final = (r"\b\d{1,3}(?:\.\d{1,3}){3}\b", r"\bport \d+")

_NAMED: Final = (
    (re.compile(r"'[^']*'@'[^']*'"), MASK),
    (re.compile(r"\b(user|role|host) (?:\"[^\"]*\"|'[^']*')"), rf"\1 {MASK}"),
)
"""How servers name a user, and the host from which it comes."""


class DatabaseAddress:
    """
    The address of a database, which shows in no text.

    Attributes:
        url: it.
        parts: what it is made of.
        dialect: which database it means.

    Raises:
        ConfigError: it cannot be read; the message does not show it.
    """

    def __init__(self, url: str) -> None:
        try:
            self.dialect = dialect_of(url)
        except GraphError as error:
            raise ConfigError(str(error)) from None
        self.url = url
        self.parts = urlsplit(url)
        if self.dialect == "mysql":  # PostgreSQL's driver reads addresses in another way, and takes several hosts
            try:
                self.parts.port  # noqa: B018 - whether it is one
            except ValueError:
                raise self._no_port(3306) from None

    def refuse_port(self, error: BaseException) -> None:
        """
        Refuse the address if PostgreSQL's driver finds no port in it that can be one.

        Raises:
            ConfigError: it does not; the message says what to write.
        """
        if _BAD_PORT.search(str(error)):
            raise self._no_port(5432) from None

    def unreadable(self, error: BaseException) -> ConfigError:
        """The refusal of an address that PostgreSQL's driver cannot read; Python's text has characters of it."""
        why = type(error).__name__ if isinstance(error, ValueError) else self.attempt(error)
        return ConfigError(
            f"PostgreSQL's driver does not take the address: {why}. Write "
            "postgresql://user@host/database; in a user name and a password write %25 for '%', %20 for a space, %2F "
            "for '/' and %40 for '@'"
        )

    def unusable(self, error: BaseException) -> ConfigError:
        """The refusal of an address that MySQL's driver cannot use; Python's text has characters of it."""
        return ConfigError(
            "MySQL's driver does not take the host, user or password of the address "
            f"({type(error).__name__}). Write mysql://user@host/database, with a password of Latin letters"
        )

    def _no_port(self, usual: int) -> ConfigError:
        return ConfigError(
            "the port in the address of the database is not a number from 1 to 65535. Write "
            f"{self.dialect}://user@host:{usual}/database; in a user name and a password write %2F for '/', %3A for "
            "':', %40 for '@' and %23 for '#'"
        )

    def attempt(self, error: BaseException) -> str:
        """
        The kind of failure of an attempt to connect, as the driver says it.

        Whatever stands in quotes is masked: a driver may take a part of the password for the host or the port.
        """
        text = _ATTEMPT.sub("", self._whole(error))
        for pattern in (*_QUOTED, *_NUMBERS):
            text = re.sub(pattern, MASK, text, flags=re.DOTALL)
        for word in self.words():
            text = _masked(text, word)
        return _first_line(text) or type(error).__name__

    def quiet(self, error: BaseException) -> str:
        """The text of an error on a connection that was opened. It keeps what is of tables and rows."""
        return self._without(self._whole(error)).strip() or type(error).__name__

    def hide(self, error: BaseException) -> None:
        """
        Take the address out of a driver's error, and out of those that led to it.

        It goes to the function, and with its causes into error messages, spans and tracebacks.
        """
        for one in led_to(error):
            one.args = tuple(self._without(arg) if isinstance(arg, str) else arg for arg in one.args)
            if isinstance(one, OSError):  # its text is made of these, and no longer of `args`
                one.strerror = None if one.strerror is None else self._without(str(one.strerror))
                one.filename = one.filename and MASK

    def _without(self, text: str) -> str:
        text = _ATTEMPT.sub("", text).replace(self.url, MASK)
        for pattern, mask in _NAMED:
            text = pattern.sub(mask, text)
        password = self.parts.password or ""
        hosts = [one for one in self._hosts() if re.search(r"[.:/]", one)]  # `db` may be a column, too
        for word in (*hosts, *([password] if len(password) > 3 else [])):
            text = _masked(text, word)
        return text

    def _whole(self, error: BaseException) -> str:
        """The driver's text; that of MySQL's is a number and a sentence."""
        if self.dialect == "mysql" and error.args == (0, ""):  # all that it says of a connection that is closed
            return "the connection is closed"
        text = " ".join(map(str, error.args)) if self.dialect == "mysql" else str(error)
        if isinstance(error, OSError):
            text = error.strerror or str(error)
        return text

    def _hosts(self) -> list[str]:
        hosts = self.parts.netloc.rpartition("@")[2].split(",")
        return [*hosts, *(host.partition("]")[0].lstrip("[") if "[" in host else host.split(":")[0] for host in hosts)]

    def words(self) -> list[str]:
        """All parts of the address, the longest first."""
        parts = self.parts
        found = {self.url, parts.netloc, parts.username, parts.password, parts.path.strip("/"), parts.fragment}
        found |= {*self._hosts()}
        found |= {value for _, value in parse_qsl(parts.query)}
        return sorted((one for one in found if one), key=len, reverse=True)


class _Masking(logging.Filter):
    """Takes addresses out of what a driver logs. The driver names hosts and users where it gives up a connection."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: dict[str, DatabaseAddress] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter`. Every line passes."""
        said = masked = record.getMessage()
        words = {word for address in list(self.addresses.values()) for word in address.words()}
        for word in sorted(words, key=len, reverse=True):  # the name of one host may be a part of another one's
            masked = _masked(masked, word)
        if masked != said:
            record.msg, record.args = masked, ()
        return True


_MASKING: Final = _Masking()


def mask_log(logger: str, address: DatabaseAddress) -> None:
    """Have lines of a driver's logger show no part of an address."""
    _MASKING.addresses[address.url] = address
    logging.getLogger(logger).addFilter(_MASKING)


def led_to(error: BaseException) -> Iterator[BaseException]:
    """An error, and all that led to it: what it was raised from, and in the handling of which."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        if (one := left.pop()) is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            left += [one.__cause__, one.__context__]


def _masked(text: str, word: str) -> str:
    """A text without a word, as it stands in the address and as it is meant."""
    for one in (unquote(word), word):
        text = re.sub(rf"(?<!\w){re.escape(one)}(?!\w)", MASK, text)
    return text


def _first_line(text: str) -> str:
    """The first line that says something: it names what happened."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
