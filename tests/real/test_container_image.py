"""The image of docs/examples/Containerfile, built without a registry: its steps are carried out on a copy of this
machine's root file system that is thrown away, and its entry runs there as the user that it names."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.ports import free_port

TOKEN = "of-the-operator-of-this-test"
ASKING = f"""
import sys, urllib.request as u
for path, part in (("/api/plugins", b"tavern-agents"), ("/", b'<div id="app">')):
    asked = u.Request(sys.argv[1] + path, headers={{"Authorization": "Bearer {TOKEN}"}})
    print(path, part in u.urlopen(asked).read())
"""
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the file, each with its words."""
    text = (EXAMPLES / "Containerfile").read_text()
    lines = re.sub(r"^#.*\n", "", text, flags=re.M).replace("\\\n", " ").splitlines()
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines if line.strip())]


def script(place: Path, port: int) -> str:
    """Return a program for a shell that is root in a mount namespace of its own."""
    root, source = place / "root", place / "source"
    venv = Path(sys.prefix)
    lines = [
        "set -e",
        f"mount -t tmpfs tmpfs {place / 'layers'}",
        f"mkdir {place / 'layers' / 'upper'} {place / 'layers' / 'work'}",
        f"mount -t overlay overlay -o lowerdir=/,upperdir={place}/layers/upper,workdir={place}/layers/work {root}",
        f"mount --rbind /dev {root}/dev; mount --rbind /proc {root}/proc; mount -t tmpfs tmpfs {root}/run",
        f"export PATH={venv}/bin:$PATH HOME=/root",
        # the interpreter of an image is anybody's; here it may be in folders of root's
        *(f"chmod o+x {root}{folder}" for one in (venv, Path(sys.base_prefix)) for folder in (one, *one.parents)),
    ]
    user, entry, arguments = "root", "", ""
    for name, rest in instructions():
        match name:
            case "RUN" if "apt-get" in rest:
                pass  # scripts are run in what it installs, and the tests of the sandbox run them
            case "RUN":
                lines.append(f"chroot {root} /bin/sh -c {shlex.quote(rest)} 1>&2")
            case "COPY":
                assert rest == ". /src"
                lines.append(f"cp -r {source} {root}/src")
            case "USER":
                user = rest
            case "ENTRYPOINT":
                entry = shlex.join(json.loads(rest)).replace("8188", str(port))
            case "CMD":
                arguments = shlex.join(json.loads(rest))
            case "HEALTHCHECK":
                words = json.loads(rest.removeprefix("CMD "))
                check = shlex.join(words).replace("8188", str(port))
            case "FROM" | "EXPOSE" | "VOLUME":
                pass
            case _:
                raise AssertionError(f"what does {name} do?")
    about = f"PATH={venv}/bin:$PATH HOME=/home/{user} TAVERN_TOKEN={TOKEN}"
    within = f"chroot --userspec={user}:{user} {root} /usr/bin/env -i {about}"
    lines += [
        f"{within} {entry} {arguments} 1>&2 & server=$!",
        f"for _ in $(seq 300); do {within} {check} 2>/dev/null && break; kill -0 $server; sleep 0.1; done",
        f"{within} {check} && echo healthy",
        f"chroot {root} /usr/bin/find /inn /home/{user} ! -user {user}",
        f"chroot {root} /usr/bin/find /inn/tavern.yaml /inn/.tavern /home/{user}/.local -maxdepth 0",
        f"{within} python -c {shlex.quote(ASKING)} http://127.0.0.1:{port}",
        "kill -TERM $server; wait $server; echo ended $?",
    ]
    return "\n".join(lines)


@pytest.mark.skipif(os.geteuid() != 0, reason="it makes mounts")
def test_the_image_serves_as_an_ordinary_user(tmp_path: Path) -> None:
    for name in ("root", "layers", "source"):
        (tmp_path / name).mkdir()
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, tracked.split("\0")):
        target = tmp_path / "source" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    if (web := ROOT / "plugins" / "tavern_studio" / "web").is_dir():  # built already: else the installation builds it
        shutil.copytree(web, tmp_path / "source" / web.relative_to(ROOT))
    shell = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "/bin/sh", "-c"]
    done = subprocess.run(
        [*shell, script(tmp_path, free_port())], capture_output=True, text=True, timeout=280, check=False
    )
    lines = done.stdout.splitlines()
    kept = ["/inn/tavern.yaml", "/inn/.tavern", "/home/tavern/.local"]
    assert lines == ["healthy", *kept, "/api/plugins True", "/ True", "ended 0"], (
        f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    )
