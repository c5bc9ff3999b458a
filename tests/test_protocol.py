"""Every number that is cited has its line in docs/protocol.md, every rule there is held by the files that it names."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "protocol.md"

NUMBER = re.compile(r"(?<![\w`./$-])[A-Z]\d{1,2}[a-z]?(?![\w-])")
RANGE = re.compile(r"\b([A-Z])(\d{1,2}) to \1(\d{1,2})\b")
LEADING = re.compile(r"(?:[A-Z]\d{1,2}[a-z]?, )*[A-Z]\d{1,2}[a-z]?: ")
LEADING_IN_FSTRING = re.compile(r"[A-Z]\d{1,2}[a-z]?[ :,]")

CODE = ("cues_kafka/", "tests/proof/")

NO_RULES = {
    "C3": "a byte in front of every record",
    "S3": "Amazon's protocol of buckets",
    "V1": "a version of Kafka's transaction protocol",
}
"""What looks like the number of a rule."""

ELSEWHERE = re.compile(r"\b(?:PROTOCOL|DESIGN) (?:[A-Z]?\d)|\bexp-\d|\bfacts/")
"""Names of papers that are not in the repository."""


LOOKED_FOR = re.compile(rf"{NUMBER.pattern}|{ELSEWHERE.pattern}|\.md\b")
"""What has none of these has nothing to check, and is not taken apart: that takes seconds in all."""


def prose_of_python(source: str) -> Iterator[str]:
    """Comments, docstrings, and the numbers that texts begin with (`"I13: ..."`)."""
    if any("#" in line and LOOKED_FOR.search(line[line.index("#") :]) for line in source.splitlines()):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.string
    nodes = list(ast.walk(ast.parse(source)))
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    inner = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in docs:
                yield node.value
            elif found := (LEADING_IN_FSTRING if id(node) in inner else LEADING).match(node.value):
                yield found[0]


def prose_of_page(text: str) -> str:
    """Without code."""
    return re.sub(r"`[^`\n]+`", "", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE))


def numbers(prose: str) -> set[str]:
    """All numbers in a text, those within `Q1 to Q3` too."""
    within = {f"{m[1]}{n}" for m in RANGE.finditer(prose) for n in range(int(m[2]), int(m[3]) + 1)}
    return within | set(NUMBER.findall(prose))


@cache
def prose() -> dict[str, str]:
    """What is written for people in each file that has something to check, by its path."""
    found = {}
    for folder in ("cues_kafka", "tests", "benchmarks", "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if LOOKED_FOR.search(source := path.read_text(encoding="utf-8")):
                found[str(path.relative_to(ROOT))] = "\n".join(prose_of_python(source))
    for path in [*(ROOT / "schemas").glob("*.avsc"), ROOT / "docs" / "proof" / "worker.tla"]:
        found[str(path.relative_to(ROOT))] = path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        found[str(path.relative_to(ROOT))] = prose_of_page(path.read_text(encoding="utf-8"))
    return found


@cache
def citations() -> dict[str, set[str]]:
    """By number, the files that cite it; the page itself apart."""
    found = defaultdict(set)
    for file, text in prose().items():
        for number in numbers(text) - NO_RULES.keys() if ROOT / file != PAGE else ():
            found[number].add(file)
    return found


@cache
def rules() -> dict[str, str]:
    """The rules of the page: by number, what it says under it."""
    parts = re.split(r"^### ([A-Z]\d{1,2}[a-z]?)\. .*$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    texts = [re.split(r"^## ", text, maxsplit=1, flags=re.MULTILINE)[0] for text in parts[2::2]]
    assert len(set(parts[1::2])) == len(texts), "a number has two headings"
    return dict(zip(parts[1::2], texts, strict=True))


@cache
def facts() -> dict[str, str]:
    """The measured facts, by number."""
    return dict(re.findall(r"^\| (M\d{1,2}) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))


def missing_pages(file: str, text: str) -> set[str]:
    """Pages that a text names and that are not in the repository."""
    known = {path.name for path in ROOT.glob("*.md")} | {path.name for path in (ROOT / "docs").rglob("*.md")}
    places = [ROOT, ROOT / "docs", (ROOT / file).parent]
    named = re.findall(r"[\w/.-]*\b[\w-]+\.md\b", text)
    return {one for one in named if not any((place / one).is_file() for place in places) and one not in known}


def test_every_number_that_is_cited_is_on_the_page() -> None:
    """In comments, docstrings, results and pages."""
    known = rules().keys() | facts().keys()

    assert {number: sorted(files) for number, files in citations().items() if number not in known} == {}
    assert numbers(prose()[str(PAGE.relative_to(ROOT))]) - known == set()


def test_every_rule_is_cited_by_code() -> None:
    """A rule that no code cites is not held by any."""
    code = {number for number, files in citations().items() if any(file.startswith(CODE) for file in files)}

    assert rules().keys() - code == set()


def test_every_measured_fact_is_relied_on() -> None:
    """By code, by tests, or by a rule."""
    by_rules = set().union(*map(numbers, rules().values()))
    by_facts = set().union(*map(numbers, facts().values()))

    assert facts().keys() - by_rules - by_facts - citations().keys() == set()


@pytest.mark.parametrize("number", rules())
def test_the_files_of_a_rule_exist_and_cite_it(number: str) -> None:
    """A rule that has moved to another file is named there."""
    named = {
        kind: re.findall(r"`([^`]+)`", text)
        for kind, text in re.findall(r"^(Code|Tests): (.*)$", rules()[number], re.MULTILINE)
    }

    assert named.keys() == {"Code", "Tests"}
    assert all(file.startswith(CODE) for file in named["Code"])
    assert all(file.startswith("tests/") for file in named["Tests"])
    files = {*named["Code"], *named["Tests"]}
    assert {file for file in files if not (ROOT / file).is_file()} == set()
    assert files - citations()[number] == set()


def test_no_text_sends_to_a_page_that_is_not_in_the_repository() -> None:
    """Neither by a name of its own nor by the name of a file."""
    found = {}
    for file, text in prose().items():
        if ROOT / file == Path(__file__):
            continue
        if gone := {*ELSEWHERE.findall(text), *missing_pages(file, text)}:
            found[file] = gone

    assert found == {}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"""See Z9 and Q1 to Q3."""', {"Z9", "Q1", "Q2", "Q3"}),
        ("x = 1  # P6a, R5", {"P6a", "R5"}),
        ('x = "I13: a gap"', {"I13"}),
        ('x = f"I2, I3: {y}"', {"I2"}),
        ('x = "A1"', set()),
        ('"""The option `B2`, the file a/C3, KIP-848, 4.3.1 and N802."""', set()),
    ],
)
def test_numbers_are_found_in_what_is_written_for_people(source: str, expected: set[str]) -> None:
    """The checker itself is checked."""
    assert numbers("\n".join(prose_of_python(source))) == expected


def test_a_page_that_is_not_there_is_found() -> None:
    """By its path or by its name alone."""
    assert missing_pages("cues_kafka/plan/plan.py", "see docs/gone.md, docs/api.md, protocol.md and nowhere.md") == {
        "docs/gone.md",
        "nowhere.md",
    }
    assert ELSEWHERE.findall("(PROTOCOL 1), DESIGN 7, PROTOCOL R5, exp-3, the PROTOCOL of TLA") == [
        "PROTOCOL 1", "DESIGN 7", "PROTOCOL R5", "exp-3",
    ]  # fmt: skip
