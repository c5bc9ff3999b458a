"""
What Spark starts in place of Python, where a `spawner` is at work: `python -ISE launcher.py SOCKET ARGUMENTS`.

It hands its descriptors, arguments and environment to the spawner, which forks a process that has imported already.
Then it stands for that process: it ends with it, and passes a SIGTERM on. It becomes Python itself if the program is
another one, or if nothing answers at the socket.

It imports nothing but the standard library, because it starts as often as a Python process of Spark does.
"""

import array
import contextlib
import os
import select
import signal
import socket
import struct
import sys

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"

SERVED = ("pyspark.daemon", "cues_kafka.on_spark.daemon", RUNNER)
"""Modules that the spawner runs."""

LENGTH = struct.Struct("!I")
"""The length of the request that follows it, in bytes."""

LONGEST_S = 60.0
"""How long the spawner may import before it answers."""


def request_of(words: list[str], environment: dict[bytes, bytes]) -> bytes:
    """A request as bytes: its length, then the number of words, words and variables."""
    parts = [str(len(words)).encode(), *map(os.fsencode, words)]
    parts += [name + b"=" + value for name, value in environment.items()]
    data = b"\0".join(parts)
    return LENGTH.pack(len(data)) + data


def handed_over(path: str, words: list[str]) -> int | None:
    """Have the spawner run this program; a descriptor of its process, or None."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(LONGEST_S)
            connection.connect(path)
            request = request_of(words, dict(os.environb))
            descriptors = array.array("i", (0, 1, 2))
            sent = connection.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
            connection.sendall(request[sent:])
            _, found, _, _ = socket.recv_fds(connection, 1, 1)
    except OSError:
        return None
    return found[0] if found else None


def stand_for(child: int) -> None:
    """Wait until the process has ended, and pass a SIGTERM on to it."""

    def end(*_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(child, signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    ended = select.poll()
    ended.register(child, select.POLLIN)
    while not ended.poll():
        pass


def main() -> None:
    """Stand for a process of the spawner, or become Python."""
    path, *words = sys.argv[1:]
    serves = words[:1] == ["-m"] and words[1] in SERVED
    if serves and (child := handed_over(path, words[1:])) is not None:
        stand_for(child)
    else:
        os.execv(sys.executable, [sys.executable, *words])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
