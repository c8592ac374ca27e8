"""Runs inside of a sandbox: `install.py FOLDER NAME [--copy FILES] PROGRAM ARGUMENT…` runs a program in the folder,
then sends what it left in the folder NAME there through descriptor 3. It checks nothing; `unpack.py` does.

`FILES` are names in /tavern/input, separated by commas, which are put there before; `a=b` gives one another name.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

CHANNEL = 3
INPUT = "/tavern/input"


def send(folder: str, inner: str, channel: int) -> None:
    """Send the regular files below `inner` in a folder: for each the length of a head in four bytes, the head (path,
    size, whether it can be executed), and its bytes; at the end a length of 0."""
    with os.fdopen(channel, "wb", closefd=False) as out:
        for here, folders, names in os.walk(Path(folder, inner)):
            folders.sort()
            for name in sorted(names):
                path = Path(here, name)
                if path.is_symlink() or not path.is_file():
                    continue
                size = path.stat().st_size
                head = json.dumps([os.path.relpath(path, folder), size, os.access(path, os.X_OK)]).encode()
                out.write(len(head).to_bytes(4, "big") + head)
                with path.open("rb") as file:
                    while size and (piece := file.read(min(size, 1 << 20))):
                        size -= len(piece)
                        out.write(piece)
        out.write(bytes(4))


def main() -> int:
    """Run the program and send what it left; return its status."""
    folder, inner, *words = sys.argv[1:]
    Path(folder).mkdir(parents=True, exist_ok=True)
    if words[0] == "--copy":
        for name in words[1].split(","):
            source, _, target = name.partition("=")
            shutil.copyfile(Path(INPUT, source), Path(folder, target or source))
        words = words[2:]
    status = subprocess.run(words, check=False, stdin=subprocess.DEVNULL, cwd=folder).returncode
    if status == 0 and inner:
        send(folder, inner, CHANNEL)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
