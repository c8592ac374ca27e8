"""Where the plugins of a host run, and the boundary that goes with it."""

from __future__ import annotations

import os
from typing import Literal, get_args

from tavern_host.boundary import Boundary, InProcess, Observed, Observer
from tavern_host.catalogue import Catalogue
from tavern_host.contracts.errors import InvalidInput

Placement = Literal["in-process", "loopback"]
"""In the host's process; or there, with everything that crosses a plugin's boundary encoded and decoded again, for
tests (DESIGN §3, *Rules of the contracts*)."""

VARIABLE = "TAVERN_PLACEMENT"


def placement_from_environment() -> Placement:
    """Return what `TAVERN_PLACEMENT` says, or `in-process`. Raises `InvalidInput`."""
    text = os.environ.get(VARIABLE) or "in-process"
    placement: Placement
    for placement in get_args(Placement):
        if text == placement:
            return placement
    raise InvalidInput(f"{VARIABLE} must be {' or '.join(get_args(Placement))}, not {text!r}")


def make_boundary(placement: Placement, catalogue: Catalogue, observer: Observer | None = None) -> Boundary:
    """Return the boundary of all plugins of one host, with an observer on the host's side of it."""
    boundary: Boundary = InProcess()
    if placement == "loopback":
        from tavern_host.loopback import Loopback

        boundary = Loopback(catalogue)
    return boundary if observer is None else Observed(boundary, observer)
