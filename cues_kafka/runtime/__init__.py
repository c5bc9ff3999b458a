"""Runs graphs: the interpreter does what the core asks for, a runtime gives it threads or slots."""

from __future__ import annotations

from .client import Client, connect
from .lane import CommitPolicy
from .running import Running
from .start import start
from .step import Received, Step

__all__ = ["Client", "CommitPolicy", "Received", "Running", "Step", "connect", "start"]
