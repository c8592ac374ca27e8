"""Broken plugins in the wrong place: paths and links that lead out, names that are taken, requirements not met."""

from __future__ import annotations

import os

from base_project import HEAD, HERE, TELLS, BaseProject
from broken_plugins import FAILED, INCOMPATIBLE, INVALID, NEEDS_REVIEW, STARTED, Corpus, Says

CORPUS = Corpus()

# --- paths that lead out of the folder ---------------------------------------------------------------

PATH_UP = f"name: path-up\ndisplayName: x\nversion: 1.0.0\nnodes: {{entry: ../elsewhere}} {HERE}\n"
CORPUS.add(
    "path-up",
    lambda inn: inn.folder("path-up", PATH_UP, {"__init__.py": TELLS}),
    Says("path-up", INVALID, "nodes.entry", "must be a path inside the plugin's folder", "plugin.yaml", at="link"),
)


def linked_code(inn: BaseProject) -> None:
    root = inn.code("link-code", f"{TELLS}from . import part\n")
    (inn.elsewhere / "part.py").write_text(TELLS)
    (root / "part.py").symlink_to(inn.elsewhere / "part.py")


def link_within(inn: BaseProject) -> None:
    root = inn.code("link-within", TELLS, files={"deep/part.py": TELLS})
    (root / "deep" / "round").symlink_to(root)
    os.mkfifo(root / "deep" / "pipe.py")


LEADS_OUT = Says("link-code", INVALID, "part.py leads out of", "copy what it needs there", at="link")
CORPUS.add("link-code", linked_code, LEADS_OUT)
CORPUS.add("link-within", link_within, Says("link-within", STARTED))

# --- two of one name ---------------------------------------------------------------------------------


def two_folders(inn: BaseProject) -> None:
    inn.code("twins", TELLS, at=inn.root / "plugins" / "twins-a")
    inn.code("twins", TELLS, at=inn.root / "plugins" / "twins-b")


TAKEN = "is taken by the plugin from folder:"
CORPUS.add(
    "twins",
    two_folders,
    Says("twins", STARTED, source="/twins-a"),
    Says("twins", INVALID, TAKEN, "remove one of the two", source="/twins-b", at="link"),
)

# --- what another plugin must be there for -----------------------------------------------------------


def write(inn: BaseProject, name: str, needed: str) -> None:
    inn.code(name, TELLS, requires={"plugins": {needed: ">=0"}})


def gone(inn: BaseProject) -> None:
    write(inn, "requires-gone", "not-there")


NOT_THERE = "the plugin not-there, which is not installed"
CORPUS.add("requires-gone", gone, Says("requires-gone", INCOMPATIBLE, NOT_THERE, "install the plugin", at="link"))


def circle(inn: BaseProject) -> None:
    for name, needed in (("ring-a", "ring-b"), ("ring-b", "ring-c"), ("ring-c", "ring-a")):
        write(inn, name, needed)


CORPUS.add(
    "circle",
    circle,
    Says("ring-a", INCOMPATIBLE, "it requires ring-b, which in turn requires ring-a", "remove one", at="link"),
    Says("ring-b", INCOMPATIBLE, "it requires ring-c, which is incompatible", "plugins show ring-c`", at="link"),
    Says("ring-c", INCOMPATIBLE, "it requires ring-a, which is incompatible", "plugins show ring-a`", at="link"),
)


def on_failed(inn: BaseProject) -> None:
    inn.code("ground-failed", f"{HEAD}raise RuntimeError('no ground')  {HERE}\n")
    write(inn, "stands-on-failed", "ground-failed")
    write(inn, "stands-higher", "stands-on-failed")


CORPUS.add(
    "stands-on-failed",
    on_failed,
    Says("ground-failed", FAILED, "RuntimeError: no ground", "tavern plugins disable ground-failed", "__init__.py"),
    Says("stands-on-failed", INCOMPATIBLE, "it requires ground-failed, which is failed", "`tavern plugins show ground"),
    Says("stands-higher", INCOMPATIBLE, "stands-on-failed, which is incompatible", "`tavern plugins show stands-on"),
)

# --- what the operator has not reviewed --------------------------------------------------------------


def unreviewed(name: str, reason: str) -> Says:
    """Return the report of a plugin that waits for the operator."""
    return Says(name, NEEDS_REVIEW, reason, f"`tavern plugins grant {name}`", at="link")


WRAPS = {"ui": {"wrap": ["ui:BaseNode"]}}
CORPUS.add(
    "intercepts-unreviewed",
    lambda inn: inn.installed("intercepts-unreviewed", HEAD, permissions=WRAPS),
    unreviewed("intercepts-unreviewed", "it asks for ui.wrap:ui:BaseNode, which nobody has granted"),
    unreviewed=True,
)
CORPUS.add(
    "changed-since",
    lambda inn: inn.code("changed-since", HEAD, files={"part.py": TELLS}),
    unreviewed("changed-since", "changed since it was reviewed"),
    tamper=lambda inn: (inn.roots["changed-since"] / "part.py").write_text("print('quite another thing')\n"),
)


def ask_for_more(inn: BaseProject) -> None:
    file = inn.roots["asks-for-more"] / "plugin.yaml"
    file.write_text(file.read_text().replace("ui:BaseNode", "ui:GraphEditor"))


CORPUS.add(
    "asks-for-more",
    lambda inn: inn.installed("asks-for-more", HEAD, permissions=WRAPS),
    unreviewed("asks-for-more", "ui.wrap:ui:GraphEditor"),
    tamper=ask_for_more,
)
