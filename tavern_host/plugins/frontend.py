"""The files of a loaded plugin's front end, as they are served: those that were there when it was loaded."""

from __future__ import annotations

from tavern_host.contracts.ui import FrontendFiles
from tavern_host.plugins.discovery import content_hash, file_hashes
from tavern_host.plugins.record import Record


def frontend_files(record: Record) -> FrontendFiles | None:
    """Return the files of a plugin's front end, if it has one: what was reviewed of a folder in a project, else what is
    there now; nothing hidden, and no link that leads out of its folder. Blocking."""
    inner = record.manifest.frontend.folder() if record.manifest is not None and record.manifest.frontend else None
    if record.root is None or inner is None:
        return None
    inside, folder = record.root / inner, (record.root / inner).resolve()
    if record.first_party:
        return FrontendFiles(folder)
    within, found = (
        (inside, file_hashes(inside, is_dev=record.is_dev))
        if record.reviewed is None
        else (record.root, record.reviewed)
    )
    paths = {within / path: one for path, one in found.items() if (within / path).is_relative_to(inside)}
    served = {
        path.relative_to(inside).as_posix(): one
        for path, one in sorted(paths.items())
        if not any(part.startswith(".") for part in path.relative_to(inside).parts)
        and path.resolve().is_relative_to(folder)
    }
    return FrontendFiles(folder, f"@{content_hash(served)}/", served)
