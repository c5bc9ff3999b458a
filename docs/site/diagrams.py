"""Diagrams: Mermaid draws them while the site is built, so no page loads Mermaid. A wrong one fails the build."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any, Final

CACHE: Final = Path(__file__).parents[2] / ".venv" / "docs" / "diagrams"
"""Pictures by what they are drawn from; one with 70 arrows takes half a minute."""

CONFIG: Final = {"theme": "neutral", "fontFamily": "Arial, Liberation Sans, sans-serif"}
"""Shades of grey, which site.css turns around for dark screens, and fonts that each system has."""


def drawn(source: str) -> str:
    """
    The SVG of a diagram.

    Args:
        source: what stands in a block with the language `mermaid`.

    Raises:
        RuntimeError: Mermaid cannot read it.
    """
    import mermaidx  # noqa: PLC0415 - it is in the environment of the generator only

    name = hashlib.sha256(repr((mermaidx.__version__, CONFIG, source)).encode()).hexdigest()[:16]
    kept = CACHE / f"{name}.svg"
    if not kept.is_file():
        picture: str = mermaidx.render(source, theme=CONFIG["theme"], config=CONFIG).svg()
        CACHE.mkdir(parents=True, exist_ok=True)
        # Styles and arrow heads of a picture go by its id, and a page may have several pictures.
        kept.write_text(picture.replace("my-svg", f"diagram-{name}"), encoding="utf-8")
    return kept.read_text(encoding="utf-8")


def width_of(picture: str) -> float:
    """How wide a picture was drawn, in pixels."""
    found = re.search(r'viewBox="\S+ \S+ (\S+) \S+"', picture)
    if found is None:
        raise RuntimeError("Mermaid has drawn a picture without a size.")
    return float(found[1])


def styled(picture: str, style: str) -> str:
    """A picture with a size of its own: Mermaid makes it as wide as its page."""
    return re.sub(r' width="100%"(.*?) style="[^"]*"', rf' style="{style}"\1', picture, count=1)


def shown(picture: str, alone: str) -> str:
    """
    The picture in a page.

    It is as wide as the text, but no wider than it was drawn; on a telephone it scrolls in its box. A link leads to the
    picture alone, which a browser shows as large as it was drawn.

    Args:
        picture: its SVG.
        alone: the address of the file with the picture alone.
    """
    width = width_of(picture)
    inline = styled(picture, f"width: clamp({min(width * 0.75, 700):.0f}px, 100%, {width:.0f}px)")
    return (
        f'<figure class="diagram"><div role="img" tabindex="0">{inline}</div>'
        f'<figcaption><a href="{alone}">Open the diagram alone</a></figcaption></figure>'
    )


def _draw(app: Any, doctree: Any) -> None:
    """Put the picture in the place of each block, and beside the pages as a file."""
    from docutils import nodes  # noqa: PLC0415 - the same

    for block in list(doctree.findall(nodes.literal_block)):
        if block.get("language") == "mermaid":
            picture = drawn(block.astext())
            file = Path("_images") / f"{hashlib.sha256(picture.encode()).hexdigest()[:16]}.svg"
            target = Path(app.outdir) / file
            target.parent.mkdir(parents=True, exist_ok=True)
            size = f"width: {width_of(picture):.0f}px; max-width: none; background: white"
            target.write_text(styled(picture, size), encoding="utf-8")
            up = "../" * app.env.docname.count("/")
            block.replace_self(nodes.raw("", shown(picture, f"{up}{file}"), format="html"))


def setup(app: Any) -> dict[str, Any]:
    """Make this module an extension of the generator."""
    app.connect("doctree-read", _draw)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
