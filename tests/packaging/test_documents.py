"""Run every block of every document; `documents` says how."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from agentcore_verify.server import Server
from tests.helpers.forking import ForkServer
from tests.helpers.servers import Launch, Trees
from tests.packaging.documents import Document
from tests.packaging.fences import blocks
from tests.packaging.scratch import Ran, Scratch

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    path
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    if any(blocks(path.read_text()))
]

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def live(launch: Launch, trees: Trees) -> Iterator[Server]:
    """A patched server."""
    with launch(trees.patched) as server:
        yield server


@pytest.fixture(scope="session")
def ran() -> dict[str, Ran]:
    """The run of `verify` that documents share."""
    return {}


@pytest.fixture
def document(
    request: pytest.FixtureRequest,
    wheel_scratch: Callable[[], Scratch],
    fork_server: ForkServer,
    checkout: Callable[[Path], Path],
    scripted_model: Path,
    tree: Path,
    ran: dict[str, Ran],
) -> Iterator[Document]:
    """An environment with SGLang, in which a document is run."""
    scratch = wheel_scratch()

    def server() -> str:
        live: Server = request.getfixturevalue("live")
        return live.base_url

    made = Document(
        scratch,
        tree,
        fork_server,
        scripted_model,
        server,
        {
            "/sgl-workspace/sglang/python": cache(
                lambda: str(checkout(scratch.folder / "sgl-workspace/sglang/python"))
            ),
            "/opt/venv": lambda: str(scratch.venv),
        },
        ran,
    )
    yield made
    made.stop()


@pytest.mark.parametrize(
    "path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)
def test_every_block_works_as_shown(path: Path, document: Document) -> None:
    failures = document.failures(path.read_text())
    assert not failures, "\n\n".join(failures)


def test_the_training_page_has_the_figures_of_its_run(
    sglang_python: Path, tree: Path
) -> None:
    page = ROOT / "docs/explanation/training.md"
    folder = tree / "docs/explanation"
    ran = subprocess.run(
        [sglang_python, tree / "docs/training.py", "--draw", "--folder", folder],
        check=True,
        capture_output=True,
        text=True,
    )
    assert (folder / "training.png").stat().st_size > 10_000
    table, _, _ = ran.stdout.partition("\n\n")
    assert table in page.read_text("utf-8")


def test_the_runner_finds_what_is_wrong(document: Document) -> None:
    text = (ROOT / "tests/packaging/wrong.md").read_text()
    rows = [int(re.findall(r"\d+", found)[0]) for found in document.failures(text)]
    assert rows == [block.row for block in blocks(text)][1:]
