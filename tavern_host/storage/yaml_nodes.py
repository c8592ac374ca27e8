"""Reads YAML text into nodes, through libyaml where PyYAML has it: many times faster than in Python."""

from __future__ import annotations

import contextlib

import yaml
from yaml.composer import Composer


def compose(text: str) -> yaml.Node | None:
    """Return the root of the one document in a text. Raises `YAMLError`, `RecursionError`.

    The reader in Python says better what is wrong, and so has the last word on what libyaml does not take.
    """
    if yaml.__with_libyaml__:
        with contextlib.suppress(yaml.YAMLError):
            return _Loader(text).get_single_node()
    return yaml.SafeLoader(text).get_single_node()


class _Loader(Composer, getattr(yaml, "CSafeLoader", object)):  # type: ignore[misc]
    """Takes what libyaml parses and composes it in Python; libyaml's own way ends the process where nesting is deep."""

    def __init__(self, text: str) -> None:
        yaml.CSafeLoader.__init__(self, text)
        Composer.__init__(self)
