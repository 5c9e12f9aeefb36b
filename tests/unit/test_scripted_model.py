"""The script's properties, and the training and caching of the model."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentcore_patches.errors import ServerError
from agentcore_verify.scripted_model import (
    ensure_scripted_model,
)


def fake_python(folder: Path, body: str) -> Path:
    """Write a program that is run as `PYTHON SCRIPT OUT` and appends to `runs`."""
    fake = folder / "python"
    fake.write_text(f"#!/bin/sh\necho run >> {folder / 'runs'}\n{body}\n")
    fake.chmod(0o755)
    return fake


def test_concurrent_callers_train_the_model_once(tmp_path: Path) -> None:
    python = fake_python(tmp_path, 'sleep 0.2; touch "$2/model"')
    cache = tmp_path / "cache"
    with ThreadPoolExecutor(4) as pool:
        [found] = set(
            pool.map(lambda _: ensure_scripted_model(python, cache), range(4))
        )
    assert (found / "model").exists()
    assert (tmp_path / "runs").read_text() == "run\n"


def test_leftovers_of_a_killed_call_are_not_used_as_a_model(tmp_path: Path) -> None:
    python = fake_python(tmp_path, 'test -z "$(ls "$2")" && touch "$2/model"')
    cache = tmp_path / "cache"
    model = ensure_scripted_model(python, cache)
    model.rename(model.with_name(f"{model.name}.making"))
    assert (ensure_scripted_model(python, cache) / "model").exists()
    assert (tmp_path / "runs").read_text() == "run\nrun\n"


def test_a_failure_shows_the_end_of_the_output_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    python = fake_python(tmp_path, "echo 'No module named torch' >&2; exit 3")
    with pytest.raises(ServerError, match=r"exit 3(.|\n)*No module named torch"):
        ensure_scripted_model(python, tmp_path / "cache")
    assert all(path.is_file() for path in (tmp_path / "cache").iterdir())
    with pytest.raises(ServerError, match="no-such-python"):
        ensure_scripted_model(tmp_path / "no-such-python", tmp_path / "cache")
