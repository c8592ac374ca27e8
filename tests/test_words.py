"""What is in the repository refers to no document that is missing, and uses terms that a reader can look up."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXTS = frozenset({".py", ".md", ".yaml", ".yml", ".toml", ".json", ".js", ".html", ".css", ".txt", ".sh"})
OUTSIDE = re.compile(r"\bDESIG[N]\b|\bspec/[0]\d+|\bFINDING[S]\b|\b(?:HOUSE|STYLE)[.]md\b")
"""In brackets is what keeps this file from matching itself."""


def references(text: str) -> list[str]:
    """Return `line: reference` for each document that is named and not in the repository."""
    return [
        f"{number}: {found.group()}"
        for number, line in enumerate(text.splitlines(), 1)
        for found in OUTSIDE.finditer(line)
    ]


def test_references_to_missing_documents_are_found() -> None:
    outside = ["DE" + "SIGN", "spec/" + "001", "FIND" + "INGS", "STYLE" + ".md", "HOUSE" + ".md"]
    sample = ["a design, its findings, spec/ and docs/tools.md", *(f"see `{name}` §5" for name in outside)]
    assert references("\n".join(sample)) == [f"{line}: {name}" for line, name in enumerate(outside, 2)]


def _is_ours(file: Path) -> bool:
    return file.suffix in TEXTS and "node_modules" not in file.parts


def test_code_and_docs_refer_to_documents_in_the_repository() -> None:
    folders = ("tavern_host", "plugins", "docs", "contrib", "benchmarks", "tests")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*") if _is_ours(file)]
    files += ROOT.glob("*.md")
    found = {
        str(file.relative_to(ROOT)): references(file.read_text(encoding="utf-8", errors="replace")) for file in files
    }
    assert len(found) > 500
    assert {name: where for name, where in found.items() if where} == {}


DIALECT = re.compile(
    r"(?i)\b(?:(?:is|are|was|were) told|told (?:of|with|otherwise)|goes? on|under way|lets? go|anew|takes? no more|"
    r"made again|beneath)\b"
)
"""Wordings of our own, for which the field has terms: is notified, gets, resumes, in flight, releases, again, rejects,
is rebuilt, below. Python's comments and texts are held to it too, tests and the front end are not."""


def test_docs_and_code_use_the_terms_of_the_field() -> None:
    assert [found.group() for found in DIALECT.finditer("a run goes on anew, and who asks is told")] == [
        *("goes on", "anew", "is told"),
    ]
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for folder in ("tavern_host", "plugins", "contrib"):
        files += [f for f in (ROOT / folder).rglob("*") if f.suffix in (".py", ".yaml") and "frontend" not in f.parts]
    lines = ((file, *line) for file in files for line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1))
    assert len(files) > 500
    assert [f"{file}:{number}: {line}" for file, number, line in lines if DIALECT.search(line)] == []
