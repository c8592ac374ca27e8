"""What authors of front ends are given in writing: the types of the API, with which what the scaffold and the examples
hold is in order, and a page that shows what the scaffold writes."""

from __future__ import annotations

import json
import re

from documentation.pages import ROOT
from documentation.studio import DECLARATIONS, declarations

from tavern_devtools.scaffold import scaffold
from tavern_host import __version__
from tavern_host.contracts.ui import COMPONENTS, OUTLETS, PANELS

FRONTEND = ROOT / "plugins" / "tavern_studio" / "frontend"


def test_the_shipped_types_are_those_of_the_studio() -> None:
    assert DECLARATIONS.read_text(encoding="utf-8") == declarations(), "run python -m tests.documentation"
    assert not re.search(r"^import (?!type .* from \"vue\")|^(export )?(const|function|class) ", declarations(), re.M)
    minor = ".".join(__version__.split(".")[:2])
    kept = FRONTEND / "tests" / "declarations" / f"{minor}.d.ts"
    assert kept.exists(), (
        "keep a copy of src/extensions/types.ts for each minor version, and compare in declarations.ts"
    )
    package = json.loads((DECLARATIONS.parent / "package.json").read_text())
    assert package["version"].startswith(f"{minor}.")


def test_the_page_shows_the_module_that_the_scaffold_writes() -> None:
    def code(text: str) -> list[str]:
        return [line for line in re.sub(r"/\*\*.*?\*/", "", text, flags=re.DOTALL).splitlines() if line]

    page = (ROOT / "docs" / "studio-extensions.md").read_text(encoding="utf-8")
    shown = re.search(r"```javascript\n(import .*?)```", page, re.DOTALL)
    assert shown is not None
    assert code(shown[1]) == code(scaffold("acme-hello", "plain").files["acme_hello/web/index.js"])


def test_the_page_and_the_host_know_the_same_panels() -> None:
    source = (FRONTEND / "src" / "registry" / "places.ts").read_text(encoding="utf-8")
    found = re.search(r"PANELS[^=]*= \[(.*?)\];", source, re.DOTALL)
    assert found is not None
    assert re.findall(r'"([a-z]+)"', found[1]) == [*PANELS]


def test_the_picture_has_every_outlet_and_every_part() -> None:
    picture = (ROOT / "docs" / "pictures" / "studio-places.svg").read_text(encoding="utf-8")
    shown = re.findall(r">([a-zA-Z-]+(?::[a-zA-Z-]+)+)<", picture)
    assert shown == [*OUTLETS, *COMPONENTS], "see tests/real/studio/picture_of_places.py"
