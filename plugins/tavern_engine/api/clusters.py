"""Running nodes of a workflow elsewhere: a connected group of them goes to a cluster, which gives back results, and
handles of the values that stay there.

Values are bytes here, by the codec of `storage.values`; bytes themselves go as they are, apart.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

from pydantic import Field

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import ErrorInfo
from tavern_host.contracts.executions import RemoteWork
from tavern_host.contracts.nodes import NodeDefinition, SlotDefinition
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads
from tavern_host.contracts.wire import Model


class NodeSource(Model):
    """What another process needs to open a node type: its definition, with the handler, and what names its code.

    Of a folder plugin also the `package` it is imported as, its `folder`, and by path the SHA-256 in hex of each file
    that may be imported (None: any file).
    """

    plugin: str
    code: str
    definition: NodeDefinition
    package: str | None = None
    folder: str | None = None
    reviewed: dict[str, str] | None = None


class Values(Model):
    """Values by key: those that are bytes as they are, in `binary`, the others encoded."""

    encoded: dict[str, bytes] = Field(default_factory=dict)
    binary: dict[str, bytes] = Field(default_factory=dict)


class Handle(Model):
    """The value of the output `key` of node `node` of the same pass, wherever it is, as the input `input` of another
    node; of an input that takes several, the one at `place`. It is converted from the slot `given` to `wanted`, where
    these are named."""

    input: str
    place: int | None
    node: int
    key: str
    given: SlotDefinition | None = None
    wanted: SlotDefinition | None = None


class RemoteNode(Model):
    """A node to be run elsewhere: its number in the pass, the place of its type among the group's `sources`, its
    configuration and its inputs. `blobs` are the contents of Blobs among these, by hash, that it may want to read.

    `timeout` are the seconds that it may take. Without `may_repeat` it is begun once at most, whatever becomes of where
    it runs. Without `is_wanted`, large values of it may stay where they are.
    """

    number: int
    source: int
    config: Values
    inputs: Values
    blobs: dict[str, bytes] = Field(default_factory=dict)
    handles: tuple[Handle, ...] = ()
    timeout: float | None = None
    may_repeat: bool = True
    is_wanted: bool = True


class RemoteGroup(Model):
    """Nodes of one pass over a workflow, each after those whose values it takes."""

    pass_id: str
    sources: tuple[NodeSource, ...]
    nodes: tuple[RemoteNode, ...]


class RemoteResult(Model):
    """What became of a node. `outputs` are those that came back; `kept`, with their size in bytes, those that did not.

    `is_undone`: it was not run, since what came before it gave no value for it; `is_misplaced`: it has to run at the
    host, since a value of it has no codec. `trace` is the traceback of an error of its code.
    """

    number: int
    outputs: Values = Field(default_factory=Values)
    kept: dict[str, int] = Field(default_factory=dict)
    error: ErrorInfo | None = None
    trace: str = ""
    is_undone: bool = False
    is_misplaced: bool = False
    work: RemoteWork | None = None


class NodeCluster(ServiceInterface, name="nodeCluster", version=1):
    """Runs nodes elsewhere than in the host's process."""

    @reads
    async def takes(self) -> Literal["none", "placed", "pure"]:
        """Return for which nodes it is there: none, since no cluster is set up; those that a workflow places there; or
        all whose outputs depend on nothing but their inputs."""

    @acts("nodeCluster:run", "Run nodes of workflows on the cluster that is set up.")
    def run(self, group: RemoteGroup, *, call: CallContext | None = None) -> AsyncIterator[list[RemoteResult]]:
        """Run a group; yields the result of each node once, as they end. Closing it cancels what has not ended."""

    @acts("nodeCluster:run", "Run nodes of workflows on the cluster that is set up.")
    async def release(self, pass_id: str, *, call: CallContext | None = None) -> None:
        """Forget the values of a pass, which are not asked for any more."""


NODE_CLUSTER = ServiceKey(NodeCluster)
