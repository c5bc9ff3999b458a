"""The site of `make docs`: its pages, its navigation, its reference, its versions, and the site as it is built."""

from __future__ import annotations

import html
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from docs.site import __main__ as site
from docs.site import checks, pages, reference, versions
from docs.site.index import ROOT, Section, sections

INDEX = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")


def index() -> dict[str, list[str]]:
    """By section of docs/README.md, the pages that its lines name, read with the least of means."""
    found: dict[str, list[str]] = {}
    for line in INDEX.splitlines():
        if line.startswith("## "):
            found[line[3:]] = []
        elif ".md)" in line and found:
            found[[*found][-1]].append(line.split(".md)")[0].split("](")[-1] + ".md")
    return found


def entries(section: Section) -> list[str]:
    """The pages of a section as the index writes them."""
    below = [entry.page.removeprefix("docs/") for entry in section.entries]
    return [page if (ROOT / "docs" / page).is_file() and page != "README.md" else f"../{page}" for page in below]


def test_the_navigation_has_what_the_index_has() -> None:
    """Section by section, in order."""
    assert {section.title: entries(section) for section in sections()} == index()


def test_a_line_of_the_index_names_its_first_page() -> None:
    """What it says besides, and lines without a page, are left out."""
    text = "# X\n\nSee [A](a.md).\n\n## One\n\n- [B](spark.md): see [C](run.md).\n- none\n\n## Two\n\n| [D](run.md) |\n"

    assert [(section.title, [tuple(one) for one in section.entries]) for section in sections(text)] == [
        ("One", [("B", "docs/spark.md")]),
        ("Two", [("D", "docs/run.md")]),
    ]


@pytest.mark.parametrize(
    ("written", "staged"),
    [
        ("[a](run.md) and [b](run.md#stop-and-restart)", "[a](/run.md) and [b](/run.md#stop-and-restart)"),
        ("[`run`](run.md), `[c](run.md)`", "[`run`](/run.md), `[c](run.md)`"),
        ("[home](../README.md#run-it)", "[home](/index.md#run-it)"),
        ("[here](#a-place), [web](https://example.org/a.md)", "[here](#a-place), [web](https://example.org/a.md)"),
        ("[x](../examples/shop.py)", "[x](/source/examples/shop.py.rst)"),
        ("```\n[d](run.md)\n```", "```\n[d](run.md)\n```"),
    ],
)
def test_links_of_a_page_hold_in_the_site(written: str, staged: str) -> None:
    """Code is left as it is, and so are anchors of the page itself and addresses elsewhere."""
    files = set[str]()

    assert pages.linked(written, "docs/plan.md", pages.pages(), files) == staged
    assert files == ({"examples/shop.py"} if "examples" in written else set())


@pytest.mark.parametrize("link", ["gone.md", "../examples", "../examples/gone.py"])
def test_a_link_that_leads_nowhere_is_refused(link: str) -> None:
    """With the page and the link; a folder has no page."""
    with pytest.raises(pages.MissingTarget, match=rf"docs/plan.md links to {re.escape(link)}, which is no file"):
        pages.linked(f"[x]({link})", "docs/plan.md", pages.pages(), set())


def test_every_page_is_staged(tmp_path: Path) -> None:
    """Those below docs/, README, the changelog and the page for contributors; each file that they link to is shown."""
    pages.stage(tmp_path / "source")

    staged = {str(path.relative_to(tmp_path / "source")) for path in (tmp_path / "source").rglob("*.md")}
    below = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert staged == below - {"README.md"} | {"index.md", "pages.md", "changelog.md", "contributing.md"}
    picture = tmp_path / "source" / "source" / "docs" / "ui.png"
    assert picture.read_bytes() == (ROOT / "docs" / "ui.png").read_bytes()
    assert "](/source/docs/ui.png)" in (tmp_path / "source" / "ui.md").read_text(), "a page shows it as a picture"
    assert not picture.with_name("ui.png.rst").exists()
    shop = (tmp_path / "source" / "source" / "examples" / "shop.py.rst").read_text()
    assert "   :language: python" in shop
    assert (tmp_path / "source" / "source" / "examples" / "shop.py").read_text() == (
        ROOT / "examples" / "shop.py"
    ).read_text()


def test_the_public_modules_are_found() -> None:
    """By their `__all__`: a new one is in the reference, or the next test fails."""
    assert {"cues_kafka", "cues_kafka.aio", "cues_kafka.effects", "cues_kafka.spark", "cues_kafka.testing"} <= {
        *reference.modules()
    }


@pytest.mark.parametrize("module", reference.modules())
def test_every_public_name_is_in_the_reference(module: str) -> None:
    """Add what is missing to GROUPS in docs/site/reference.py."""
    assert reference.missing(module) == []


def test_every_name_in_the_reference_has_a_docstring() -> None:
    """It is all that the reference says."""
    names = [name for group in reference.GROUPS for name in group.names]

    assert [name for name in names if not (reference.thing(name).__doc__ or "").strip()] == []
    assert len(set(names)) == len(names)


def folder(root: Path, version: str, label: str, *names: str) -> None:
    """A version in a site."""
    for name in names:
        (root / version / name).parent.mkdir(parents=True, exist_ok=True)
        (root / version / name).write_text("<h1 id='a'>A page</h1>", encoding="utf-8")
    versions.describe(root / version, version, label)


def test_versions_are_listed_the_newest_first(tmp_path: Path) -> None:
    """By number and not by letter; each page learns of all of them from one script."""
    for version in ("0.9.0", "0.10.0", "0.10.0rc1"):
        folder(tmp_path, version, f"{version} <x>", "index.html", "deep/a.html")
    versions.write_list(tmp_path)

    shown = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'href="([^"]+)"', shown) == ["0.10.0/index.html", "0.10.0rc1/index.html", "0.9.0/index.html"]
    assert "0.9.0 &lt;x&gt;" in shown
    script = (tmp_path / "versions.js").read_text(encoding="utf-8")
    listed = json.loads(script.removeprefix("window.cuesKafkaVersions = ").removesuffix(";\n"))
    assert [one["version"] for one in listed] == ["0.10.0", "0.10.0rc1", "0.9.0"]
    assert listed[0]["pages"] == ["deep/a.html", "index.html"]
    assert checks.broken(tmp_path) == []


def test_the_version_is_that_of_the_package() -> None:
    """The changelog says which one comes next, and pyproject.toml which one is built."""
    version, label = versions.current()

    assert f'\nversion = "{version}"\n' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f"\n## {label}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ('<a href="gone.html">', "docs: broken: 0.1.0/index.html: gone.html: no such file"),
        ('<a href="#gone">', "docs: broken: 0.1.0/index.html: #gone: no such anchor"),
        ('<script src="https://cdn.example/a.js">', "docs: loaded: 0.1.0/index.html: https://cdn.example/a.js"),
    ],
)
def test_a_wrong_page_fails_the_build_and_leaves_the_site(
    page: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each finding is a line."""
    folder(tmp_path / "out", "0.1.0", "0.1.0", "index.html")
    monkeypatch.setattr(site, "WORK", tmp_path / "work")

    def build(into: Path) -> None:
        into.mkdir(parents=True)
        (into / "index.html").write_text(page, encoding="utf-8")

    monkeypatch.setattr(site, "build", build)

    assert site.main(["--out", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err.splitlines() == [said]
    assert "A page" in (tmp_path / "out" / "0.1.0" / "index.html").read_text()


class Built:
    """The site as `make docs` builds it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / versions.current()[0]

    def text(self, name: str) -> str:
        """The HTML of a page of this version."""
        return (self.folder / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Built beside an older version; with a new environment of the generator if its lock has changed."""
    root = tmp_path_factory.mktemp("site")
    folder(root, "0.0.9", "0.0.9", "index.html")
    git = ["git", "status", "--porcelain"]
    before = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    command = ["make", "docs", f"OUT={root}", "ARGS="]  # what the tests themselves were given is not for the generator
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    after = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert after == before, "the build wrote beside the sources"
    return Built(root)


@pytest.mark.full
@pytest.mark.timeout(900)  # three diagrams take a minute, and the machine may be busy
class TestBuilt:
    """What a browser gets."""

    def test_every_link_and_anchor_leads_somewhere(self, built: Built) -> None:
        """In both versions, and there are many."""
        assert checks.broken(built.root) == []
        assert sum(len(checks.page(path).links) for path in built.folder.rglob("*.html")) > 10_000

    def test_nothing_is_loaded_from_elsewhere(self, built: Built) -> None:
        """By no page, style or script; links that a reader may click are all that names another address."""
        assert checks.outside_loads(built.root) == []
        assert {path.suffix for path in built.root.rglob("*")} >= {".html", ".css", ".js", ".svg"}
        assert not [*built.root.rglob("*.woff*"), *built.root.rglob("*.ttf")]

    def test_the_navigation_of_each_page_is_the_index(self, built: Built) -> None:
        """Captions and titles, in order; then the reference."""
        tree = re.search(r'<div class="sidebar-tree">(.*?)</div>\s*</div>', built.text("run.html"), re.DOTALL)
        assert tree
        found: dict[str, list[str]] = {}
        for caption, title in re.findall(
            r'caption-text">([^<]*)</span>|<li class="toctree-l1[^>]*><a[^>]*>(.*?)</a>', tree[1]
        ):
            if caption:
                found[html.unescape(caption)] = []
            else:
                found[[*found][-1]].append(html.unescape(title))
        expected = {section.title: [entry.text for entry in section.entries] for section in sections()}
        expected["First steps"].append("All pages")

        assert found == {**expected, "API reference": ["By name"]}

    def test_the_reference_describes_every_public_name(self, built: Built) -> None:
        """At an anchor of its own, with the first words of its docstring."""
        for group in reference.GROUPS:
            text = built.text(f"reference/{group.file}.html")
            for name in group.names:
                described = re.search(rf'id="{re.escape(name)}".*?</dt>\s*<dd><p>(.*?)</p>', text, re.DOTALL)
                assert described, name
                words = re.findall(r"\w+", html.unescape(re.sub(r"<[^>]+>", "", described[1])))[:3]
                assert words == re.findall(r"\w+", (reference.thing(name).__doc__ or "").replace("`", ""))[:3], name

    def test_diagrams_are_drawn(self, built: Built) -> None:
        """As pictures in the page, and alone; no page loads what draws them."""
        for name in ("quick-start.html", "architecture.html", "task.html"):
            [picture] = re.findall(r'<figure class="diagram">.*?</figure>', built.text(name), re.DOTALL)
            assert "<svg" in picture
            [alone] = re.findall(r'href="(_images/\w+\.svg)"', picture)
            assert (built.folder / alone).is_file()
            assert "flowchart" not in re.sub(r"<svg.*?</svg>", "", built.text(name), flags=re.DOTALL)

    def test_words_can_be_searched(self, built: Built) -> None:
        """The index of words is a script beside the pages, so the search works from files, too."""
        index_of_words = built.text("searchindex.js")
        data: dict[str, Any] = json.loads(index_of_words.removeprefix("Search.setIndex(").removesuffix(")"))
        found = data["terms"]["quarantin"]
        names = [data["docnames"][number] for number in (found if isinstance(found, list) else [found])]

        assert "guarantee" in names
        assert "errors" in names
        assert '<script src="searchindex.js"' in built.text("search.html")

    def test_each_version_has_its_folder(self, built: Built) -> None:
        """The older one stays, and the list has both."""
        version, label = versions.current()

        assert [(one["version"], one["label"]) for one in versions.known(built.root)] == [
            (version, label),
            ("0.0.9", "0.0.9"),
        ]
        assert f'data-version="{version}"' in built.text("reference/graphs.html")
        assert '<script src="../../versions.js"' in built.text("reference/graphs.html")
