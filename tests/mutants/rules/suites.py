"""Tests that catch mutants of several rooms."""

from __future__ import annotations

GUARDS = "tests/unit/task/test_guards.py"
CRASHES = "tests/unit/task/test_crashes.py"
RETRY = "tests/unit/task/calling/test_retry.py"
SLOT = "tests/unit/on_spark/direct/test_slot.py"
STATE = "tests/unit/task/test_state.py"
HANDLERS = "tests/unit/task/test_handlers.py"
ROWS = "tests/unit/sinks/test_tables.py"
TIMERS = "tests/unit/task/test_timers.py"
VERIFY = "tests/unit/verify/test_verify.py"
IMPERATIVE = "tests/unit/task/test_imperative.py"
DATABASE_PARTS = "tests/unit/sinks/test_parts.py"
TARGETS = "tests/unit/sinks/test_crashes.py"
REPLAYS = "tests/unit/task/test_replays.py"
