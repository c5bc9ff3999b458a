"""Compiles the module of the hot loop into the wheel where there is a C compiler; else the wheel has Python only.

It is built for the stable interface of Python 3.11, so one wheel serves all later versions. It is linked with nothing:
librdkafka's functions are looked up in the library that confluent-kafka has loaded.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = "cues_kafka/brokers/kafka/compiled"
MODULE = "_cues_kafka.abi3.so"
CHOICE = "CUES_KAFKA_COMPILED"
"""Environment variable, as where the package runs: `0` builds without the module, `1` fails without it."""

FLAGS = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror=implicit-function-declaration", "-fPIC", "-fvisibility=hidden"]


class CompileHook(BuildHookInterface[Any]):
    """Adds the module to wheels, also to editable ones."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, before the files of the wheel are collected."""
        choice = os.environ.get(CHOICE, "")
        if self.target_name != "wheel" or choice == "0":
            return
        self._place = Path(tempfile.mkdtemp(prefix="cues-kafka-build-"))
        why_not = compiled(Path(self.root) / SOURCES, self._place / MODULE)
        if why_not:
            if choice == "1":
                raise RuntimeError(f"{CHOICE}=1 asks for the compiled module: {why_not}")
            print(f"cues-kafka is built without its compiled module: {why_not}", file=sys.stderr)
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{platform}"
        key = "force_include_editable" if version == "editable" else "force_include"
        build_data[key][str(self._place / MODULE)] = MODULE

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled: the wheel has it."""
        if hasattr(self, "_place"):
            shutil.rmtree(self._place, ignore_errors=True)


def compiled(sources: Path, target: Path) -> str:
    """Compile these sources into one file; gives why it cannot be done, or an empty text."""
    if not sys.platform.startswith("linux"):
        return f"it is for Linux, and this is {sys.platform}"
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    include = Path(sysconfig.get_path("include"))
    if compiler is None:
        return "there is no C compiler"
    if not (include / "Python.h").exists():
        return f"{include} has no Python.h (Debian, Ubuntu: python3-dev)"
    command = [*compiler.split(), *FLAGS, *os.environ.get("CFLAGS", "").split(), "-DPy_LIMITED_API=0x030b0000"]
    # Stripped, and compiled where the sources are, it is the same bytes wherever that is.
    command += [f"-I{include}", "-shared", "-s", "-o", str(target), *sorted(one.name for one in sources.glob("*.c"))]
    command += ["-pthread", "-ldl"]
    done = subprocess.run(command, cwd=sources, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"{command[0]} ended with {done.returncode}: {done.stderr[-2000:]}"
