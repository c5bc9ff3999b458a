"""Tests that catch mutants of several rooms."""

from __future__ import annotations

GUARDS = "tests/unit/runtime/task/test_guards.py"
CRASHES = "tests/unit/runtime/task/test_crashes.py"
RETRY = "tests/unit/runtime/calling/test_retry.py"
SLOT = "tests/unit/runtime/spark/direct/test_slot.py"
STATE = "tests/unit/runtime/test_state.py"
HANDLERS = "tests/unit/runtime/test_handlers.py"
ROWS = "tests/unit/sinks/test_tables.py"
TIMERS = "tests/unit/runtime/test_timers.py"
VERIFY = "tests/unit/verify/test_verify.py"
IMPERATIVE = "tests/unit/runtime/test_imperative.py"
DATABASE_PARTS = "tests/unit/sinks/test_parts.py"
TARGETS = "tests/unit/sinks/test_crashes.py"
REPLAYS = "tests/unit/runtime/test_replays.py"
