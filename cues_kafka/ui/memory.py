"""What a view keeps from one start to the next, in a file that only its user can read: a secret, and its port."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

import platformdirs

from cues_kafka.ui.passes import SECRET

LONGEST: Final = 1_000
"""Bytes of a file."""


def memory_file(*parts: str) -> Path:
    """
    The file of a view, below the folder for this user's state.

    Args:
        parts: what tells it from other views: a page of one does not come back to another.
    """
    name = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
    return platformdirs.user_state_path("cues_kafka") / "views" / f"{name}.json"


class ViewMemory:
    """
    Reads the file. Makes a new secret if there is no file, or if other users may have read or written it.

    Args:
        file: see `memory_file`.
        forget: make a new secret in any case.

    Attributes:
        secret: of the passes.
        port: that of the last time; 0: there was none.
        trouble: why the file is not used, with what to do; empty: it is.
    """

    def __init__(self, file: Path, *, forget: bool = False) -> None:
        self._file = file
        self.secret, self.port, self.trouble = secrets.token_bytes(SECRET), 0, ""
        try:
            found = _read(file)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            self.trouble = f"{file}: {error}. Delete the file."
            return
        self.port = found[1]
        if not forget:
            self.secret = found[0]

    def remember(self, port: int) -> None:
        """Write the file, with the port of this time. Where that fails, `trouble` says why."""
        if self.trouble:
            return
        self.port = port
        text = json.dumps({"secret": self.secret.hex(), "port": port})
        new = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                new.unlink()  # of a process that was killed
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as out:
                out.write(text)
            new.replace(self._file)
        except OSError as error:
            self.trouble = f"{self._file} cannot be written: {error}. Let this user write there, or set XDG_STATE_HOME."


def _read(file: Path) -> tuple[bytes, int]:
    """
    The secret and the port.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not ours alone, or holds something else.
    """
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as source:
        about = os.fstat(source.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise ValueError("it is no file")
        if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077:
            raise ValueError("other users may have read or written it")
        found = json.loads(source.read(LONGEST))
    try:
        secret, port = bytes.fromhex(found["secret"]), found["port"]
    except (KeyError, TypeError, ValueError):
        raise ValueError("it does not hold what a view writes") from None
    if len(secret) != SECRET or not isinstance(port, int) or not 0 <= port <= 65_535:
        raise ValueError("it does not hold what a view writes")
    return secret, port
