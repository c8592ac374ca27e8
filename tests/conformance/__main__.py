"""`python -m tests.conformance`: writes into the vectors what the rules in Python say."""

from __future__ import annotations

from .vectors import FOLDER, RULES, rendered

if __name__ == "__main__":
    for name in RULES:
        (FOLDER / f"{name}.json").write_text(rendered(name), encoding="utf-8")
