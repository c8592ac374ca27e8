"""The `nodeManager` service."""

from __future__ import annotations

from pydantic import JsonValue

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.nodes import NodeDefinition
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads


class NodeManager(ServiceInterface, name="nodeManager", version=2):
    """The node types that loaded plugins offer, after `tavern_before_register_node`."""

    @reads
    async def list_nodes(self) -> list[NodeDefinition]:
        """Return all node types, by full type."""

    @reads
    async def get(self, full_type: str) -> NodeDefinition:
        """Return one node type. Raises `NotFound` with near names."""

    @acts("nodeManager:act", "Press buttons of nodes.", since=2)
    async def act(
        self,
        full_type: str,
        action: str,
        *,
        inputs: dict[str, JsonValue],
        config: dict[str, JsonValue],
        call: CallContext | None = None,
    ) -> dict[str, JsonValue]:
        """Carry out an action of a node with these written values; return the input values that it changes.

        Raises `NotFound` for an unknown type or action, else what the node's code raises.
        """


NODE_MANAGER = ServiceKey(NodeManager)
