"""Short ways to open a run store, and values for what is kept."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC
from pathlib import Path

from helpers.forwarding import overriding
from helpers.plugin_files import write_whole
from hypothesis import strategies as st

from tavern_engine.journal.keys import ProjectKey
from tavern_engine.journal.run_store.store import SqlRunStore

LOG = logging.getLogger("tavern.tests.runs")

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
CODED = st.recursive(
    JSON | st.binary(max_size=40) | st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.replace(fold=0)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "$bytes", "$dict", ""]), inner),
    max_leaves=8,
)
"""Values that have a codec."""


@asynccontextmanager
async def opened(folder: Path, operator: Path | None = None) -> AsyncIterator[SqlRunStore]:
    """Open a store with the key of the operator's that is in another folder, of its own unless told otherwise."""
    operator = operator or folder.with_name(f"{folder.name} of the operator")
    store = SqlRunStore(folder, LOG, ProjectKey(operator))
    try:
        yield store
    finally:
        await store.close()


def store_plugin(parent: Path, body: str) -> Path:
    """Write a plugin `acme-store` that does what `body` says where the store of runs is asked; return its folder."""
    head = (
        "from helpers.stage import STAGE\n"
        "from tavern_host.contracts.errors import ServiceUnavailable\n"
        "from tavern_engine.api.runs import RUN_STORE"
    )
    code = overriding("RUN_STORE", body, head=head)
    uses = {"services": {"override": ["runStore"]}}
    return write_whole(parent / "acme_store", "acme-store", code, permissions=uses)
