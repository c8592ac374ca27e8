"""`python -m benchmarks NAME [--json]`: runs one benchmark and prints its figures."""

from __future__ import annotations

import argparse
import importlib
import json
import platform

from benchmarks.harness import Report

NAMES = ("kernel",)


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    options = parser.parse_args()
    results = importlib.import_module(f"benchmarks.{options.name}").run()
    report = Report(options.name, platform.python_version(), results)
    if options.json:
        print(json.dumps(report.to_json(), indent=2))
        return
    print(f"{report.benchmark}, Python {report.python}; median ratios of {results[0].runs} interleaved rounds")
    for r in results:
        limit = f" (at most {r.limit:g})" if r.limit is not None else ""
        print(f"  {r.name:44} {r.value:10.3f} {r.unit} = {r.ratio:6.3f} × {r.floor_name} ({r.floor:.3f}){limit}")


if __name__ == "__main__":
    main()
