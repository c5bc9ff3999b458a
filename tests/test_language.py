"""The language of the project: words that make readers stumble stand in no page, text, docstring, comment or test."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROOF = ROOT / "tests" / "proof"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

AVOIDED = {
    "afresh": "again",
    "anew": "again",
    "for ever": "always, without end",
    "he": "the task, the worker, the broker",
    "heed": "follow",
    "him": "it, or the name of the actor",
    "his": "its, or the name of the actor",
    "in vain": "without success",
    "lest": "so that ... not",
    "mend": "fix, repair",
    "mended": "fixed, repaired",
    "mends": "fixes, repairs",
    "nobody": "no worker, no program",
    "so many": "the number itself",
    "somebody": "another program, a user",
    "thereby": "so",
    "whereof": "of which",
    "whoever": "the name of the actor",
    "whomever": "the name of the actor",
}
"""By word, what to write in its place."""

WORDS = re.compile(rf"\b({'|'.join(AVOIDED)})\b", re.IGNORECASE)


def avoided(text: str) -> list[str]:
    """The words of a text that are to be avoided, in lower case."""
    return [word.lower() for word in WORDS.findall(" ".join(text.split()))]


def suspects(folder: str) -> list[Path]:
    """Python files that have a word to avoid anywhere: only these are taken apart, which takes seconds for all."""
    sources = ((path, path.read_text(encoding="utf-8")) for path in sorted((ROOT / folder).rglob("*.py")))
    return [path for path, source in sources if avoided(source) or avoided(source.replace("_", " "))]


def names(path: Path, recorded: set[str]) -> str:
    """The names in a Python file, with a space for each `_`; those that a recorded result holds stay as they are."""
    found = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
    texts = {token.string for token in found if token.type == tokenize.NAME}
    return "\n".join(text.replace("_", " ") for text in sorted(texts) if text not in recorded)


def explanations(path: Path) -> str:
    """Comments, docstrings, and the texts that stand alone below a name."""
    source = path.read_text(encoding="utf-8")
    texts = [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    texts += [
        node.value.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    return "\n".join(texts)


def prose(path: Path) -> str:
    """Comments and texts of a Python file."""
    kinds = (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))
    source = path.read_text(encoding="utf-8")
    return "\n".join(
        token.string for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type in kinds
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_no_word_that_makes_readers_stumble(page: Path) -> None:
    """Each finding names the word; `AVOIDED` has what to write in its place."""
    assert avoided(page.read_text(encoding="utf-8")) == []


def test_the_code_has_no_word_that_makes_readers_stumble() -> None:
    """In docstrings, comments, messages and help texts of the package."""
    found = {}
    for path in suspects("cues_kafka"):
        name = str(path.relative_to(ROOT))
        if words := avoided(prose(path)):
            found[name] = words

    assert found == {}


MOVES = re.compile(r"cues-kafka (?:reset|accept-loss|rebuild|adopt|drain)\b(?! MODULE:GRAPH)[^`]{0,40}")
"""A command for one processor without what it needs."""


def test_commands_in_remedies_can_be_pasted() -> None:
    """A text with `cues-kafka reset` names graph and processor within the command."""
    found = {}
    for path in sorted((ROOT / "cues_kafka").rglob("*.py")):
        if "cues-kafka" not in (source := path.read_text(encoding="utf-8")):
            continue
        tree = ast.parse(source)
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        texts = [
            "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
            if isinstance(node, ast.JoinedStr)
            else str(node.value)
            for node in ast.walk(tree)
            if (isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)))
            and id(node) not in docs | parts
        ]
        if "cli" not in path.parts and (broken := [one for text in texts for one in MOVES.findall(text)]):
            found[str(path.relative_to(ROOT))] = broken
    assert found == {}


def test_the_tests_have_no_word_that_makes_readers_stumble() -> None:
    """In comments, texts and names; of the model and the simulation, whose code is recorded, only in explanations."""
    results = (ROOT / "docs" / "proof" / "shell-mutants.json").read_text(encoding="utf-8")
    recorded = set(re.findall(r"\btest_\w+", results))
    found = {}
    for path in suspects("tests"):
        if path == Path(__file__):
            continue
        if path.parent in (PROOF / "model", PROOF / "simulation"):
            text = explanations(path)
        else:
            text = prose(path) + "\n" + names(path, recorded)
        if words := avoided(text):
            found[str(path.relative_to(ROOT))] = words

    assert found == {}


FRAGMENT = re.compile(r"[\"'](?:\s|\\n)*(?:Of|As) ")
"""A text that may begin as a fragment does: a file without one is not taken apart."""


def fragments(source: str) -> list[str]:
    """First lines of docstrings that only make sense after the name above them: "Of the processor."."""
    if not FRAGMENT.search(source):
        return []
    texts = [
        n.value.value
        for n in ast.walk(ast.parse(source))
        if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)
    ]
    return [
        line for text in texts if isinstance(text, str) and re.match(r"(Of|As) ", line := text.strip().split("\n")[0])
    ]


def test_a_docstring_begins_with_what_its_thing_is() -> None:
    """It stands alone, as in a list of functions."""
    found = {}
    for path in sorted((ROOT / "cues_kafka").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if lines := fragments(path.read_text(encoding="utf-8")):
            found[name] = lines

    assert found == {}
    assert fragments('def size() -> int:\n    """Of the file."""') == ["Of the file."]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_begins_with_what_its_reader_can_do(page: Path) -> None:
    """README begins with what the project is, the index and the changelog with their lists."""
    text = page.read_text(encoding="utf-8")
    if page.name not in ("README.md", "CHANGELOG.md"):
        assert re.match(r"# .+\n\nWith this page you can ", text), text[:200]


def test_avoided_words_are_found_across_lines_and_not_inside_words() -> None:
    """The checker itself is checked."""
    assert avoided("It is made\nanew, for\n  ever. The others, whenever they amend this.") == ["anew", "for ever"]


STUMBLES = {
    r"none (?:is|are|was)\b": "name the subject: no message is lost",
    r"is no \w+ (?:that|which|of)\b": "say what is missing: the topic does not exist",
    r"any ?more\b": "no longer",
    r"no such\b": "say what does not exist",
    r"(?<=[,;.] )else\b": "otherwise",
    r"(?:is|are|was|were|be|has|have|than|not|nothing) told\b": "reported, logged, sent, known",
    r"tells? (?:its|the state|how far|nothing|no)\b": "reports, logs, sends",
    r"(?:it|they|task|tasks|database|store|group|tailer|offsets) (?:stands?|stood)\b": "is, its position is",
    r"(?:as they stand|stood still|stands? still)\b": "as they are, unchanged; has stopped, hangs",
    r"without a word\b": "silently",
    r"one that has\b": "name the thing",
    r"beside (?:it|its|them|theirs|Kafka)\b": "next to it, in addition to it, concurrently",
    r"behind (?:a|the|its|Kafka's) commit\b": "after the commit",
}
"""Patterns of sentences at which a native reader stumbles, with what to write in their place."""

STUMBLE = re.compile("|".join(rf"\b(?:{pattern})" for pattern in STUMBLES), re.IGNORECASE)


def stumbles(text: str) -> list[str]:
    """The words of a page, outside of code, at which readers stumble."""
    plain = re.sub(r"```.*?```|`[^`]*`", " ", text, flags=re.DOTALL)
    return STUMBLE.findall(" ".join(plain.split()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_no_sentence_that_makes_readers_stumble(page: Path) -> None:
    """Each finding names the words; `STUMBLES` has what to write in their place."""
    assert stumbles(page.read_text(encoding="utf-8")) == []


def test_stumbles_are_found_across_lines_and_not_in_code() -> None:
    """The checker itself is checked."""
    text = "So none\nis lost, `it is no place that` counts, and it tells its\n  state. Nothing else counts."

    assert stumbles(text) == ["none is", "tells its"]


SHORT_DOCSTRINGS = 22
"""Docstrings in the package of fewer than three words, such as "See `Tailer`.": their number may only shrink."""


def short_docstrings(source: str) -> list[str]:
    """Docstrings that are too short to say what their thing is."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [ast.get_docstring(node) for node in ast.walk(ast.parse(source)) if isinstance(node, documented)]
    return [text for text in texts if text is not None and len(text.split()) < 3]


def test_docstrings_say_what_their_thing_is() -> None:
    """A docstring of one or two words says nothing that the name does not say: write a sentence, or none."""
    found = {
        str(path.relative_to(ROOT)): short
        for path in sorted((ROOT / "cues_kafka").rglob("*.py"))
        if (short := short_docstrings(path.read_text(encoding="utf-8")))
    }

    assert sum(len(short) for short in found.values()) <= SHORT_DOCSTRINGS, found
    assert short_docstrings('def size() -> int:\n    """None."""') == ["None."]
