"""What scripts see: one JSON document for each command, of the types defined here.

A value that may be null has `None` in its type; an enum stands for its value. Keys are
only ever added. The attributes of the same names in `results` say what each key means.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

from agentcore_patches.errors import FailureKind
from agentcore_patches.failure import Failure
from agentcore_patches.install import Install
from agentcore_patches.patches.versions import SUPPORTED_VERSIONS
from agentcore_patches.results import (
    ApplyResult,
    FileStatus,
    PatchInfo,
    PatchState,
    RevertResult,
    StatusResult,
)
from agentcore_patches.state.snapshot import FileState

if TYPE_CHECKING:
    from agentcore_patches.cluster.results import NodeResult


class SGLangDocument(TypedDict):
    """The install that a command was about."""

    path: str
    version: str
    release: str | None
    found: str
    editable: bool


class FileDocument(TypedDict):
    """The state of a file."""

    path: str
    state: FileState
    pristine: bool | None


class FileChangeDocument(TypedDict):
    """What `apply` did to a file."""

    path: str
    applied: int
    present: int
    action: Literal["patched", "restored", "unchanged"]
    pristine: bool | None
    diff: str


class EditDocument(TypedDict):
    """What one edit found in a file."""

    patch: str
    file: str
    scope: str
    description: str
    outcome: Literal["applied", "present"]


class ApplyDocument(TypedDict):
    """`apply --json`"""

    sglang: SGLangDocument
    patches: list[str]
    removed: list[str]
    changed: bool
    dry_run: bool
    recorded: bool
    recovered: str | None
    pending: str | None
    sglang_change: str | None
    files: list[FileChangeDocument]
    edits: list[EditDocument]


class StatusDocument(TypedDict):
    """`status --json`"""

    sglang: SGLangDocument
    patches: Mapping[str, PatchState]
    wanted: list[str]
    complete: bool
    applied_by: str | None
    recorded: bool
    files: list[FileDocument]
    pending: str | None
    recovered: str | None
    sglang_change: str | None


class RevertDocument(TypedDict):
    """`revert --json`"""

    sglang: SGLangDocument
    patches: list[str]
    files: list[FileDocument]
    changed: bool
    recovered: str | None
    sglang_change: str | None


class PatchDocument(TypedDict):
    """A patch that can be applied."""

    name: str
    summary: str
    files: list[str]


class ListDocument(TypedDict):
    """`list --json`"""

    sglang_versions: list[str]
    patches: list[PatchDocument]


class NodeDocument(TypedDict):
    """One node of a Ray cluster; `before` is from before `apply`, `status` from the end."""

    node_id: str
    address: str
    hostname: str
    before: StatusDocument | None
    applied: ApplyDocument | None
    status: StatusDocument | None
    error: str | None


class RayDocument(TypedDict):
    """`apply --ray --json` and `status --ray --json`"""

    complete: bool
    changed: bool
    nodes: list[NodeDocument]


class FailureDocument(TypedDict):
    """Why a command failed."""

    kind: FailureKind
    exit_code: int
    message: str


class ErrorDocument(TypedDict):
    """Any command that fails, `verify` included."""

    error: FailureDocument


class JsonOutput:
    """One document for each thing that a command may have to tell."""

    def applied(self, result: ApplyResult) -> str:
        return _dump(_applied(result))

    def status(self, result: StatusResult) -> str:
        return _dump(_status(result))

    def reverted(self, result: RevertResult) -> str:
        document: RevertDocument = {
            "sglang": _sglang(result.install),
            "patches": list(result.patches),
            "files": _files(result.files),
            "changed": result.changed,
            "recovered": result.recovered,
            "sglang_change": result.sglang_change,
        }
        return _dump(document)

    def patches(self, patches: Sequence[PatchInfo]) -> str:
        document: ListDocument = {
            "sglang_versions": list(SUPPORTED_VERSIONS),
            "patches": [
                {
                    "name": patch.name,
                    "summary": patch.summary,
                    "files": list(patch.files),
                }
                for patch in patches
            ],
        }
        return _dump(document)

    def applied_on_ray(self, results: Sequence[NodeResult]) -> str:
        return _dump(_on_ray(results))

    def status_on_ray(self, results: Sequence[NodeResult]) -> str:
        return _dump(_on_ray(results))

    def failure(self, failure: Failure) -> str:
        document: ErrorDocument = {
            "error": {
                "kind": failure.kind,
                "exit_code": failure.exit_code,
                "message": failure.message,
            }
        }
        return _dump(document)


def _applied(result: ApplyResult) -> ApplyDocument:
    return {
        "sglang": _sglang(result.install),
        "patches": list(result.patches),
        "removed": list(result.removed),
        "changed": result.changed,
        "dry_run": result.dry_run,
        "recorded": result.recorded,
        "recovered": result.recovered,
        "pending": result.pending,
        "sglang_change": result.sglang_change,
        "files": [
            {
                "path": file.path,
                "applied": file.applied,
                "present": file.present,
                "action": file.action,
                "pristine": file.pristine,
                "diff": file.diff,
            }
            for file in result.files
        ],
        "edits": [
            {
                "patch": edit.patch,
                "file": edit.file,
                "scope": edit.scope,
                "description": edit.description,
                "outcome": edit.outcome,
            }
            for edit in result.edits
        ],
    }


def _status(result: StatusResult) -> StatusDocument:
    return {
        "sglang": _sglang(result.install),
        "patches": result.patches,
        "wanted": list(result.wanted),
        "complete": result.complete,
        "applied_by": result.applied_by,
        "recorded": result.recorded,
        "files": _files(result.files),
        "pending": result.pending,
        # `status` writes nothing.
        "recovered": None,
        "sglang_change": result.sglang_change,
    }


def _on_ray(results: Sequence[NodeResult]) -> RayDocument:
    return {
        "complete": all(result.complete for result in results),
        "changed": any(result.changed for result in results),
        "nodes": [
            {
                "node_id": result.node.node_id,
                "address": result.node.address,
                "hostname": result.node.hostname,
                "before": _status(result.before) if result.before else None,
                "applied": _applied(result.applied) if result.applied else None,
                "status": _status(result.status) if result.status else None,
                "error": result.error,
            }
            for result in results
        ],
    }


def _sglang(install: Install) -> SGLangDocument:
    return {
        "path": str(install.package),
        "version": install.version,
        "release": install.release,
        "found": install.found,
        "editable": install.editable,
    }


def _files(files: Sequence[FileStatus]) -> list[FileDocument]:
    return [
        {"path": file.path, "state": file.state, "pristine": file.pristine}
        for file in files
    ]


def _dump(document: Mapping[str, object]) -> str:
    return json.dumps(document, indent=2)
