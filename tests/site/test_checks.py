"""The checks of the built site find what is wrong in it, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.site import checks

GOOD = """<!doctype html><html><head><link rel="stylesheet" href="_static/a.css">
<script src="_static/a.js"></script></head>
<body><h1 id="top">Good</h1><a href="#top">up</a><a href="deep/other.html#there">other</a>
<a href="https://example.org/page">elsewhere, by a click</a><img src="data:image/png;base64,AA=="></body></html>"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Two pages that link to each other, a style and a script."""
    files = {
        "index.html": GOOD,
        "deep/other.html": '<a href="../index.html#top">back</a><p id="there">x</p>',
        "_static/a.css": 'p { background: url("a.js") } /* see https://example.org/license */',
        "_static/a.js": '// from https://example.org\nconst ns = "http://www.w3.org/2000/svg"; fetch("x.json");',
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def test_a_good_site_has_no_finding(site: Path) -> None:
    """Links to elsewhere, data in the page, comments and names of languages are allowed."""
    assert checks.broken(site) == []
    assert checks.outside_loads(site) == []
    assert checks.outside_links(site) == {"https://example.org/page": ["index.html"]}


@pytest.mark.parametrize(
    ("html", "finding"),
    [
        ('<a href="gone.html">', "index.html: gone.html: no such file"),
        ('<a href="deep/other.html#gone">', "index.html: deep/other.html#gone: no such anchor"),
        ('<a href="#gone">', "index.html: #gone: no such anchor"),
        ('<a href="deep/">', "index.html: deep/: a folder, which no web server has to show"),
        ('<a href="../../etc/passwd">', "index.html: ../../etc/passwd: outside of the site"),
        ('<a href="/index.html">', "index.html: /index.html: outside of the site"),
        ('<img src="gone.png">', "index.html: gone.png: no such file"),
        ('<script src="gone.js"></script>', "index.html: gone.js: no such file"),
    ],
)
def test_what_leads_nowhere_is_found(site: Path, html: str, finding: str) -> None:
    """With the page and the address."""
    (site / "index.html").write_text(GOOD + html, encoding="utf-8")

    assert checks.broken(site) == [finding]


@pytest.mark.parametrize(
    ("file", "text", "address"),
    [
        (
            "a.html",
            '<link rel="stylesheet" href="https://fonts.example/css?family=X">',
            "https://fonts.example/css?family=X",
        ),
        ("a.html", '<link rel="preconnect" href="//fonts.example">', "//fonts.example"),
        ("a.html", '<script src="https://cdn.example/a.js"></script>', "https://cdn.example/a.js"),
        ("a.html", '<script>import("https://cdn.example/a.mjs")</script>', "https://cdn.example/a.mjs"),
        ("a.html", '<script>load("//cdn.example/a.js")</script>', "//cdn.example/a.js"),
        ("a.html", "<p onclick=\"fetch('https://count.example/x')\">", "https://count.example/x"),
        ("a.html", '<img src="http://img.example/a.png">', "http://img.example/a.png"),
        ("a.html", '<img srcset="a.png 1x, https://img.example/b.png 2x">', "https://img.example/b.png"),
        ("a.html", '<iframe src="https://video.example/v">', "https://video.example/v"),
        ("a.html", '<form action="https://search.example/">', "https://search.example/"),
        ("a.html", '<meta http-equiv="refresh" content="0; url=https://away.example/">', "https://away.example/"),
        ("a.html", '<p style="background: url(https://img.example/c.png)">', "https://img.example/c.png"),
        ("a.html", '<style>@import "https://css.example/a.css";</style>', "https://css.example/a.css"),
        ("a.html", '<svg><use href="https://svg.example/a.svg#x"/></svg>', "https://svg.example/a.svg#x"),
        ("a.css", "@font-face { src: url('https://fonts.example/a.woff2') }", "https://fonts.example/a.woff2"),
        ("a.css", '@import url("//css.example/a.css");', "//css.example/a.css"),
        ("a.js", "import(`//cdn.example/b.js`)", "//cdn.example/b.js"),
        ("a.js", "const x = 1; fetch('https://count.example/y');", "https://count.example/y"),
        ("a.svg", '<svg><image href="https://img.example/d.png"/></svg>', "https://img.example/d.png"),
    ],
)
def test_what_would_be_loaded_from_elsewhere_is_found(site: Path, file: str, text: str, address: str) -> None:
    """In each kind of file, and each way in which a browser loads without a click."""
    (site / file).write_text(text, encoding="utf-8")

    assert checks.outside_loads(site) == [f"{file}: {address}"]
