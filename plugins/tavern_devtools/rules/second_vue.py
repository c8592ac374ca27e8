"""A front end brings no Vue of its own: the page has one, which it shares."""

from __future__ import annotations

from collections.abc import Iterator

from tavern_devtools.rules.subject import Subject
from tavern_host.contracts.plugins import Problem

_MARK = b"__v_isVNode"
"""Stands in Vue's runtime, minified or not, and in nothing that is written with it."""


def check(subject: Subject) -> Iterator[Problem]:
    """Yield the scripts of the front end that have Vue in them."""
    if subject.info.frontend is None or subject.info.first_party:  # the studio brings the page's own
        return
    for path in subject.files(".js", ".mjs"):
        if _MARK in path.read_bytes():
            hint = "build it with vue as an external module"
            message = "it brings a second copy of Vue, whose components cannot be put beside those of the page"
            yield Problem(message=message, hint=hint, file=subject.shown(path))
