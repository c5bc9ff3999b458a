"""Runs graphs: the interpreter does what the core asks for, a runtime gives it threads or slots."""

from __future__ import annotations

from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.runtime.calling.step import Received, Step
from cues_kafka.runtime.client import Client
from cues_kafka.runtime.connect import connect
from cues_kafka.runtime.native.worker import CallPolicy
from cues_kafka.runtime.running import Running
from cues_kafka.runtime.start import start

__all__ = ["CallPolicy", "Client", "CommitPolicy", "Received", "Running", "Step", "connect", "start"]
