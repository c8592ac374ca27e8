"""The corpus of broken plugins: one table, from all its chapters."""

from __future__ import annotations

import broken_hooks
import broken_imports
import broken_lives
import broken_manifests
import broken_places
import broken_services
from broken_plugins import Broken

CHAPTERS = (broken_manifests, broken_places, broken_imports, broken_hooks, broken_services, broken_lives)
CORPUS: tuple[Broken, ...] = tuple(row for chapter in CHAPTERS for row in chapter.CORPUS.rows)
