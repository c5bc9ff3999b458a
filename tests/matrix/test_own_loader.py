"""Programs of a newer Debian run here with the loader and the libraries that came with them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.matrix.fetched import FETCHED
from tests.matrix.own_loader import programs, relink, with_own_loader
from tests.servers.packages import ServerError, mirrors

MAPS = "/proc/self/maps"
NEEDED = "import ssl, sqlite3, venv, ctypes, sys; print(*sys.version_info[:2], ssl.OPENSSL_VERSION)"


def mapped(program: Path) -> set[Path]:
    """The loader and the libraries that a `cat` has in memory."""
    said = subprocess.run([program, MAPS], capture_output=True, text=True, check=True).stdout
    return {Path(path) for path in re.findall(r"(/\S+\.so\S*)$", said, re.MULTILINE)}


def copied(into: Path) -> Path:
    """A `cat` with all that it needs, laid out as packages are."""
    found = shutil.which("cat")
    assert found is not None
    program = into / "usr" / "bin" / "cat"
    program.parent.mkdir(parents=True)
    shutil.copy(found, program)
    libraries = into / "usr" / "lib" / "some-linux-gnu"
    libraries.mkdir(parents=True)
    for library in mapped(Path(found)):
        shutil.copy(library, libraries)
    return program


@pytest.mark.timeout(300)
def test_program_runs_with_its_own_loader_and_libraries_after_the_move(tmp_path: Path) -> None:
    """Nothing of the system's libraries is loaded, and the programs that it starts are not affected."""
    root, target = tmp_path / "root", tmp_path / "target"
    copied(root)

    with_own_loader(root, target)
    root.rename(target)

    loaded = mapped(target / "usr" / "bin" / "cat")
    assert {"libc.so.6"} < {library.name for library in loaded}
    assert {library.parent for library in loaded} == {target / "usr" / "lib" / "some-linux-gnu"}


@pytest.mark.timeout(300)
def test_packages_without_the_loader_are_refused(tmp_path: Path) -> None:
    """A program whose loader is missing would say no more than that there is no such file."""
    copied(tmp_path)
    for loader in tmp_path.glob("usr/lib/*/ld-*"):
        loader.unlink()

    with pytest.raises(ServerError, match=r"do not hold the loader of cat, /"):
        with_own_loader(tmp_path, tmp_path)


def test_absolute_links_lead_to_what_came_with_them(tmp_path: Path) -> None:
    """Java's settings are links into `/etc`; what no package brought stays a link to the system's."""
    settings, link = tmp_path / "etc" / "java" / "security", tmp_path / "lib" / "jvm" / "conf" / "security"
    for file in (settings, link):
        file.parent.mkdir(parents=True)
    settings.write_text("ours", encoding="utf-8")
    link.symlink_to("/etc/java/security")
    outside, beside = link.with_name("cacerts"), link.with_name("beside")
    outside.symlink_to("/etc/ssl/certs/java/cacerts")
    beside.symlink_to("security")

    relink(tmp_path)

    assert link.read_text(encoding="utf-8") == "ours"
    assert str(link.readlink()) == "../../../etc/java/security"
    assert (str(outside.readlink()), str(beside.readlink())) == ("/etc/ssl/certs/java/cacerts", "security")


def test_libraries_and_scripts_are_no_programs(tmp_path: Path) -> None:
    """The C library can be executed, too, and must stay as it is."""
    program = copied(tmp_path)
    script = program.with_name("script")
    script.write_text("#!/bin/sh\n", encoding="utf-8")
    for file in tmp_path.rglob("*"):
        file.chmod(0o755)
    program.with_name("link").symlink_to(program)

    assert [*programs(tmp_path)] == [program]


def test_mirrors_of_the_system_serve_other_releases(tmp_path: Path) -> None:
    """In both formats; a mirror of security updates has no releases, and sources of others have other packages."""
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text("deb [arch=amd64] http://one.test/debian bookworm main\n", encoding="utf-8")
    (tmp_path / "sources.list.d" / "debian.sources").write_text(
        "Types: deb\nURIs: http://two.test/debian/\nSuites: bookworm\n\n"
        "Types: deb\nURIs: http://two.test/debian-security\n\nURIs: http://one.test/debian\n",
        encoding="utf-8",
    )
    (tmp_path / "sources.list.d" / "other.list").write_text("deb http://three.test/apt cloud main\n", encoding="utf-8")

    assert mirrors(tmp_path) == ["http://one.test/debian", "http://two.test/debian"]


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "asked", "says"),
    [
        ("Java 21", ["--list-modules"], "jdk.incubator.vector@21"),
        ("Python 3.14", ["-c", NEEDED], "3 14 OpenSSL 3"),
    ],
)
def test_fetched_program_runs(
    name: str, asked: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an empty cache, as on a machine that has neither."""
    monkeypatch.setenv("CUES_KAFKA_CACHE", str(tmp_path / "cache"))

    program = FETCHED[name].get()

    assert program.is_relative_to(tmp_path)
    assert says in subprocess.run([program, *asked], capture_output=True, text=True, check=True).stdout
