"""The JSON documents of the commands: each key that scripts may rely on, and its type.

A value that may be null has `None` in its type; an enum stands for its value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

from agentcore_patches.errors import FailureKind
from agentcore_patches.results import PatchState
from agentcore_patches.state.snapshot import FileState
from agentcore_verify.audit.results import State
from agentcore_verify.results import Outcome


class LeftoversDocument(TypedDict):
    """A folder of an uninstalled SGLang that still has agentcore-patch's files."""

    folder: str
    hides: bool
    kept: list[str]
    problem: str | None


class SGLangDocument(TypedDict):
    """The install that a command worked on."""

    path: str
    version: str
    release: str | None
    found: str
    editable: bool
    leftovers: list[LeftoversDocument]


class FileDocument(TypedDict):
    """The state of a file."""

    path: str
    state: FileState
    pristine: bool | None


class FileChangeDocument(TypedDict):
    """Change of a file by `apply`."""

    path: str
    applied: int
    present: int
    action: Literal["patched", "restored", "unchanged"]
    pristine: bool | None
    diff: str


class EditDocument(TypedDict):
    """Outcome of one edit in a file."""

    patch: str
    name: str
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
    patched_as: str | None
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
    recovered: None
    sglang_change: str | None
    rust_server: bool


class RevertDocument(TypedDict):
    """`revert --json`"""

    dry_run: bool
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
    state: PatchState | None


class ListDocument(TypedDict):
    """`list --json`"""

    sglang: SGLangDocument | None
    reason: str | None
    sglang_versions: list[str]
    patches: list[PatchDocument]


class EditInfoDocument(TypedDict):
    """Change that patches make at one place, in a range of releases."""

    name: str
    why: str
    upstream: str
    ends: str
    patches: list[str]
    since: str
    until: str
    file: str
    scope: str
    change: str


class EditsDocument(TypedDict):
    """`list --edits --json`"""

    edits: list[EditInfoDocument]


class RowDocument(TypedDict):
    """One position of two sequences; empty on the side that is shorter."""

    position: int
    left: str
    right: str
    same: bool


class DifferenceDocument(TypedDict):
    """Two sequences around the first position where they differ."""

    left: str
    right: str
    rows: list[RowDocument]


class CheckDocument(TypedDict):
    """The result of one check."""

    name: str
    outcome: Outcome
    message: str
    advice: str
    difference: DifferenceDocument | None
    seconds: float
    left_out: list[str]


class FailureDocument(TypedDict):
    """Failure of a command."""

    kind: FailureKind
    exit_code: int
    message: str
    hint: str
    details: list[str]
    page: str


class VersionsDocument(TypedDict):
    """The versions that took part in a run of `verify`."""

    agentcore_patch: str
    sglang: str | None
    patched_by: str | None


class ReportDocument(TypedDict):
    """`verify --json`"""

    passed: bool
    exit_code: int
    time: str
    versions: VersionsDocument
    patches: list[str] | None
    device: str | None
    target: str
    model: str
    server_args: list[str]
    strict: bool
    seconds: float
    startup: float | None
    log: str | None
    error: FailureDocument | None
    notes: list[str]
    checks: list[CheckDocument]


class ExampleDocument(TypedDict):
    """The first place where a finding occurs."""

    place: str
    session: str | None
    choice: int
    seen: str


class FindingDocument(TypedDict):
    """One finding of an audit."""

    name: str
    state: State
    count: int
    of: int
    unit: str
    tokens: int | None
    of_tokens: int | None
    causes: Mapping[str, int]
    first: ExampleDocument | None
    meaning: str
    remedy: str
    page: str
    share: float


class AuditDocument(TypedDict):
    """`audit --json`"""

    files: list[str]
    turns: int
    failed: int
    answers: int
    tokens: int
    compared: int
    unmatched: int
    tokenizer: str | None
    max_drift: float
    seconds: float
    notes: list[str]
    findings: list[FindingDocument]
    clean: bool
    exit_code: int


class NodeDocument(TypedDict):
    """One node of a Ray cluster; `before` is from before `apply`, `status` from the end."""

    node_id: str
    address: str
    hostname: str
    before: StatusDocument | None
    applied: ApplyDocument | None
    status: StatusDocument | None
    error: str | None
    python: str | None
    complete: bool
    changed: bool


class RayDocument(TypedDict):
    """`apply --ray --json` and `status --ray --json`"""

    complete: bool
    changed: bool
    nodes: list[NodeDocument]


class ErrorDocument(TypedDict):
    """Any command that fails, `verify` included."""

    error: FailureDocument
