"""Results of `apply` and `status` for the nodes of a Ray cluster.

Apart from `results`, as each class takes time at every start of the command.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentcore_patches.results import ApplyResult, StatusResult


@dataclass(frozen=True)
class RayNode:
    """A node of a Ray cluster, as Ray names it."""

    node_id: str
    address: str
    hostname: str


@dataclass(frozen=True)
class NodeResult:
    """State and changes of one node of a Ray cluster; a node sends all but `node`.

    Attributes:
        node: the node.
        before: what was in place before `apply`; None for `status`.
        applied: what `apply` did; None if it failed, and for `status`.
        status: what is in place now; None if unknown.
        error: why the node failed, in one line; None if it did not.
        python: interpreter of the Ray worker that answered; None if none did.
    """

    node: RayNode
    before: StatusResult | None = None
    applied: ApplyResult | None = None
    status: StatusResult | None = None
    error: str | None = None
    python: str | None = None

    @property
    def complete(self) -> bool:
        """True if everything that was applied there is in place and up to date."""
        return self.error is None and self.status is not None and self.status.complete

    @property
    def changed(self) -> bool:
        """True if any file was changed there; in a dry run, would be."""
        return self.applied is not None and self.applied.changed


def are_complete(results: Sequence[NodeResult]) -> bool:
    """True if everything is in place on all nodes, and the same on each."""
    return all(result.complete for result in results) and are_alike(results)


def are_alike(results: Sequence[NodeResult]) -> bool:
    """True if the core and the extras are the same on all nodes that answered.

    A server whose ranks have different ones does not start.
    """
    return len({result.status.patches for result in results if result.status}) < 2
