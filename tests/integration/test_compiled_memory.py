"""What the compiled module does with memory: a crash inside it costs no message, and a sanitizer finds no fault."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cues_kafka import Kafka, connect
from cues_kafka.brokers.kafka.compiled.loaded import CHOICE
from cues_kafka.testing.fixtures import BOOTSTRAP, KafkaFixture
from tests.integration.compiled_crash import graph_of

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "cues_kafka/brokers/kafka/compiled"
TESTS = "tests/integration/test_compiled.py", "tests/unit/task/calling/test_tight.py"
"""Those of the module."""


def test_a_crash_inside_the_module_is_as_harmless_as_a_kill(kafka: KafkaFixture) -> None:
    """Two workers in a row die by SIGSEGV with half a batch enqueued; the third delivers each message once."""
    graph, sent = graph_of(kafka.prefix), 0

    def run(batch: int) -> int:
        command = [sys.executable, "-m", "tests.integration.compiled_crash", kafka.bootstrap, kafka.prefix, str(batch)]
        return subprocess.run(command, cwd=ROOT, env={**os.environ, CHOICE: "1"}, check=False, timeout=90).returncode

    assert run(0) == 0
    with connect(Kafka(kafka.bootstrap), graph) as client:
        for batch in (1, 2):
            client.send_many(f"{kafka.prefix}-in", [b"%d" % n for n in range(sent, sent + 3_000)])
            sent += 3_000
            assert run(batch) == -signal.SIGSEGV
        assert run(0) == 0
        found = [message.value for message in client.messages(f"{kafka.prefix}-out", limit=2 * sent)]
    assert sorted(found) == sorted(b"%d" % n for n in range(sent))


@pytest.mark.full
@pytest.mark.timeout(400)
def test_the_contract_with_a_broker_holds_without_the_module(kafka: KafkaFixture, tmp_path: Path) -> None:
    """Python does the same. All other tests run with the module, where it is."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-o", f"cache_dir={tmp_path}", "tests/contract"],
        cwd=ROOT,
        env={**os.environ, BOOTSTRAP: kafka.bootstrap, CHOICE: "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "passed" in done.stdout


@pytest.mark.full
@pytest.mark.timeout(400)
def test_a_sanitizer_finds_nothing_in_the_tests_of_the_module(kafka: KafkaFixture, tmp_path: Path) -> None:
    """Built with checks of addresses and of undefined behaviour, it passes its tests, also with hostile records."""
    library = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    include = subprocess.run(
        [sys.executable, "-c", "import sysconfig; print(sysconfig.get_path('include'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    subprocess.run(
        [
            *("gcc", "-std=c11", "-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined"),
            *(
                "-fno-sanitize-recover=undefined",
                "-fPIC",
                "-fvisibility=hidden",
                "-DPy_LIMITED_API=0x030b0000",
                "-shared",
            ),
            *(f"-I{include.stdout.strip()}", "-o", str(tmp_path / "_cues_kafka.abi3.so")),
            *map(str, sorted(SOURCES.glob("*.c"))),
            *("-pthread", "-ldl"),
        ],
        check=True,
    )
    environment = {
        **os.environ,
        "LD_PRELOAD": library.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
        "PYTHONMALLOC": "malloc",  # else the sanitizer does not see Python's own blocks
        "PYTHONPATH": f"{tmp_path}:{ROOT}",
        BOOTSTRAP: kafka.bootstrap,
        CHOICE: "1",
    }
    program = f"import _cues_kafka; assert _cues_kafka.__file__.startswith({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-o", f"cache_dir={tmp_path}", *TESTS],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "passed" in done.stdout
    assert "skipped" not in done.stdout
