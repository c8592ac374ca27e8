"""`python -m benchmarks NAME [--only PART] [--json]`: runs one benchmark and prints its figures.

A benchmark is a module with `FIGURES`: what measures its figures, by part.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
from collections.abc import Callable

from benchmarks.harness import Report, Result

NAMES = ("kernel",)


def main(arguments: list[str] | None = None) -> None:
    """Read the arguments (those of the process by default), run, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--only", metavar="PART", action="append", help="measure this part alone; may be repeated")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    options = parser.parse_args(arguments)
    figures: dict[str, Callable[[], list[Result]]] = importlib.import_module(f"benchmarks.{options.name}").FIGURES
    parts = options.only or list(figures)
    unknown = [part for part in parts if part not in figures]
    if unknown:
        parser.error(f"{options.name} has no part {unknown[0]!r}; it has {', '.join(figures)}")
    results = [result for part in dict.fromkeys(parts) for result in figures[part]()]
    report = Report(options.name, platform.python_version(), results)
    print(json.dumps(report.to_json(), indent=2) if options.json else report.to_text())


if __name__ == "__main__":
    main()
