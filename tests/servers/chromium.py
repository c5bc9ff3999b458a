"""Chromium without a screen, for tests of pages: the system's, else Debian's package, unpacked into the cache."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from xml.sax.saxutils import escape

from tests.servers.packages import Programs, unpacked

PACKAGE = "chromium-headless-shell"
"""Chromium with all that draws and runs pages, and without windows: 62 MB, and needs no library of a desktop."""

PROGRAM = "usr/lib/chromium/chromium-headless-shell"
LETTERS = ("fonts-liberation", "usr/share/fonts/truetype/liberation*/LiberationSans-Regular.ttf")
"""The package of letters for a system that has none, and one of its files."""

SYSTEM = ("/usr/lib/chromium/chromium-headless-shell", "/usr/lib/chromium/chromium")
"""Debian's places. What is on `PATH` may be a script around it, which hands pipes on as well."""

FONTS = Path("/usr/share/fonts")
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--force-color-profile=srgb", "--hide-scrollbars", "--mute-audio", "--lang=en-GB",
    "--disable-breakpad", "--remote-debugging-pipe",
    # No name leads anywhere: a page that asks another address fails to, and the test sees it.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)  # fmt: skip
"""It runs as root in containers, so without a sandbox: it shows pages of our own only."""


def command(profile: Path) -> list[str]:
    """The program with flags, and a profile of its own."""
    return [str(_files()[1]), *FLAGS, f"--user-data-dir={profile}"]


def environment(profile: Path) -> dict[str, str]:
    """Its environment, with a home and with letters of its own, so that nothing of the user is read or written."""
    file = profile / "fonts.conf"
    said = f"<dir>{escape(str(letters()))}</dir><cachedir>{escape(str(profile / 'fonts'))}</cachedir>"
    for kind, name in {"system-ui": "Sans", "sans-serif": "Sans", "monospace": "Mono", "serif": "Serif"}.items():
        said += f"<alias><family>{kind}</family><prefer><family>Liberation {name}</family></prefer></alias>"
    file.write_text(f'<?xml version="1.0"?><fontconfig>{said}</fontconfig>', "utf-8")
    own = {"HOME": str(profile), "TMPDIR": str(profile), "FONTCONFIG_FILE": str(file), "LC_ALL": "C.UTF-8"}
    return {**_files()[0].environment, **own}


def letters() -> Path:
    """The folder of the system's fonts, else of unpacked ones."""
    if any((FONTS / "truetype").glob("*/*.ttf")):
        return FONTS
    return unpacked(*LETTERS).root / "usr/share/fonts"


@cache
def _files() -> tuple[Programs, Path]:
    """The system's program, else the unpacked one."""
    found = next(filter(None, (*map(shutil.which, SYSTEM), *map(shutil.which, NAMES))), None)
    return (Programs(Path("/"), "system"), Path(found)) if found else unpacked_files()


def unpacked_files() -> tuple[Programs, Path]:
    """The program of Debian's package, also where the system has another."""
    programs = unpacked(PACKAGE, PROGRAM, also="chromium-common")
    return programs, programs.root / PROGRAM
