"""English for texts that are put together: plurals and articles."""

from __future__ import annotations


def count(number: int, noun: str, plural: str | None = None) -> str:
    """
    A number with its noun: ``1 task``, ``2 tasks``, ``10,000 tasks``.

    Args:
        number: how many.
        noun: the singular.
        plural: None: the singular with an s.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def article(noun: str) -> str:
    """A noun with its article, decided by the first letter: ``a Graph``, ``an int``."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
