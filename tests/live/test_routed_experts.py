"""Routed experts of each token equal those of the model in Transformers.

The model is a Qwen3-MoE of random weights. SGLang's own code routes and records; only
the top-k kernel is the one in PyTorch.
"""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentcore_verify.server import Server
from tests.helpers import tiny_moe_model
from tests.helpers.endpoints import (
    CHAT,
    COMPLETIONS,
    answers,
    body_to,
    refused,
    send,
)
from tests.helpers.servers import (
    MODES,
    Launch,
    Trees,
    held_requests,
    in_one_mode,
    wait_until_held,
)
from tests.helpers.tiny_moe_model import LAYERS, TOP_K

ENABLED = "--enable-return-routed-experts"

PATHS = (CHAT, COMPLETIONS)
PROMPTS = {path: body_to(path, 24) for path in PATHS}
SAMPLED = {"temperature": 1, "ignore_eos": True}
GREEDY = {**SAMPLED, "temperature": 0}

Experts = np.ndarray[Any, Any]


@dataclass
class Choice:
    token_ids: list[int] = field(default_factory=list)
    """The prompt's and the completion's."""
    experts: str | None = None
    start: int | None = None
    finish: str | None = None

    def take(self, part: dict[str, Any]) -> None:
        """Add a part of the choice; none may come after the experts."""
        assert self.finish is None, part
        self.token_ids += part.get("prompt_token_ids", []) + part.get("token_ids", [])
        self.experts = part.get("routed_experts")
        self.start = part.get("routed_experts_start_len")
        self.finish = part["finish_reason"]
        assert self.finish or self.experts is self.start is None, part


@pytest.fixture(scope="module")
def model(scripted_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("moe") / "few"
    return tiny_moe_model.make(scripted_model, folder, n_experts=8)


@pytest.fixture(scope="module", params=["default", "stream-output", "two-workers"])
def routing(
    request: pytest.FixtureRequest, trees: Trees, launch: Launch, model: Path
) -> Iterator[Server]:
    args = MODES[request.param]
    with launch(trees.patched, ENABLED, *args, model=model) as running:
        yield running


def in_modes(*modes: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("routing", modes, indirect=True)


def asked(server: Server, path: str, stream: bool = False, **body: Any) -> list[Choice]:
    """Ask for token IDs and experts; return the choices."""
    body = {**PROMPTS[path], **SAMPLED, "return_routed_experts": True, **body}
    chunks = answers(server, path, stream, **{"return_token_ids": True, **body})
    choices: dict[int, Choice] = {}
    for chunk in chunks:
        for part in chunk["choices"]:
            choices.setdefault(part["index"], Choice()).take(part)
    assert all(choice.finish for choice in choices.values()), chunks
    return [choices[index] for index in sorted(choices)]


def read(encoded: str | None, format: str | None = None) -> Experts:
    """Decode experts: by token, layer and rank."""
    assert encoded is not None
    data = base64.b64decode(encoded, validate=True)
    if format == "npy":
        array: Experts = np.load(io.BytesIO(data), allow_pickle=False)
        return array
    return np.frombuffer(data, np.int32).reshape(-1, LAYERS, TOP_K)


def assert_routed(
    model: Path, experts: Experts, token_ids: list[int], start: int
) -> None:
    """Check that the rows of experts from `start` on are the model's."""
    expected = tiny_moe_model.routes(model, token_ids)[start:-1]
    assert experts.shape == expected.shape == (len(expected), LAYERS, TOP_K)
    same = (np.sort(experts) == expected).all(axis=-1)
    # The scores of two experts may differ only in the last digits.
    assert not same.size or same.mean() > 0.97, (same, token_ids, start)


def assert_choice(
    model: Path, choice: Choice, start: int, format: str | None = None
) -> None:
    assert choice.start == start
    experts = read(choice.experts, format)
    assert experts.dtype == (np.uint8 if format else np.int32)
    assert_routed(model, experts, choice.token_ids, start)


SEVERAL: dict[str, tuple[str, dict[str, Any], int]] = {
    "chat": (CHAT, {"n": 3, "logprobs": True}, 3),
    "completions": (COMPLETIONS, {"n": 3}, 3),
    "prompts": (COMPLETIONS, {"prompt": [[*range(40, 44)], [*range(50, 57)]]}, 2),
    "only the prompt": (COMPLETIONS, {"prompt": [*range(40, 44)], "max_tokens": 1}, 1),
}
"""An endpoint, what it is asked, and how many choices the answer has."""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "more", "n_choices"), SEVERAL.values(), ids=SEVERAL)
def test_each_choice_has_its_own_experts(
    routing: Server,
    model: Path,
    path: str,
    more: dict[str, Any],
    n_choices: int,
    stream: bool,
) -> None:
    for start, format in ((0, None), (4, "npy")):
        asking = {
            "routed_experts_start_len": start,
            "routed_experts_format": format,
            "return_meta_info": not stream,
        }
        choices = asked(routing, path, stream, **asking, **more)
        assert len({tuple(choice.token_ids) for choice in choices}) == n_choices
        for choice in choices:
            assert_choice(model, choice, start, format)


def test_experts_do_not_depend_on_return_token_ids(routing: Server) -> None:
    """The response has no more token IDs than before, and SGLang's `sglext`."""
    for path, stream in product(PATHS, (False, True)):
        [traced] = asked(routing, path, stream, **GREEDY)
        body = {**PROMPTS[path], **GREEDY, "return_routed_experts": True}
        for flags in ({}, {"return_token_ids": False}):
            events = answers(routing, path, stream, **body, **flags)
            parts = [part for event in events for part in event["choices"]]
            found = None if flags else traced.experts
            assert parts[-1].get("routed_experts") == found
            has_ids = path == CHAT and not flags
            assert any("token_ids" in part for part in parts) is has_ids
            [sglext] = [event["sglext"] for event in events if event.get("sglext")]
            assert sglext["routed_experts"] == traced.experts


@pytest.mark.parametrize("stream", [False, True])
def test_generate_honours_and_returns_the_start(
    routing: Server, model: Path, stream: bool
) -> None:
    prompts = [[60, 61, 62, 63, 64], [70, 71, 72, 73, 74, 75]]
    answer: Any = answers(
        routing,
        "/generate",
        stream,
        input_ids=prompts,
        sampling_params={"max_new_tokens": 1},
        return_routed_experts=True,
        routed_experts_start_len=3,
    )
    outputs = answer if stream else answer[0]
    for position, prompt in enumerate(prompts):
        [meta_info] = [
            output["meta_info"]
            for number, output in enumerate(outputs)
            if output.get("index", number) == position
        ]
        assert meta_info["routed_experts_start_len"] == 3
        # The last token has no experts.
        assert_routed(model, read(meta_info["routed_experts"]), [*prompt, 0], 3)


def test_requests_with_and_without_experts_run_together(
    routing: Server, model: Path
) -> None:
    """In unpatched SGLang up to 0.5.12, experts are mixed up, or a worker crashes."""

    def one(number: int) -> list[Choice]:
        return asked(
            routing,
            PATHS[number % 2],
            stream=number % 5 < 3,
            return_routed_experts=number % 3 != 0,
            max_tokens=10 + 3 * number,
            routed_experts_start_len=number % 7,
        )

    with ThreadPoolExecutor(24) as pool:
        for number, choices in enumerate(pool.map(one, range(24))):
            [choice] = choices
            if number % 3:
                assert_choice(model, choice, number % 7)
            else:
                assert choice.experts is None and choice.start is None
    assert held_requests(routing) == []


# A value that each endpoint refuses; tests/unit has a table of more.
BAD: tuple[tuple[str, dict[str, Any]], ...] = (
    (CHAT, {"routed_experts_start_len": 10**6}),
    (COMPLETIONS, {"routed_experts_format": ["npy"]}),
    ("/generate", {"input_ids": [60, 61, 62], "routed_experts_start_len": -1}),
)


@in_modes("default")
def test_bad_values_are_refused_by_name(routing: Server) -> None:
    for (path, bad), stream in product(BAD, (False, True)):
        body = {**PROMPTS.get(path, {}), "return_routed_experts": True, **bad}
        with refused([*bad][-1]):
            answers(routing, path, stream, **body)
    assert held_requests(routing) == []


@pytest.mark.usefixtures("slow_engine")
@in_modes("default", "stream-output")
@pytest.mark.parametrize("pause", ["retract", "abort"])
def test_a_pause_does_not_change_the_experts(
    routing: Server, model: Path, pause: str
) -> None:
    with ThreadPoolExecutor() as pool:
        asking = [
            pool.submit(asked, routing, path, stream=True, max_tokens=80, rid=path)
            for path in PATHS
        ]
        wait_until_held(routing, *PATHS)
        time.sleep(0.3)
        assert send(routing, "/pause_generation", mode=pause).status_code == 200
        assert send(routing, "/continue_generation").status_code == 200
        for answer in asking:
            [choice] = answer.result(60)
            is_aborted = choice.finish == "abort"
            assert is_aborted is (pause == "abort")
            # An aborted answer has the experts of its tokens, or none.
            if choice.experts is not None or not is_aborted:
                assert_choice(model, choice, 0)


@in_one_mode
def test_a_server_that_does_not_record_experts_omits_them(server: Server) -> None:
    for path, stream in product(PATHS, (False, True)):
        [choice] = asked(server, path, stream, routed_experts_format="npy")
        assert choice.experts is None and choice.start is None
        assert len(choice.token_ids) > 24
