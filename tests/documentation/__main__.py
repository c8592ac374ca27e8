"""`python -m tests.documentation`: writes the reference parts of the pages anew, and what is copied from the code."""

from __future__ import annotations

import json
import sys

from .facts import openapi
from .pages import ROOT, Page
from .reference import TO_DO, references, rewritten
from .studio import DECLARATIONS, declarations

FRONTEND_DOCUMENT = ROOT / "plugins" / "tavern_studio" / "frontend" / "openapi.json"
"""What the types of the studio's requests are made of when it is built."""


def frontend_document() -> str:
    """Return the description of all routes as it is kept for the studio."""
    return json.dumps(openapi(), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def main() -> int:
    """Write each page that changed, and say which parts are still to be put in or written by hand."""
    done = True
    for path, parts in references().items():
        page = Page.read(path)
        text = rewritten(page, parts)
        if text != page.text:
            (ROOT / path).write_text(text, encoding="utf-8")
            print(f"wrote {path}")
        missing = [name for name in parts if name not in page.references]
        for name in missing:
            print(f"{path} has no part `<!-- reference: {name} -->`")
        if TO_DO in text:
            print(f"{path} has cells that say {TO_DO}")
        done = done and not missing and TO_DO not in text
    FRONTEND_DOCUMENT.write_text(frontend_document(), encoding="utf-8")
    DECLARATIONS.write_text(declarations(), encoding="utf-8")
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
