"""Kustomize, and the schemas of Kubernetes and of the kinds that KEDA and Prometheus' operator define.

Everything comes from `.ci/requirements/kubernetes.lock`, into an environment of its own: the schemas of Kubernetes, and
Go, which builds kustomize from its module and fetches the modules with the other schemas.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from cues_kafka.brokers.local.jars import exclusive
from tests.kubernetes.manifests import ROOT, documents

LOCK: Final = ROOT / ".ci" / "requirements" / "kubernetes.lock"
BELOW: Final = Path(sys.prefix) / "kubernetes"
"""The folder of the environment: below the project's own, which git ignores as a whole."""

KUSTOMIZE: Final = "sigs.k8s.io/kustomize/kustomize/v5@v5.8.1"

BUILD_S: Final = 900
"""How long the build of kustomize may take; alone on two cores it takes about a minute."""


@dataclass(frozen=True, slots=True)
class Module:
    """A module of Go, by the hash of its content, and its files that define kinds of ours."""

    path: str
    version: str
    sum: str
    files: tuple[str, ...]


DEFINE: Final = (
    Module(
        "github.com/kedacore/keda/v2",
        "v2.21.0",
        "h1:R6z2HZvstK4RLUMxroNACzBj74xGxt3kG59b5Xc+Xps=",
        ("config/crd/bases/keda.sh_scaledobjects.yaml", "config/crd/bases/keda.sh_triggerauthentications.yaml"),
    ),
    Module(
        "github.com/prometheus-operator/prometheus-operator",
        "v0.85.0",
        "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
        ("example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",),
    ),
)
"""Who defines kinds that Kubernetes itself does not have."""


def python() -> Path:
    """The environment's Python, which is made the first time, and whenever the lock has changed."""
    program, mark = BELOW / "bin" / "python", BELOW / ".installed"
    made_of = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    with exclusive(BELOW.with_suffix(".wait"), waits_for="installs the tools for manifests"):
        if not mark.exists() or mark.read_text("utf-8") != made_of:
            uv = str(Path(sys.prefix) / "bin" / "uv")
            _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(BELOW)])
            install = [uv, "pip", "install", "--quiet", "--require-hashes", "--no-deps", "--python", str(program)]
            _run([*install, "-r", str(LOCK)])
            mark.write_text(made_of, "utf-8")
    return program


def go(*words: str) -> str:
    """What a command of Go prints."""
    package = _run([str(python()), "-c", "import go; print(go.__file__)"]).strip()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GO")}
    own = {"GOPATH": str(BELOW / "go"), "GOBIN": str(BELOW / "go" / "bin"), "GOTOOLCHAIN": "local"}
    own |= {"GOCACHE": str(BELOW / "go" / "cache"), "GOFLAGS": "-modcacherw -buildvcs=false"}
    proxies = {name: value for name, value in os.environ.items() if name in ("GOPROXY", "GONOSUMDB", "GOSUMDB")}
    program = str(Path(package).parent / "bin" / "go")
    Path(program).chmod(0o755)
    for tool in (Path(package).parent / "pkg" / "tool").rglob("*"):
        tool.chmod(0o755)
    return _run([program, *words], environment | proxies | own)


def built(directory: Path) -> list[dict[str, Any]]:
    """The objects that kustomize builds of a directory."""
    program = BELOW / "go" / "bin" / "kustomize"
    python()
    with exclusive(BELOW.with_suffix(".build"), waits_for="builds kustomize"):
        if not program.exists():
            go("install", KUSTOMIZE)
    text = _run([str(program), "build", str(directory)])
    return [one for one in yaml.safe_load_all(text) if one is not None]


def definitions() -> dict[tuple[str, str], dict[str, Any]]:
    """The schemas of the kinds that others define, by group with version, and kind."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for module in DEFINE:
        told = json.loads(go("mod", "download", "-json", f"{module.path}@{module.version}"))
        assert told["Sum"] == module.sum, f"{module.path} {module.version} is not what it was"
        for file in module.files:
            for one in documents(Path(told["Dir"]) / file):
                for version in one["spec"]["versions"]:
                    key = f"{one['spec']['group']}/{version['name']}", one["spec"]["names"]["kind"]
                    found[key] = closed(version["schema"]["openAPIV3Schema"])
    return found


def closed(schema: Any) -> Any:
    """A schema that takes no field that it does not name, where the definition does not say that it keeps them."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string"):
        found.pop("anyOf", None)
        found["type"] = ["integer", "string"]
    named = isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    if named and "additionalProperties" not in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        if set(schema["properties"]) >= {"apiVersion", "kind", "metadata"}:
            found["properties"] = {**found["properties"], "metadata": {"type": "object"}}
        found["additionalProperties"] = False
    return found


def refused(objects: list[dict[str, Any]], version: str) -> list[str]:
    """What the schemas of a version of Kubernetes refuse, a line each."""
    program = (
        "import json, sys, kubernetes_validate as k\n"
        "for one in json.load(sys.stdin):\n"
        "    try: k.validate(one, sys.argv[1], strict=True)\n"
        "    except k.ValidationError as e: print(one['kind'], one['metadata'].get('name'), *e.path, e.message)\n"
    )
    return _run([str(python()), "-c", program, version], given=json.dumps(objects)).splitlines()


def _run(command: list[str], environment: dict[str, str] | None = None, given: str = "") -> str:
    done = subprocess.run(
        command, env=environment, input=given, capture_output=True, text=True, check=False, timeout=BUILD_S
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
