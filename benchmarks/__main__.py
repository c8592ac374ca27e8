"""`python -m benchmarks NAME [--only PART] [--peers] [--json] [--docs]`: runs one benchmark and prints its figures.

A benchmark is a module with `FIGURES`: what measures its figures, by part. Where a module NAMEpeers has some, too,
`--peers` measures them beside it: what other libraries take for the same work. `--docs` writes the table into
`docs/performance.md` as well.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import platform
from collections.abc import Callable

from benchmarks.harness import Report, Result
from benchmarks.pages import write_figures

NAMES = (
    *("kernel", "engine", "tools", "scripts", "agents", "memory", "server", "studio", "assistant"),
    *("faults", "trust", "soak", "badclients", "reach", "isolation"),
)

Figures = dict[str, Callable[[], list[Result]]]


def main(arguments: list[str] | None = None) -> None:
    """Read the arguments (those of the process by default), run, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--only", metavar="PART", action="append", help="measure this part alone; may be repeated")
    parser.add_argument("--peers", action="store_true", help="measure other libraries that do the same, too")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--docs", action="store_true", help="write the table into docs/performance.md, too")
    options = parser.parse_args(arguments)
    sets = [_figures(options.name)]
    if options.peers:
        if importlib.util.find_spec(f"benchmarks.{options.name}peers") is None:
            parser.error(f"{options.name} has no peers")
        sets.append(_figures(f"{options.name}peers"))
    if options.docs and options.only:
        parser.error("--docs writes the whole table; leave --only out")
    parts = options.only or [part for figures in sets for part in figures]
    unknown = [part for part in parts if not any(part in figures for figures in sets)]
    if unknown:
        parser.error(f"{options.name} has no part {unknown[0]!r}; it has {', '.join(sets[0])}")
    chosen = [(figures, part) for figures in sets for part in dict.fromkeys(parts) if part in figures]
    results = [result for figures, part in chosen for result in figures[part]()]
    report = Report(options.name, platform.python_version(), results)
    print(json.dumps(report.to_json(), indent=2) if options.json else report.to_text())
    if options.docs:
        write_figures(report)


def _figures(module: str) -> Figures:
    figures: Figures = importlib.import_module(f"benchmarks.{module}").FIGURES
    return figures


if __name__ == "__main__":
    main()
