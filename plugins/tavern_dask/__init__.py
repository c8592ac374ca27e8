"""Runs nodes of workflows on a Dask cluster: the service `nodeCluster`.

Nothing is offered, and nothing imported, until the operator has named a scheduler.
"""

from __future__ import annotations

import importlib.util

from tavern_host import PluginContext, ServiceInfo, hookimpl
from tavern_host.contracts.errors import Misconfigured


@hookimpl
def tavern_register_services(context: PluginContext) -> list[ServiceInfo]:
    """Offer `nodeCluster`, if a cluster is set up. Raises `Misconfigured` where what it needs is missing."""
    if not context.settings.get("scheduler"):
        return []
    if importlib.util.find_spec("distributed") is None:
        raise Misconfigured("a Dask cluster is set up, but `distributed` is missing: pip install tavern-host[dask]")
    return [ServiceInfo(service="nodeCluster", handler="tavern_dask.cluster:DaskCluster")]
