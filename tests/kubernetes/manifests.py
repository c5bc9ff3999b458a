"""The manifests below `docker/kubernetes`, read as they stand: what tests ask of them without a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import typer.main
import yaml

from cues_kafka.cli.main import app

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "docker" / "kubernetes"
KUSTOMIZATION = "kustomization.yaml"

BASES = ("native", "spark")
EXAMPLE = KUBERNETES / "overlays" / "example"

HERE = {"/app/shop.py": ROOT / "examples" / "shop.py", "/app/totals.py": ROOT / "docker" / "totals.py"}
"""Files of the images, by their place there."""

FIELDS = {
    "metadata.namespace": "shop",
    "status.podIP": "10.0.0.7",
}
"""What Kubernetes would put into variables of a container, besides the name of its pod."""


@cache  # no test changes what it reads
def documents(file: Path) -> list[dict[str, Any]]:
    """The objects of a file."""
    return [one for one in yaml.safe_load_all(file.read_text("utf-8")) if one is not None]


def kustomizations() -> list[Path]:
    """The directories with a kustomization."""
    return sorted(path.parent for path in KUBERNETES.rglob(KUSTOMIZATION))


def kustomization(directory: Path) -> dict[str, Any]:
    """What a directory is made of."""
    [found] = documents(directory / KUSTOMIZATION)
    return found


def objects(*directories: Path) -> list[dict[str, Any]]:
    """The objects of directories, without those that are generated, and without those of other directories."""
    return [
        one
        for directory in directories
        for name in kustomization(directory).get("resources", ())
        if (file := directory / name).is_file()
        for one in documents(file)
    ]


def all_objects() -> list[dict[str, Any]]:
    """Those of all directories."""
    return objects(*kustomizations())


def named(kind: str, name: str) -> dict[str, Any]:
    """The object of a kind with a name."""
    [found] = [one for one in all_objects() if one["kind"] == kind and one["metadata"]["name"] == name]
    return found


@dataclass(frozen=True, slots=True)
class PodSpec:
    """
    A pod that the manifests, or Spark, create.

    Attributes:
        name: of what creates it.
        directory: where it is declared.
        spec: of the pod, with its one container.
        labels: of the pod, those of its kustomization too.
    """

    name: str
    directory: Path
    spec: Mapping[str, Any]
    labels: Mapping[str, str]

    @property
    def container(self) -> dict[str, Any]:
        """The one container."""
        [found] = self.spec["containers"]
        return dict(found)

    @property
    def environment(self) -> dict[str, str]:
        """The variables, with values as a cluster gives them; a ConfigMap of the overlay is looked up there."""
        found = {}
        for variable in self.container.get("env", ()):
            source = variable.get("valueFrom", {})
            if "fieldRef" in source:
                value = (FIELDS | {"metadata.name": f"{self.name}-0"})[source["fieldRef"]["fieldPath"]]
            elif "configMapKeyRef" in source:
                value = _literals(source["configMapKeyRef"]["name"])[source["configMapKeyRef"]["key"]]
            else:
                value = variable["value"]
            assert isinstance(value, str), f"{self.name}: quote the value of {variable['name']}"
            found[variable["name"]] = value
        return found

    @property
    def command(self) -> list[str]:
        """The command line, with its variables."""
        words = [*self.container["command"], *self.container.get("args", ())]
        assert all(isinstance(word, str) for word in words), f"{self.name}: quote the words of the command"
        for name, value in self.environment.items():
            words = [word.replace(f"$({name})", value) for word in words]
        return words

    def mounts(self) -> dict[str, Mapping[str, Any]]:
        """The volumes, by the path at which the container has them."""
        volumes = {volume["name"]: volume for volume in self.spec.get("volumes", ())}
        mounted = self.container.get("volumeMounts", ())
        assert {mount["name"] for mount in mounted} == volumes.keys(), f"{self.name}: each volume is mounted"
        return {mount["mountPath"]: volumes[mount["name"]] for mount in mounted}


def _literals(config_map: str) -> dict[str, str]:
    """What the example's overlay generates."""
    [found] = [one for one in kustomization(EXAMPLE)["configMapGenerator"] if one["name"] == config_map]
    return dict(literal.split("=", 1) for literal in found["literals"])


def pods() -> list[PodSpec]:
    """Those of all workloads, and the template of Spark's executors."""
    found = []
    for directory in kustomizations():
        common: dict[str, str] = {}
        for pairs in kustomization(directory).get("labels", ()):
            assert pairs["includeSelectors"]
            common |= pairs["pairs"]
        for one in objects(directory):
            template = one.get("spec", {}).get("template")
            if template:
                labels = common | template["metadata"]["labels"]
                found.append(PodSpec(one["metadata"]["name"], directory, template["spec"], labels))
    [template] = documents(KUBERNETES / "spark" / "executor.yaml")
    found.append(PodSpec("executor", KUBERNETES / "spark", template["spec"], template["metadata"]["labels"]))
    return found


def commands() -> list[PodSpec]:
    """The pods that run a command of ours."""
    return [pod for pod in pods() if pod.command[0] == "cues-kafka"]


def parsed(words: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """
    A command line as our own program reads it: the command's name, and its parameters.

    The parser converts and checks each value, and the command does not run.
    """
    program, *arguments = words
    assert program == "cues-kafka"
    group: Any = typer.main.get_command(app)
    with group.make_context(program, list(arguments)) as context:
        name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
        with command.make_context(name, rest, parent=context) as inner:
            return name, dict(inner.params)


def references(pod: PodSpec) -> Iterator[tuple[str, str]]:
    """What a pod needs by name: kind and name."""
    if "serviceAccountName" in pod.spec:
        yield "ServiceAccount", pod.spec["serviceAccountName"]
    for volume in pod.spec.get("volumes", ()):
        if "configMap" in volume:
            yield "ConfigMap", volume["configMap"]["name"]
        if "secret" in volume:
            yield "Secret", volume["secret"]["secretName"]
        if "persistentVolumeClaim" in volume:
            yield "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]
    for variable in pod.container.get("env", ()):
        if "configMapKeyRef" in variable.get("valueFrom", {}):
            yield "ConfigMap", variable["valueFrom"]["configMapKeyRef"]["name"]


def generated() -> dict[str, dict[str, Path]]:
    """ConfigMaps of all directories: the files of each one, by name."""
    return {
        one["name"]: {Path(name).name: directory / name for name in one.get("files", ())}
        for directory in kustomizations()
        for one in kustomization(directory).get("configMapGenerator", ())
    }
