"""Non-streaming responses equal the unpatched ones, on the fast and slow path."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from agentcore_patches.patches.releases import is_between
from agentcore_verify import cpu
from tests.helpers.bytecode import Bytecode
from tests.helpers.servers import Trees
from tests.live import answers_in_sglang

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

Answers = dict[str, tuple[int, dict[str, str], str, bool, int]]
"""Status, headers, body, and the ways taken, of each case."""


@pytest.fixture(scope="module")
def answers(
    sglang_python: Path,
    trees: Trees,
    bytecode: Bytecode,
    tmp_path_factory: pytest.TempPathFactory,
) -> list[Answers]:
    """Responses of the application in the patched and in the unpatched tree."""
    file = tmp_path_factory.mktemp("answers") / "answers.json"
    found = []
    for tree in (trees.patched, trees.vanilla):
        path = os.pathsep.join(map(str, (tree, cpu.SITE, BENCHMARKS)))
        done = subprocess.run(
            [sglang_python, answers_in_sglang.__file__, file],
            env={**os.environ, **cpu.ENV, **bytecode.env, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        found.append(json.loads(file.read_text()))
    return found


def without_chance(text: str) -> str:
    """Remove the values that differ from request to request."""
    text = re.sub(r'"created":\d+', '"created":0', text)
    return re.sub(r'"call_[0-9a-f]{24}"', '"call_"', text)


NAMES = [f"{path}: {name}" for name, path, _, _ in answers_in_sglang.cases()]


@pytest.mark.parametrize("name", NAMES)
def test_a_response_equals_the_unpatched_one(answers: list[Answers], name: str) -> None:
    (status, headers, body, *_), vanilla = (one[name] for one in answers)
    assert status == vanilla[0]
    if body == vanilla[2] or not name.startswith("/generate"):
        assert without_chance(body) == without_chance(vanilla[2])
        assert headers == vanilla[1]
    else:
        assert repr(json.loads(body)) == repr(json.loads(vanilla[2]))
        length = {"content-length": ""}
        assert headers | length == vanilla[1] | length


@pytest.mark.parametrize("name", [name for name in NAMES if "bad" not in name])
def test_good_values_take_the_fast_path(
    answers: list[Answers], name: str, release: str
) -> None:
    last = "0.5.9" if name.startswith("/generate") else "0.5.21"
    is_by_encoder = is_between(release, "", last)
    patched, vanilla = answers
    status, _, body, encoded, n_models = patched[name]
    if status != 200:
        return
    assert vanilla[name][3] is is_by_encoder
    assert encoded is (is_by_encoder and "left to FastAPI" in name)
    if name.startswith("/v1/chat"):
        # The first token of each choice.
        assert n_models <= len(json.loads(body)["choices"])


def test_bad_values_take_the_slow_path(answers: list[Answers], release: str) -> None:
    patched, _ = answers
    assert patched["/v1/chat/completions: logprobs, bad: an integer"][4] == 1 + 5
    # Pydantic can write NaN, FastAPI's encoder cannot.
    by_encoder = is_between(release, "", "0.5.21")
    for name in ("NaN", "infinite"):
        n_models = patched[f"/v1/chat/completions: logprobs, bad: {name}"][4]
        assert n_models == (1 + 5 if by_encoder else 1)
    if is_between(release, "", "0.5.9"):
        for name in ("NaN", "infinite", "half a surrogate pair"):
            assert patched[f"/generate: logprobs, bad: {name}"][3]
            assert patched[f"/generate: logprobs, bad: {name}"][0] == 500
    by_fork = patched[f"/v1/chat/completions: {answers_in_sglang.FORK}"]
    assert by_fork[2].count(" of a fork") == by_fork[4] - 1 == 4
