"""
The software bill of materials and the list of licences: `make sbom`.

Both list every package of `.ci/requirements/dev.lock`. The bill is CycloneDX 1.6 in JSON, with the hashes of the lock,
and with what depends on what. The core's packages are `required` there, those of extras `optional`, and those of the
developers `excluded`. The same lock and environment give the same bytes. `--check` validates the bill by the library of
CycloneDX, in an environment of its own.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.install.extras import ROOT, closure, project

LOCK: Final = ROOT / ".ci" / "requirements" / "dev.lock"
DIST: Final = ROOT / "dist"

SPDX: Final = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "Apache Software License 2.0": "Apache-2.0",
    "BSD 3-Clause License": "BSD-3-Clause",
    "CC0": "CC0-1.0",
    "GNU General Public License v2 (GPLv2)": "GPL-2.0-only",
    "ISC License": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""What packages call their licences, and the identifier of SPDX. "BSD License" may be one of several, so it stays."""

IDENTIFIERS: Final = frozenset({
    *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "EPL-2.0", "GPL-2.0-only", "ISC"),
    *("LGPL-3.0-only", "MIT", "MIT-0", "MIT-CMU", "MPL-2.0", "OLDAP-2.8", "PSF-2.0", "Python-2.0", "Zlib"),
})  # fmt: skip
"""The identifiers of SPDX that the lock's packages have; a new one is read, and added here."""

READ: Final = {
    "colorama": "BSD-3-Clause",  # for Windows
    "httpx2-jsfetch": "BSD-3-Clause",  # for browsers
    "promql-parser": "MIT",  # no word of it in its metadata
    "pywin32": "PSF-2.0",  # for Windows
}
"""Licences as their texts say, of packages that are not installed here, or whose metadata names none."""


VALIDATE: Final = """
import pathlib, sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
print("valid" if wrong is None else wrong)
sys.exit(wrong is not None)
"""


class Pin(NamedTuple):
    """A package of the lock; one may have several versions, each for other versions of Python."""

    name: str
    version: str
    hashes: tuple[str, ...]

    @property
    def ref(self) -> str:
        """Its package URL, which is its name in the bill, too."""
        return f"pkg:pypi/{self.name}@{self.version}"


def pins(lock: str) -> list[Pin]:
    """The packages of a lock, in its order."""
    found = []
    for entry in re.split(r"(?<!\\)\n", lock.strip()):
        name, version = re.match(r"([a-z0-9._-]+)==([^\s;\\]+)", entry).groups()  # type: ignore[union-attr]
        found.append(Pin(name, version, tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", entry))))
    return found


def licence_of(name: str) -> str:
    """
    The licence of a package: an expression of SPDX, or the words of a package that gives no such expression.

    Raises:
        LookupError: nothing says it. Read the package's text, and write it into `READ`.
    """
    if name in READ:
        return READ[name]
    try:
        told = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        raise LookupError(f"{name} is not installed here; read its licence, and write it into READ") from None
    classified = [one.rpartition(" :: ")[2] for one in told.get_all("Classifier") or () if one.startswith("License ::")]
    written = [*(told.get_all("License-Expression") or ()), *first_lines(told.get_all("License") or ())]
    said: list[str] = [
        SPDX.get(one, one) for one in (*written, " OR ".join(SPDX.get(name, name) for name in classified)) if one
    ]
    for one in said:
        if is_expression(one):
            return one
    if said:
        return said[-1]  # a classifier's words rather than a licence's title
    raise LookupError(f"{name} names no licence; read its text, and write it into READ")


def first_lines(texts: Iterable[str]) -> list[str]:
    """The first line of each text that has words."""
    lines = (re.search(r"^.*\w.*$", text, re.MULTILINE) for text in texts)
    return [found[0].strip() for found in lines if found]


def is_expression(text: str) -> bool:
    """Whether a text is an expression of known identifiers."""
    words = re.findall(r"[\w.+-]+", text)
    return {*words} - {"AND", "OR", "WITH"} <= IDENTIFIERS


def scopes() -> Mapping[str, str]:
    """By package, `required` or `optional`; all others are for developers."""
    declared = project()
    extras = [text for wanted in declared["optional-dependencies"].values() for text in wanted]
    return dict.fromkeys(closure(extras), "optional") | dict.fromkeys(closure(declared["dependencies"]), "required")


def needed(name: str, known: Iterable[str]) -> list[str]:
    """The packages of the lock that a package depends on here."""
    try:
        wanted = [Requirement(text) for text in metadata.requires(name) or ()]
    except metadata.PackageNotFoundError:
        return []
    names = {canonicalize_name(one.name) for one in wanted if not one.marker or one.marker.evaluate({"extra": ""})}
    return sorted(names & {*known})


def bill(locked: list[Pin]) -> dict[str, Any]:
    """The bill of materials."""
    declared = project()
    of_name: dict[str, list[Pin]] = {}
    for pin in locked:
        of_name.setdefault(pin.name, []).append(pin)
    own = f"pkg:pypi/{declared['name']}@{declared['version']}"
    in_use = scopes()
    components = [component(pin, in_use.get(pin.name, "excluded")) for pin in locked]
    direct = sorted({canonicalize_name(Requirement(text).name) for text in declared["dependencies"]})
    depends = [{"ref": own, "dependsOn": [pin.ref for name in direct for pin in of_name[name]]}]
    depends += [
        {"ref": pin.ref, "dependsOn": [one.ref for name in needed(pin.name, of_name) for one in of_name[name]]}
        for pin in locked
    ]
    content = {
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": declared["name"],
                "version": declared["version"],
                "description": declared["description"],
                "licenses": [{"license": {"id": declared["license"]}}],
                "purl": own,
            }
        },
        "components": components,
        "dependencies": depends,
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}", "version": 1}
    return {**head, **content}


def component(pin: Pin, scope: str) -> dict[str, Any]:
    """A package in the bill. The hashes are those of the files that an installer may take."""
    licence = licence_of(pin.name)
    if licence in IDENTIFIERS:
        said: dict[str, Any] = {"license": {"id": licence}}
    else:
        said = {"expression": licence} if is_expression(licence) else {"license": {"name": licence}}
    file = {
        "type": "distribution",
        "url": pin.ref,
        "hashes": [{"alg": "SHA-256", "content": one} for one in pin.hashes],
    }
    return {
        "type": "library",
        "bom-ref": pin.ref,
        "name": pin.name,
        "version": pin.version,
        "scope": scope,
        "licenses": [said],
        "purl": pin.ref,
        "externalReferences": [file],
    }


def licences(made: Mapping[str, Any]) -> str:
    """The list of licences in Markdown, by licence."""
    rows = []
    for one in made["components"]:
        [said] = one["licenses"]
        licence = said.get("expression") or said["license"].get("id") or said["license"]["name"]
        rows.append((licence, one["name"], one["version"], one["scope"]))
    title = f"# Licences of the packages that {made['metadata']['component']['name']} is locked to\n\n"
    head = "| licence | package | version | needed |\n| --- | --- | --- | --- |\n"
    words = {"required": "always", "optional": "by an extra", "excluded": "by developers"}
    lines = (f"| {licence} | {name} | {version} | {words[scope]} |" for licence, name, version, scope in sorted(rows))
    return title + head + "\n".join(lines) + "\n"


def write(place: Path) -> list[Path]:
    """Write both files; their paths."""
    made = bill(pins(LOCK.read_text(encoding="utf-8")))
    own = made["metadata"]["component"]
    place.mkdir(parents=True, exist_ok=True)
    files = [place / f"{own['name']}-{own['version']}.{end}" for end in ("cdx.json", "licences.md")]
    files[0].write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    files[1].write_text(licences(made), encoding="utf-8")
    return files


def validate(file: Path) -> int:
    """Hold a bill against the schema of CycloneDX, strictly; 0: it is valid."""
    uv, place = ROOT / ".venv" / "bin" / "uv", ROOT / ".venv" / "sbom"
    python = place / "bin" / "python"
    if not python.exists():
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, place], check=True)
    install: list[str | Path] = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--python",
        python,
        "--no-deps",
        "--require-hashes",
        "--requirement",
    ]
    subprocess.run([*install, LOCK.with_name("sbom.lock")], check=True)
    return subprocess.run([python, "-c", VALIDATE, file], check=False).returncode


def main() -> int:
    """Write the files into a directory, and say where they are."""
    parser = argparse.ArgumentParser(prog="python -m tests.install.sbom", description=__doc__)
    parser.add_argument("--out", type=Path, default=DIST, help="directory of the files; dist/")
    parser.add_argument("--check", action="store_true", help="validate the bill")
    args = parser.parse_args()
    files = write(args.out)
    if args.out == DIST:
        (DIST / ".gitignore").write_text("*\n", encoding="utf-8")  # uv build does so, too
    for path in files:
        print(path)
    return validate(files[0]) if args.check else 0


if __name__ == "__main__":
    sys.exit(main())
