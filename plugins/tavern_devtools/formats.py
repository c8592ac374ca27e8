"""What a check found, for editors (`file:line:column: level: message [rule]`) and for CI (SARIF 2.1.0)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tavern_devtools.api.findings import Finding
from tavern_host import __version__
from tavern_host.contracts.languages import say
from tavern_host.contracts.plugins import MANIFEST

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def placed(finding: Finding, folder: Path, roots: Iterable[Path]) -> Finding:
    """Return a finding with the path of its file as one that can be opened from here: relative where it is below the
    current folder. One without a file is about the plugin's manifest."""
    named = finding.file or str(folder / MANIFEST)
    found = next((root / named for root in (*roots, folder.parent, folder) if (root / named).is_file()), Path(named))
    here = Path.cwd()
    shown = found.relative_to(here) if found.is_relative_to(here) else found
    return finding.model_copy(update={"file": shown.as_posix()})


def lines(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield a line for each finding, as compilers write them and editors read them."""
    for one in findings:
        hint = f" ({say(one.hint)})" if one.hint else ""
        rule = f" [{one.rule}]" if one.rule else ""
        yield f"{one.file}:{one.line or 1}:{one.column or 1}: {one.level}: {say(one.message)}{hint}{rule}"


def sarif(findings: Iterable[Finding]) -> str:
    """Return findings as SARIF, which GitHub and others show beside the lines that they are about."""
    found = list(findings)
    rules = sorted({one.rule or "host" for one in found})
    driver = {"name": "tavern plugins check", "version": __version__, "rules": [{"id": rule} for rule in rules]}
    run = {"tool": {"driver": driver}, "results": [_result(one, rules) for one in found]}
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, ensure_ascii=False, indent=2)


def _result(one: Finding, rules: list[str]) -> dict[str, Any]:
    rule, text = one.rule or "host", f"{one.message} ({one.hint})" if one.hint else one.message
    region = {"startLine": one.line or 1, "startColumn": one.column or 1}
    place = {"artifactLocation": {"uri": one.file}, "region": region}
    return {
        "ruleId": rule,
        "ruleIndex": rules.index(rule),
        "level": one.level,
        "message": {"text": text},
        "locations": [{"physicalLocation": place}],
    }
