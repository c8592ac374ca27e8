"""Advisories about what is installed, as `tavern advisories` and the event `ADVISORY` have them."""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name

from pydantic import Field

from tavern_host.context import PluginContext
from tavern_host.contracts.wire import Model

ADVISORY = "ADVISORY"
"""The type of the event; its payload is an `Advisory`."""


class Advisory(Model):
    """A known weakness of an installed package: the advisory's `id` with its `aliases`, the `package` and its
    `version`, the versions in which it is `fixed`, its `severity` as the database has it (a word, else a CVSS vector),
    and the environment that it is in, `place`: `host`, `plugin NAME`, `script
    environment KEY (SOURCE)` or `plugin environment KEY (SOURCE)`."""

    id: str
    aliases: list[str] = Field(default_factory=list)
    ecosystem: str
    package: str
    version: str
    fixed: list[str] = Field(default_factory=list)
    severity: str = ""
    summary: str = ""
    place: str


async def advisories_about(
    context: PluginContext, database: str, packages: Mapping[str, str], place: str
) -> list[Advisory]:
    """Return the advisories about versions of Python packages by name, be they installed or not; `database` is a file,
    a folder or an address in the format OSV. Raises `Misconfigured`, and `ServiceUnavailable` where it cannot be read.
    """
    found: list[Advisory] = await resolve_name("tavern_operations.advisories.comparing:about")(
        context, database, packages, place
    )
    return found
