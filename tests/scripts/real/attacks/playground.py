"""What an attack may try to spoil: files of the host beside the folder of its script, and the folders that the sandbox
copies out to. It tells what changed."""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from tests.scripts.real.attacks.on_javascript import JAVASCRIPT

BESIDE = ("beside", "linked", "removable")
HERE = Path(__file__).parent


@dataclass
class Playground:
    """The folders of one attack; `secret` is what no sandbox may print."""

    root: Path
    secret: str
    owner: int
    script: Path = field(init=False)
    outside: Path = field(init=False)
    output: Path = field(init=False)
    kept: Path = field(init=False)
    _before: dict[str, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Make all of it."""
        self.script, self.outside = self.root / "script", self.root / "outside"
        self.output, self.kept = self.root / "output", self.root / "kept"
        for folder in (self.root, self.script, self.outside, self.output, self.kept, self.kept / ".cache"):
            folder.mkdir()
        (self.outside / "secret.txt").write_text(self.secret)
        (self.script / "link-to-secret.txt").symlink_to(self.outside / "secret.txt")
        (self.script / "link-to-folder").symlink_to(self.outside)
        for path in ("outside/writable.txt", "outside/linked.txt", *(f"script/{name}.txt" for name in BESIDE)):
            (self.root / path).write_text("as it was")

    def ready(self) -> None:
        """Put the attacks into its folder, make everything accessible to everybody, and note how all of it is now."""
        (self.script / "attack.py").write_text("from tests.scripts.real.attacks import program\n\nprogram.main()\n")
        (self.script / "attack.mjs").write_text(JAVASCRIPT)
        modules = self.script.joinpath("tests", "scripts", "real", "attacks")
        modules.mkdir(parents=True)
        for file in (HERE / "attack.py", HERE / "program.py", *HERE.glob("on_*.py")):
            shutil.copy(file, modules)
        for path in [self.root, *self.root.rglob("*")]:
            if not path.is_symlink():
                path.chmod(0o777 if path.is_dir() else 0o666)
            os.chown(path, self.owner, self.owner, follow_symlinks=False)
        if os.geteuid() == 0:  # it shows its owner who runs it, if the system lets it
            shutil.copy("/usr/bin/id", self.script / "set-uid-id")
            (self.script / "set-uid-id").chmod(0o4755)
        self._before = self._seen()

    def damage(self) -> list[str]:
        """Return the changes of the folder, and the files that should never have got here."""
        now = self._seen()
        changed = [path for path in self._before if now.get(path) != self._before[path]]
        return [f"{path} was changed" for path in changed] + [
            f"{path} is new" for path in now if path not in self._before
        ]

    def _seen(self) -> dict[str, str]:
        """Return the entries of the folder; of those that scripts may write to, no plain files and folders."""
        found = {}
        for path in [self.root, *sorted(self.root.rglob("*"))]:
            entry = path.lstat()
            is_plain = (stat.S_ISREG(entry.st_mode) and entry.st_nlink == 1) or stat.S_ISDIR(entry.st_mode)
            special = entry.st_mode & 0o7000
            if (path.is_relative_to(self.output) or path.is_relative_to(self.kept)) and is_plain and not special:
                continue
            text = f"{stat.filemode(entry.st_mode)} {entry.st_uid} {entry.st_nlink if is_plain else ''}"
            if stat.S_ISLNK(entry.st_mode):
                text += f" {path.readlink()}"
            elif stat.S_ISREG(entry.st_mode):
                text += f" {entry.st_size} {sha256(path.read_bytes()[: 1 << 20]).hexdigest()}"
            elif stat.S_ISDIR(entry.st_mode):  # how many folders it has is seen by them
                text = f"{stat.filemode(entry.st_mode)} {entry.st_uid}"
            found[str(path.relative_to(self.root))] = text
        return found
