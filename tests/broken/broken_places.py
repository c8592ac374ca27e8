"""Broken plugins in the wrong place: paths and links that lead out, names that are taken, requirements not met."""

from __future__ import annotations

import os

from broken_plugins import Corpus, Says
from inn import HEAD, HERE, TELLS, Inn

from tavern_host.contracts.plugins import PluginState

CORPUS = Corpus()
INVALID, INCOMPATIBLE = PluginState.INVALID, PluginState.INCOMPATIBLE
FAILED, STARTED = PluginState.FAILED, PluginState.STARTED

# --- paths that lead out of the folder ---------------------------------------------------------------

INSIDE = "must be a path inside the plugin's folder"


def path(name: str, line: str, found: str) -> None:
    """Add a plugin whose manifest names a path that it must not."""
    text = f"name: {name}\ndisplayName: x\nversion: 1.0.0\n{line} {HERE}\n"
    says = Says(name, INVALID, found, INSIDE, "plugin.yaml", at="link")
    CORPUS.add(name, lambda inn: inn.folder(name, text, {"__init__.py": TELLS}), says)


path("path-up", "nodes: {entry: ../elsewhere}", "nodes.entry")


def linked_code(inn: Inn) -> None:
    root = inn.code("link-code", f"{TELLS}from . import part\n")
    (inn.elsewhere / "part.py").write_text(TELLS)
    (root / "part.py").symlink_to(inn.elsewhere / "part.py")


CORPUS.add(
    "link-code", linked_code, Says("link-code", INVALID, "part.py leads out of", "copy what it needs there", at="link")
)


def link_within(inn: Inn) -> None:
    root = inn.code("link-within", TELLS, files={"deep/part.py": TELLS})
    (root / "deep" / "round").symlink_to(root)
    os.mkfifo(root / "deep" / "pipe.py")


CORPUS.add("link-within", link_within, Says("link-within", STARTED))

# --- what the manifest names is not there ------------------------------------------------------------

CORPUS.add(
    "nodes-gone",
    lambda inn: inn.code("nodes-gone", TELLS, nodes={"entry": "./nodes"}),
    Says(
        "nodes-gone",
        INVALID,
        "nodes.entry: there is no 'nodes'",
        "make this module or package in the plugin's folder",
        "plugin.yaml",
        at="link",
    ),
)
CORPUS.add(
    "tools-gone",
    lambda inn: inn.code("tools-gone", TELLS, tools={"entry": "./tools"}),
    Says("tools-gone", STARTED, "tools.entry: there is no folder 'tools'", "tools.entry", "plugin.yaml"),
)
CORPUS.add(
    "package-gone",
    lambda inn: inn.entry_point("package-gone", "a_package_that_is_not_there"),
    Says("package-gone", INVALID, "'a_package_that_is_not_there'", "reinstall package-gone-dist", at="link"),
)

# --- two of one name ---------------------------------------------------------------------------------

TAKEN, REMOVE = "is taken by the plugin from", "remove one of the two"


def two_folders(inn: Inn) -> None:
    inn.code("twins", TELLS, at=inn.root / "plugins" / "twins-a")
    inn.code("twins", TELLS, at=inn.root / "plugins" / "twins-b")


CORPUS.add(
    "twins",
    two_folders,
    Says("twins", STARTED, source="/twins-a"),
    Says("twins", INVALID, f"{TAKEN} folder:", REMOVE, source="/twins-b", at="link"),
)

# --- what another plugin must be there for -----------------------------------------------------------


def requires(name: str, other: str, versions: str, reason: str, mend: str) -> None:
    """Add a plugin that requires one other."""
    CORPUS.add(
        name,
        lambda inn: inn.code(name, TELLS, requires={"plugins": {other: versions}}),
        Says(name, INCOMPATIBLE, reason, mend, at="link"),
    )


requires("requires-gone", "not-there", ">=1", "the plugin not-there, which is not installed", "install the plugin")


def circle(*names: str) -> None:
    """Add plugins each of which requires the next, and the last the first."""

    def write(inn: Inn) -> None:
        for name, needed in zip(names, (*names[1:], names[0]), strict=True):
            inn.code(name, TELLS, requires={"plugins": {needed: ">=0"}})

    first, second, *others = names
    after = dict(zip(names, (*names[1:], names[0]), strict=True))
    CORPUS.add(
        f"circle-of-{len(names)}",
        write,
        Says(first, INCOMPATIBLE, f"it requires {second}, which in turn requires {first}", "remove one", at="link"),
        *(
            Says(
                name,
                INCOMPATIBLE,
                f"it requires {after[name]}, which is incompatible",
                f"see `tavern plugins show {after[name]}`",
                at="link",
            )
            for name in (second, *others)
        ),
    )


circle("ring-a", "ring-b", "ring-c")


def on_invalid(inn: Inn) -> None:
    inn.folder("ground-invalid", "name: ground-invalid\n")
    inn.code("stands-on-invalid", TELLS, requires={"plugins": {"ground-invalid": ">=0"}})


def on_failed(inn: Inn) -> None:
    inn.code("ground-failed", f"{HEAD}raise RuntimeError('no ground')  {HERE}\n")
    inn.code("stands-on-failed", TELLS, requires={"plugins": {"ground-failed": ">=0"}})
    inn.code("stands-higher", TELLS, requires={"plugins": {"stands-on-failed": ">=0"}})


CORPUS.add(
    "stands-on-invalid",
    on_invalid,
    Says("ground-invalid", INVALID, "the key 'displayName' is missing", "'displayName'", at="link"),
    Says(
        "stands-on-invalid",
        INCOMPATIBLE,
        "it requires ground-invalid, which is invalid",
        "`tavern plugins show ground-invalid`",
        at="link",
    ),
)
CORPUS.add(
    "stands-on-failed",
    on_failed,
    Says("ground-failed", FAILED, "RuntimeError: no ground", "tavern plugins disable ground-failed", "__init__.py"),
    Says("stands-on-failed", INCOMPATIBLE, "it requires ground-failed, which is failed", "`tavern plugins show ground"),
    Says("stands-higher", INCOMPATIBLE, "stands-on-failed, which is incompatible", "`tavern plugins show stands-on"),
)


# --- what the operator has not reviewed --------------------------------------------------------------

CORPUS.add(
    "never-reviewed",
    lambda inn: inn.code("never-reviewed", HEAD),
    Says(
        "never-reviewed",
        PluginState.NEEDS_REVIEW,
        "nobody has granted",
        "then `tavern plugins grant never-reviewed`",
        at="link",
    ),
    unreviewed=True,
)
CORPUS.add(
    "intercepts-unreviewed",
    lambda inn: inn.installed("intercepts-unreviewed", HEAD, permissions={"ui": {"wrap": ["ui:BaseNode"]}}),
    Says(
        "intercepts-unreviewed",
        PluginState.NEEDS_REVIEW,
        "it asks for ui.wrap:ui:BaseNode, which nobody has granted",
        "then `tavern plugins grant intercepts-unreviewed`",
        at="link",
    ),
    unreviewed=True,
)


def change_code(inn: Inn) -> None:
    file = inn.roots["changed-since"] / "part.py"
    file.write_text("print('quite another thing')\n")


def ask_for_more(inn: Inn) -> None:
    file = inn.roots["asks-for-more"] / "plugin.yaml"
    file.write_text(file.read_text().replace("ui:BaseNode", "ui:GraphEditor"))


CORPUS.add(
    "changed-since",
    lambda inn: inn.code("changed-since", HEAD, files={"part.py": TELLS}),
    Says(
        "changed-since",
        PluginState.NEEDS_REVIEW,
        "changed since it was reviewed",
        "`tavern plugins grant changed-since`",
        at="link",
    ),
    tamper=change_code,
)
CORPUS.add(
    "asks-for-more",
    lambda inn: inn.installed("asks-for-more", HEAD, permissions={"ui": {"wrap": ["ui:BaseNode"]}}),
    Says(
        "asks-for-more",
        PluginState.NEEDS_REVIEW,
        "ui.wrap:ui:GraphEditor",
        "`tavern plugins grant asks-for-more`",
        at="link",
    ),
    tamper=ask_for_more,
)
