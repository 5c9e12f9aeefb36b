"""A thousand damaged or forged files in the state folder."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from agentcore_patches import api
from agentcore_patches.disk.filesystem import FOLDER
from agentcore_patches.errors import AgentcoreError
from tests.helpers.documents import places_in
from tests.helpers.trees import Photograph, photograph
from tests.hostile.planting import signed
from tests.unit.small_sglang import SOURCES, kill_apply

FILES = 1000
COMMANDS: tuple[Callable[..., object], ...] = (
    *(api.status, api.apply, partial(api.apply, dry_run=True)),
    *(partial(api.apply, extras=["beta"]), api.revert, partial(api.revert, force=True)),
)
JUNK: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**70, 1.5, float("nan"), float("inf"), "", "x", "0" * 64),
    *("../../outside", "/etc/passwd", "srt/../../outside/file"),
    *("\x1b[31m", "\0", "\ud800"),
    *([], {}, [None], {"a": {}}, [[[[]]]], "srt/models.py", "srt/agentcore/evil.py"),
    "x" * 100_000,
)


def damaged(text: bytes, chance: random.Random) -> bytes:
    """Damage bytes or values of a document, sometimes with a valid checksum."""
    kind = chance.randrange(6)
    if kind == 0:
        return text[: chance.randrange(len(text))]
    if kind == 1:
        spoiled = bytearray(text)
        for _ in range(chance.randrange(1, 9)):
            spoiled[chance.randrange(len(spoiled))] = chance.randrange(256)
        return bytes(spoiled)
    if kind == 2:
        return chance.choice(
            [b"", b"null", b"[]", b"5", b"[" * 100_000, b'{"a":' * 50_000, b"\xff\xfe"]
        )
    document = json.loads(text)
    for _ in range(chance.randrange(1, 3)):
        container, key = chance.choice(places_in(document))
        match chance.randrange(4):
            case 0 if isinstance(container, dict):
                container.pop(key, None)
            case 1 if isinstance(container, dict):
                container[str(chance.choice(JUNK))] = container.pop(key, None)
            case 2:
                other, name = chance.choice(places_in(document))
                container[key] = json.loads(json.dumps(other[name]))
            case _:
                container[key] = chance.choice(JUNK)
    return signed(document) if kind > 3 else json.dumps(document).encode()


def models(package: Path) -> list[tuple[Path, str]]:
    """Trees with each kind of state file: a record, and a killed command's journals."""
    found = []
    for name, prepare in (
        ("state.json", lambda tree: api.apply(sglang_dir=tree)),
        ("prepared.json", lambda tree: kill_apply(tree, "committed.json")),
        ("committed.json", lambda tree: kill_apply(tree, "models.py")),
    ):
        tree = package.parent.parent / name / "sglang"
        shutil.copytree(package.parent, tree.parent)
        prepare(tree)
        assert (tree / FOLDER / name).exists()
        found.append((tree, name))
    return found


def sources(package: Path) -> dict[str, bytes]:
    return {path: (package / path).read_bytes() for path in SOURCES}


def test_damaged_state_files_are_refused_or_make_no_difference(
    package: Path, tmp_path: Path
) -> None:
    chance = random.Random(30)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("theirs")
    trees = models(package)
    patched = sources(trees[0][0])
    whole = (SOURCES, patched)
    both = Path(shutil.copytree(package, tmp_path / "both"))
    api.apply(sglang_dir=both, extras=["beta"])
    with_beta = sources(both)
    everything: Photograph = photograph(outside)
    outcomes: Counter[str] = Counter()
    tree = tmp_path / "tree" / "sglang"
    for _ in range(FILES):
        model, name = chance.choice(trees)
        shutil.rmtree(tree.parent, ignore_errors=True)
        shutil.copytree(model.parent, tree.parent)
        file = tree / FOLDER / name
        text = damaged(file.read_bytes(), chance)
        file.write_bytes(text)
        before = sources(tree)
        try:
            chance.choice(COMMANDS)(sglang_dir=tree)
            outcomes["taken"] += 1
        except AgentcoreError as error:
            assert "\x1b" not in str(error) and error.exit_code in (4, 5), text
            assert sources(tree) == before, text
            outcomes["refused"] += 1
        assert sources(tree) in (*whole, with_beta), text
        assert photograph(outside) == everything
        extra = {str(p.relative_to(tree)) for p in (tree / "srt").rglob("*.py")}
        assert extra == set(SOURCES) - {"version.py"}, text
    assert outcomes["refused"] > FILES // 2 and outcomes["taken"] > 20
