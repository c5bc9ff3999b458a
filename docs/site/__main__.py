"""`make docs`: build the site, check it, and put it into the folder of its version."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from docs.site import checks, pages, reference, versions
from docs.site.index import ROOT

WORK = ROOT / ".venv" / "docs"


def main(arguments: list[str] | None = None) -> int:
    """Build; 1: a link, an anchor or a page is wrong, and the site that was there stays."""
    parser = argparse.ArgumentParser(prog="python -m docs.site", description=__doc__)
    parser.add_argument("--out", type=Path, default=WORK / "site", help="the site; other versions in it stay")
    out: Path = parser.parse_args(arguments).out.resolve()
    version, label = versions.current()
    new = WORK / "new"
    shutil.rmtree(new, ignore_errors=True)
    try:
        build(new / version)
    except (pages.MissingTarget, LookupError) as error:
        print(f"docs: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError:
        print("docs: the generator has warned, above; repair the page or the docstring", file=sys.stderr)
        return 1
    versions.describe(new / version, version, label)
    versions.write_list(new)
    wrong = [f"broken: {one}" for one in checks.broken(new)] + [f"loaded: {one}" for one in checks.outside_loads(new)]
    if wrong:
        print(*(f"docs: {one}" for one in wrong), sep="\n", file=sys.stderr)
        return 1
    out.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(out / version, ignore_errors=True)
    shutil.move(new / version, out / version)
    versions.write_list(out)
    count = len(list((out / version).rglob("*.html")))
    print(f"docs: {count} pages, every link and anchor leads somewhere; open {out / version / 'index.html'}")
    return 0


def build(folder: Path) -> None:
    """
    Build the pages of this version.

    Args:
        folder: what is made.

    Raises:
        MissingTarget: a page links to a file that is not there.
        LookupError: a public name is on no page of the reference.
        CalledProcessError: the generator warned of something.
    """
    source = WORK / "source"
    pages.stage(source)
    reference.stage(source / "reference")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--quiet", "--builder", "html", "--fresh-env"]
    places: list[str | Path] = ["--conf-dir", Path(__file__).parent, "--doctree-dir", WORK / "doctrees", source, folder]
    subprocess.run([*command, *places], cwd=ROOT, check=True)
    (folder / ".buildinfo").unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
