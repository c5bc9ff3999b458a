"""`docker/kubernetes`: each name, command line and number in it fits the rest, and our own program."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from cues_kafka.cli.config import PREFIX, load
from cues_kafka.cli.loading import load_graph
from cues_kafka.cli.on_spark import STOP_S
from cues_kafka.observe.http import _Server
from cues_kafka.on_spark.executor import ARGUMENT
from cues_kafka.workers.memory import size
from tests.kubernetes.manifests import (
    EXAMPLE,
    HERE,
    KUBERNETES,
    KUSTOMIZATION,
    ROOT,
    PodSpec,
    all_objects,
    commands,
    documents,
    generated,
    kustomization,
    kustomizations,
    named,
    parsed,
    pods,
    references,
)

PAGE = ROOT / "docs" / "kubernetes.md"
BY_NAME = pytest.mark.parametrize("pod", pods(), ids=lambda pod: pod.name)
OF_COMMANDS = pytest.mark.parametrize("pod", commands(), ids=lambda pod: pod.name)
OF_RUNS = pytest.mark.parametrize(
    "pod", [pod for pod in commands() if pod.command[1] == "run"], ids=lambda pod: pod.name
)
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def quantity(text: str) -> int:
    """Bytes of a quantity of Kubernetes."""
    return int(text[:-2]) * BINARY[text[-2:]]


# Kustomizations


def test_each_file_belongs_to_a_kustomization_that_names_it() -> None:
    """And each name is a file or a directory with a kustomization."""
    named_files = {directory / KUSTOMIZATION for directory in kustomizations()}
    for directory in kustomizations():
        found = kustomization(directory)
        assert found["kind"] == ("Component" if directory.parent.name == "components" else "Kustomization")
        for name in [*found.get("resources", ()), *found.get("components", ())]:
            place = (directory / name).resolve()
            assert place.is_file() or (place / KUSTOMIZATION).is_file(), f"{directory}: {name}"
            named_files.add(place)
        for generator in found.get("configMapGenerator", ()):
            for name in generator.get("files", ()):
                assert "/" not in name, "kustomize reads no file outside of the directory"
                named_files.add(directory / name)
    assert {path for path in KUBERNETES.rglob("*") if path.is_file()} - named_files == {KUBERNETES / "Dockerfile"}


def test_the_example_has_all_parts_and_the_image_of_this_release() -> None:
    """What an overlay names exists, so that copying it gives something that builds."""
    example = kustomization(EXAMPLE)
    release = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]

    parts = {(EXAMPLE / name).resolve() for kind in ("resources", "components") for name in example[kind]}
    assert set(kustomizations()) - {EXAMPLE} <= parts
    names = {pod.directory.name: pod.container["image"] for pod in commands()}
    assert names == {"native": f"cues-kafka-native:{release}", "spark": f"cues-kafka:{release}"}
    assert [one["name"] for one in example["images"]] == ["cues-kafka-native", "cues-kafka"]
    stages = re.findall(
        r"^#   docker build .*--tag (\S+) \.$", (ROOT / "docker" / "Dockerfile").read_text(), re.MULTILINE
    )
    assert set(names.values()) == set(stages)
    driver = next(pod for pod in pods() if pod.name == "totals")
    assert driver.environment["EXECUTOR_IMAGE"] == driver.container["image"]
    [copied] = example["replacements"]
    assert copied["source"]["name"] == copied["targets"][0]["select"]["name"] == driver.name
    assert copied["source"]["fieldPath"] == f"spec.template.spec.containers.[name={driver.container['name']}].image"
    [target] = copied["targets"][0]["fieldPaths"]
    assert target.endswith("env.[name=EXECUTOR_IMAGE].value")


def test_what_a_component_changes_is_there() -> None:
    """A patch without a target would stop the build."""
    for directory in kustomizations():
        for patch in kustomization(directory).get("patches", ()):
            target = named(patch["target"]["kind"], patch["target"]["name"])
            [step] = re.findall(r"path: (\S+)", patch["patch"])
            _, first, *rest = step.split("/")
            place = target[first]
            for key in rest:
                place = place[key]


@BY_NAME
def test_everything_that_a_pod_names_exists(pod: PodSpec) -> None:
    """Generated, declared, or made by a command of the page: secrets are in no file."""
    declared = {(one["kind"], one["metadata"]["name"]) for one in all_objects()}
    declared |= {("ConfigMap", name) for name in generated()}
    declared |= {("Secret", name) for name in secrets_of_the_page()}

    assert set(references(pod)) - declared == set()
    for path, volume in pod.mounts().items():
        if "secret" in volume:
            keys = {item["key"] for item in volume["secret"]["items"]}
            assert keys <= secrets_of_the_page()[volume["secret"]["secretName"]], path
            assert volume["secret"]["defaultMode"] == 0o440


def secrets_of_the_page() -> dict[str, set[str]]:
    """Names and keys of the secrets that the page creates."""
    text = PAGE.read_text("utf-8").replace("\\\n", " ")
    found = {}
    for line in re.findall(r"^ *kubectl create secret generic .*$", text, re.MULTILINE):
        words = shlex.split(line)
        keys = [word.split("=")[1] for word in words if word.startswith(("--from-file=", "--from-literal="))]
        found[words[4]] = set(keys)
    return found


def test_scaling_logs_in_with_keys_of_its_own_secret() -> None:
    """KEDA needs no more rights than to read offsets."""
    for one in all_objects():
        if one["kind"] == "TriggerAuthentication":
            for reference in one["spec"]["secretTargetRef"]:
                assert reference["key"] in secrets_of_the_page()[reference["name"]]


# Commands


@OF_COMMANDS
def test_our_own_program_takes_each_command_line(pod: PodSpec, tmp_path: Path) -> None:
    """The parser takes each word, the settings of the container fit, and the graph is the image's."""
    name, options = parsed(pod.command)
    graph = load_graph(f"{HERE[options['target'].split(':')[0]]}:{options['target'].split(':')[1]}")

    assert graph.name == pod.labels["app.kubernetes.io/instance"]
    assert name in ("run", "plan")
    mounted = {path: volume for path, volume in pod.mounts().items() if "configMap" in volume}
    file = Path(pod.environment["CUES_KAFKA_FILE"])
    toml = generated()[mounted[str(file.parent)]["configMap"]["name"]][file.name]
    given = {key: value for key, value in pod.environment.items() if key != "CUES_KAFKA_FILE"}
    found = load(profile=options.get("profile"), file=with_secrets(pod, toml, tmp_path), env=given, cwd=tmp_path)
    kafka = found.kafka()
    assert kafka.bootstrap == FIELDS_OF_THE_EXAMPLE["bootstrap"]
    assert kafka.security is not None
    assert kafka.security.settings()["security.protocol"] == "SASL_SSL"
    if name == "run" and found["state_dir"]:
        assert found["state_dir"] in pod.mounts()


FIELDS_OF_THE_EXAMPLE = dict(
    literal.split("=", 1) for one in kustomization(EXAMPLE)["configMapGenerator"] for literal in one["literals"]
)


def with_secrets(pod: PodSpec, toml: Path, directory: Path) -> Path:
    """The settings with the files of secrets that the container has; another one that they name is not there."""
    text = toml.read_text("utf-8")
    for path, volume in pod.mounts().items():
        for item in volume.get("secret", {}).get("items", ()):
            (directory / item["path"]).write_text("x")
            text = text.replace(f'"{path}/{item["path"]}"', json.dumps(str(directory / item["path"])))
    (directory / "cues-kafka.toml").write_text(text)
    return directory / "cues-kafka.toml"


@BY_NAME
def test_each_variable_is_known_to_its_reader(pod: PodSpec) -> None:
    """Ours to `config`, Spark's to Spark; others stand in the command line or in Spark's settings."""
    settings = {PREFIX + name.replace(".", "_").upper() for name in load(env={}, cwd=KUBERNETES).settings}
    known = settings | {"CUES_KAFKA_FILE", "SPARK_LOCAL_HOSTNAME", "SPARK_CONF_DIR"}
    texts = " ".join(pod.container["command"]) + (KUBERNETES / "spark" / "spark-defaults.conf").read_text("utf-8")

    for name in pod.environment.keys() - known:
        assert f"$({name})" in texts or f"${{env:{name}}}" in texts, name


@OF_COMMANDS
def test_each_graph_is_in_an_image(pod: PodSpec) -> None:
    """Of the base image, or of the one that this directory adds to it."""
    place = parsed(pod.command)[1]["target"].split(":")[0]
    base = (ROOT / "docker" / "Dockerfile").read_text("utf-8")
    own = (KUBERNETES / "Dockerfile").read_text("utf-8")

    assert Path(place).name in re.findall(
        r"[\w.-]+\.py\b", " ".join(re.findall(r"^COPY .*$", base + own, re.MULTILINE))
    )
    assert HERE[place].is_file()


def test_the_images_have_what_the_options_of_the_pods_need() -> None:
    """`--http` needs the library of metrics, and Spark its own extra."""
    text = (ROOT / "docker" / "Dockerfile").read_text("utf-8")
    [native] = re.findall(r"^ARG EXTRAS=([\w,]+)$", text, re.MULTILINE)
    [spark] = re.findall(r'"\.\[([\w,]+)\]"', text)
    extras = {"native": set(native.split(",")), "spark": set(spark.split(","))}

    for pod in (pod for pod in commands() if pod.command[1] == "run"):
        options = parsed(pod.command)[1]
        wanted = {"metrics"} if options["http"] else set()
        assert wanted | ({"spark"} if options["engine"] == "spark" else set()) <= extras[pod.directory.name]


@OF_RUNS
def test_a_pod_has_the_time_that_the_command_needs_to_stop(pod: PodSpec) -> None:
    """The supervisor kills its workers at --stop-timeout, and ends a moment later."""
    options = parsed(pod.command)[1]

    assert options["stop_timeout"] + 10 <= pod.spec["terminationGracePeriodSeconds"]
    if options["engine"] == "spark":
        assert options["stop_timeout"] >= STOP_S


@OF_RUNS
def test_probes_ask_pages_that_exist_at_the_port_that_is_served(pod: PodSpec) -> None:
    """As do the Service, the rule of the network, and the monitor."""
    host, port = parsed(pod.command)[1]["http"].split(":")
    pages = re.findall(r'"(/\w+)": _', Path(str(sys.modules[_Server.__module__].__file__)).read_text("utf-8"))
    ports = {one["name"]: one["containerPort"] for one in pod.container["ports"]}
    probes = [pod.container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]

    assert host == "0.0.0.0"
    assert {ports[probe["port"]] for probe in probes} == {int(port)}
    assert [probe["path"] for probe in probes] == ["/healthz", "/healthz", "/readyz"]
    assert {probe["path"] for probe in probes} <= set(pages)
    service = named("Service", pod.name)
    [served] = service["spec"]["ports"]
    assert ports[served["targetPort"]] == int(port)
    [endpoint] = named("ServiceMonitor", "cues-kafka")["spec"]["endpoints"]
    assert endpoint["port"] == served["name"]
    assert endpoint["path"] in pages
    [rule] = [
        one for one in named("NetworkPolicy", pod.name)["spec"]["ingress"] if "namespaceSelector" in one["from"][0]
    ]
    assert rule["ports"] == [{"port": int(port)}]
    assert named("StatefulSet", pod.name)["spec"]["serviceName"] == service["metadata"]["name"]


def test_the_memory_of_a_pod_is_enough_for_its_workers() -> None:
    """Kubernetes ends the whole container at its limit, so the supervisor must see a worker that grows before that."""
    [pod] = [pod for pod in commands() if pod.command[1] == "run" and "--workers" in pod.command]
    options = parsed(pod.command)[1]

    each = size(options["max_memory"], "--max-memory")
    assert options["workers"] * each + 256 * 2**20 <= quantity(pod.container["resources"]["limits"]["memory"])


def test_workers_are_members_by_the_names_of_their_pods() -> None:
    """A pod that comes back has the name of the one before, and no other pod has it."""
    [pod] = [pod for pod in commands() if pod.command[1] == "run" and "--workers" in pod.command]
    [word] = [word for word in pod.container["command"] if "$(" in word]

    assert named("StatefulSet", pod.name)
    assert pod.container["command"][pod.container["command"].index(word) - 1] == "--instance"
    assert [one["valueFrom"]["fieldRef"]["fieldPath"] for one in pod.container["env"] if one["name"] == word[2:-1]] == [
        "metadata.name"
    ]
    assert parsed(pod.command)[1]["instance"] == f"{pod.name}-0"


def test_scaling_looks_at_the_group_and_the_input_of_each_processor() -> None:
    """And makes no more pods than there are tasks."""
    graph = load_graph(f"{HERE['/app/shop.py']}:graph")
    [pod] = [pod for pod in commands() if pod.command[1] == "run" and "--workers" in pod.command]
    scaled = named("ScaledObject", pod.name)["spec"]
    triggers = [one["metadata"] for one in scaled["triggers"]]

    expected = {(f"{graph.name}.{name}", one.read_topics[0]) for name, one in graph.processors.items()}
    assert {(one["consumerGroup"], one["topic"]) for one in triggers} == expected
    assert len(triggers) == len(expected)
    tasks = graph.defaults.partitions
    assert tasks is not None
    assert scaled["maxReplicaCount"] * parsed(pod.command)[1]["workers"] <= tasks
    assert scaled["minReplicaCount"] >= 1
    for one in triggers:
        assert one["bootstrapServersFromEnv"] in pod.environment
        assert all(isinstance(value, str) for value in one.values()), "KEDA takes text only"


# Rights


@BY_NAME
def test_no_pod_has_more_rights_than_it_needs(pod: PodSpec) -> None:
    """No root, nothing to write but volumes, no capability, no token of Kubernetes but the driver's."""
    own = pod.container["securityContext"]
    user = re.search(r"^USER (\d+)$", (ROOT / "docker" / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    assert user is not None

    assert pod.spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": int(user[1]),
        "runAsGroup": int(user[1]),
        "fsGroup": int(user[1]),
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert own == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "emptyDir" in pod.mounts()["/tmp"], "programs write their temporary files there"
    is_driver = pod.labels.get("app.kubernetes.io/component") == "driver"
    assert pod.spec.get("automountServiceAccountToken", True) is is_driver
    assert named("Namespace", "shop")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert kustomization(EXAMPLE)["namespace"] == "shop"


def test_selectors_find_the_pods_that_they_are_for() -> None:
    """With the labels that a kustomization adds to both."""
    for directory in kustomizations():
        common = {
            key: value for one in kustomization(directory).get("labels", ()) for key, value in one["pairs"].items()
        }
        mine = [pod for pod in pods() if pod.directory == directory]
        for one in (
            one
            for name in kustomization(directory).get("resources", ())
            if (directory / name).is_file()
            for one in documents(directory / name)
        ):
            spec: dict[str, Any] = one.get("spec", {})
            selector = spec.get("podSelector") or spec.get("selector") or {}
            wanted = common | selector.get("matchLabels", {} if "matchLabels" in selector else selector)
            if one["kind"] in ("Service", "PodDisruptionBudget", "NetworkPolicy", "StatefulSet"):
                assert [pod for pod in mine if wanted.items() <= pod.labels.items()], one["metadata"]["name"]
    [found] = [one for one in all_objects() if one["kind"] == "PodDisruptionBudget"]
    assert found["spec"]["maxUnavailable"] == 1


# Spark


def spark_settings() -> dict[str, str]:
    """Of the driver's file."""
    lines = (KUBERNETES / "spark" / "spark-defaults.conf").read_text("utf-8").splitlines()
    return dict(line.split(None, 1) for line in lines if line and not line.startswith("#"))


def test_spark_knows_each_of_its_settings() -> None:
    """The names are in the classes of Spark that read them."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    jars = Path(found.origin).parent / "jars"
    classes = b""
    for pattern in ("spark-kubernetes_*.jar", "spark-core_*.jar"):
        with zipfile.ZipFile(next(jars.glob(pattern))) as jar:
            wanted = [name for name in jar.namelist() if re.search(r"/(?:config/package|k8s/Config)\$\.class$", name)]
            classes += b"".join(jar.read(name) for name in wanted)

    assert [name for name in spark_settings() if name.encode() not in classes] == []


def test_variables_and_files_in_the_settings_of_spark_are_those_of_the_drivers_pod() -> None:
    """And its ports are open."""
    [driver] = [pod for pod in pods() if pod.name == "totals"]
    settings = spark_settings()
    used = set(re.findall(r"\$\{env:(\w+)\}", " ".join(settings.values())))
    place = Path(settings["spark.kubernetes.executor.podTemplateFile"])
    ports = {int(value) for name, value in settings.items() if name.endswith("ort")}

    assert used <= driver.environment.keys()
    assert driver.environment["SPARK_CONF_DIR"] == str(place.parent)
    assert generated()[driver.mounts()[str(place.parent)]["configMap"]["name"]].keys() == {
        "spark-defaults.conf",
        place.name,
    }
    assert ports <= {one["containerPort"] for one in driver.container["ports"]}
    [rule] = [one for one in named("NetworkPolicy", "totals")["spec"]["ingress"] if "podSelector" in one["from"][0]]
    assert {one["port"] for one in rule["ports"]} == ports
    limit = quantity(driver.container["resources"]["limits"]["memory"])
    assert quantity(settings["spark.driver.memory"].upper() + "i") + 512 * 2**20 <= limit


def test_driver_and_executors_share_the_volume_of_checkpoints_and_the_authority() -> None:
    """At the same paths: executors read the certificate, and write staged files."""
    driver, executor = (next(pod for pod in pods() if pod.name == name) for name in ("totals", "executor"))
    checkpoint = parsed(driver.command)[1]["checkpoint"]
    claim = named("PersistentVolumeClaim", "totals-checkpoints")

    assert checkpoint.startswith("file:///data/")
    assert driver.mounts()["/data"] == executor.mounts()["/data"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    toml = tomllib.loads((KUBERNETES / "spark" / "cues-kafka.toml").read_text("utf-8"))
    place = Path(toml["security"]["ca"])
    assert place.name in {item["path"] for item in executor.mounts()[str(place.parent)]["secret"]["items"]}
    assert executor.container["workingDir"] in executor.mounts(), "files that the driver sends go there"


def test_the_program_of_executors_starts_and_says_what_is_missing() -> None:
    """Spark adds its argument to the command of the template."""
    [executor] = [pod for pod in pods() if pod.name == "executor"]
    program, *words = executor.command
    assert program == "python"

    done = subprocess.run(
        [sys.executable, *words, ARGUMENT],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": "/usr/bin:/bin"},
    )

    assert done.returncode == 1
    assert "the environment has no SPARK_EXECUTOR_MEMORY, SPARK_DRIVER_URL" in done.stderr


def test_the_driver_may_do_what_spark_does_and_has_one_pod() -> None:
    """One driver for each processor; tests/spark/test_kubernetes.py compares the rights with Spark's requests."""
    assert named("StatefulSet", "totals")["spec"]["replicas"] == 1
    [subject] = named("RoleBinding", "totals-driver")["subjects"]
    [driver] = [pod for pod in pods() if pod.name == "totals"]
    assert driver.spec["serviceAccountName"] == subject["name"]
