"""Checks of the built site: each link and each anchor leads somewhere, and nothing is loaded from another address."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

LOADED: Final = {
    ("audio", "src"),
    ("embed", "src"),
    ("form", "action"),
    ("iframe", "src"),
    ("image", "href"),
    ("image", "xlink:href"),
    ("img", "src"),
    ("img", "srcset"),
    ("input", "src"),
    ("link", "href"),
    ("object", "data"),
    ("script", "src"),
    ("source", "src"),
    ("source", "srcset"),
    ("track", "src"),
    ("use", "href"),
    ("use", "xlink:href"),
    ("video", "poster"),
    ("video", "src"),
}
"""Attributes whose address a browser loads, or sends to, without a click on a link."""

NAMED: Final = {
    "http://www.w3.org/1999/xhtml": "the name of a language",
    "http://www.w3.org/1999/xlink": "the name of a language",
    "http://www.w3.org/2000/svg": "the name of a language",
}
"""Addresses that scripts may hold, with what they are there for. No script loads them."""

_ADDRESS: Final = re.compile(r"(?:https?:)?//[\w-]+(?:\.[\w-]+)+[^\s\"'`<>)\\]*")
_IN_STYLE: Final = re.compile(r"url\(\s*[\"']?([^\"')]+)|@import\s+[\"']([^\"']+)")
_COMMENT: Final = re.compile(r"/\*.*?\*/|(?<![:\"'`])//[^\n\"']*$", re.DOTALL | re.MULTILINE)


@dataclass(slots=True)
class Page:
    """
    What a page refers to.

    Attributes:
        ids: its anchors.
        links: addresses behind links.
        loads: addresses that are loaded with it.
        styles: its texts in CSS.
        scripts: its texts in JavaScript.
    """

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    styles: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style"):
            self._inside = tag
        for name, given in attrs:
            value = given or ""
            if name == "id" or (tag == "a" and name == "name"):
                self.page.ids.add(value)
            elif (tag, name) == ("a", "href"):
                self.page.links.append(value)
            elif (tag, name) in LOADED:
                parts = (part.split()[0] for part in value.split(",") if part.strip())
                self.page.loads += parts if name == "srcset" else [value]
            elif name == "style":
                self.page.styles.append(value)
            elif name.startswith("on"):
                self.page.scripts.append(value)
        if tag == "meta" and ("http-equiv", "refresh") in attrs:
            self.page.loads += [part.partition("=")[2] for part in (dict(attrs)["content"] or "").split(";")[1:]]

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "style":
            self.page.styles.append(data)
        elif self._inside == "script":
            self.page.scripts.append(data)


@cache
def _page(path: Path, _changed_ns: int) -> Page:
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.close()
    return reader.page


def page(path: Path) -> Page:
    """What a page refers to."""
    return _page(path, path.stat().st_mtime_ns)


def is_outside(address: str) -> bool:
    """Whether an address is not a path in the site."""
    parts = urlsplit(address.strip())
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def broken(root: Path) -> list[str]:
    """
    Links and loads within the site that lead nowhere, and anchors that a page does not have.

    Args:
        root: the folder of the site, with all versions.
    """
    return [
        f"{path.relative_to(root)}: {address}: {wrong}"
        for path in sorted(root.rglob("*.html"))
        for address in dict.fromkeys([*page(path).links, *page(path).loads])
        if not is_outside(address) and not address.startswith("data:") and (wrong := _wrong(root, path, address))
    ]


def _wrong(root: Path, path: Path, address: str) -> str:
    parts = urlsplit(address)
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if parts.path.startswith("/") or not target.is_relative_to(root.resolve()):
        return "outside of the site"
    if target.is_dir():
        return "a folder, which no web server has to show" if parts.path else ""
    if not target.is_file():
        return "no such file"
    if parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in page(target).ids:
        return "no such anchor"
    return ""


def outside_loads(root: Path) -> list[str]:
    """
    Everything that a browser would load from another address: by HTML, by CSS, or by a script.

    Args:
        root: the folder of the site, with all versions.
    """
    return [f"{path.relative_to(root)}: {address}" for path in sorted(root.rglob("*")) for address in _loads(path)]


def _loads(path: Path) -> Iterator[str]:
    match path.suffix:
        case ".html" | ".svg":
            one = page(path)
            yield from (address for address in one.loads if is_outside(address))
            for style in one.styles:
                yield from in_style(style)
            for script in one.scripts:
                yield from in_script(script)
        case ".css":
            yield from in_style(path.read_text(encoding="utf-8"))
        case ".js" | ".mjs":
            yield from in_script(path.read_text(encoding="utf-8"))


def in_style(text: str) -> Iterator[str]:
    """Addresses elsewhere that a text in CSS loads."""
    for of_url, of_import in _IN_STYLE.findall(text):
        if is_outside(of_url or of_import):
            yield of_url or of_import


def in_script(text: str) -> Iterator[str]:
    """Addresses elsewhere that a script holds outside of its comments, and that `NAMED` does not explain."""
    yield from (address for address in _ADDRESS.findall(_COMMENT.sub("", text)) if address not in NAMED)


def outside_links(root: Path) -> dict[str, list[str]]:
    """By address elsewhere, the pages that link to it. Whether it answers is not checked: a build asks no network."""
    found: dict[str, list[str]] = {}
    for path in sorted(root.rglob("*.html")):
        for address in filter(is_outside, dict.fromkeys(page(path).links)):
            found.setdefault(address, []).append(str(path.relative_to(root)))
    return found
