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
from tests.helpers.endpoints import CHAT, COMPLETIONS, answers, refused, send
from tests.helpers.servers import Launch, Trees, held, held_requests, in_one_mode
from tests.helpers.tiny_moe_model import LAYERS, TOP_K
from tests.helpers.waiting import wait_until
from tests.live.test_unchanged import assert_same

ENABLED = "--enable-return-routed-experts"

WAYS: dict[str, tuple[str, ...]] = {
    "default": (),
    "stream-output": ("--stream-output",),
    "two-workers": ("--tokenizer-worker-num", "2"),
}
PATHS = (CHAT, COMPLETIONS)
QUESTION = {"messages": [{"role": "user", "content": "Say hello to the world."}]}
PROMPTS: dict[str, dict[str, Any]] = {
    CHAT: QUESTION,
    COMPLETIONS: {"prompt": "Say hello to the world, and then to me."},
}
SAMPLED = {"temperature": 1, "max_tokens": 24, "ignore_eos": True}
GREEDY = {**SAMPLED, "temperature": 0}

Experts = np.ndarray[Any, Any]


@dataclass
class Choice:
    token_ids: list[int] = field(default_factory=list)
    prompt_token_ids: list[int] = field(default_factory=list)
    experts: str | None = None
    start: int | None = None
    finish: str | None = None

    def take(self, part: dict[str, Any]) -> None:
        """Add a part of the choice; none may come after the experts."""
        assert self.finish is None, part
        self.token_ids += part.get("token_ids", [])
        self.prompt_token_ids += part.get("prompt_token_ids", [])
        self.experts = part.get("routed_experts")
        self.start = part.get("routed_experts_start_len")
        self.finish = part["finish_reason"]
        assert self.finish or self.experts is self.start is None, part


@pytest.fixture(scope="module")
def model(scripted_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("moe") / "few"
    return tiny_moe_model.make(scripted_model, folder, n_experts=8)


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def routing(way: str, trees: Trees, launch: Launch, model: Path) -> Iterator[Server]:
    with launch(trees.patched, ENABLED, *WAYS[way], model=model) as running:
        yield running


in_one_way = pytest.mark.parametrize("way", ["default"], indirect=True)


@pytest.fixture(scope="module")
def unpatched(way: str, trees: Trees, launch: Launch, model: Path) -> Iterator[Server]:
    with launch(trees.vanilla, ENABLED, *WAYS[way], model=model) as running:
        yield running


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
    if len(expected):
        same = (np.sort(experts) == expected).all(axis=-1).mean()
        # The scores of two experts may differ only in the last digits.
        assert same > 0.97, (same, token_ids, start)


def assert_choice(
    model: Path, choice: Choice, start: int, format: str | None = None
) -> None:
    assert choice.start == start
    experts = read(choice.experts, format)
    assert experts.dtype == (np.uint8 if format else np.int32)
    token_ids = [*choice.prompt_token_ids, *choice.token_ids]
    assert_routed(model, experts, token_ids, start)


SEVERAL: dict[str, tuple[str, dict[str, Any], int]] = {
    "chat": (CHAT, {"n": 3}, 3),
    "completions": (COMPLETIONS, {"n": 3}, 3),
    "prompts": (COMPLETIONS, {"prompt": [[*range(40, 44)], [*range(50, 57)]]}, 2),
    "logprobs": (CHAT, {"logprobs": True}, 1),
}
"""An endpoint, what it is asked, and how many choices the answer has."""


@pytest.mark.parametrize(("start", "format"), [(0, None), (4, "npy")])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "more", "n_choices"), SEVERAL.values(), ids=SEVERAL)
def test_each_choice_has_its_own_experts(
    routing: Server,
    model: Path,
    path: str,
    more: dict[str, Any],
    n_choices: int,
    stream: bool,
    start: int,
    format: str,
) -> None:
    choices = asked(
        routing,
        path,
        stream=stream,
        routed_experts_start_len=start,
        routed_experts_format=format,
        return_meta_info=not stream,
        **more,
    )
    assert len({tuple(choice.token_ids) for choice in choices}) == n_choices
    for choice in choices:
        assert_choice(model, choice, start, format)


def test_experts_do_not_need_return_token_ids(routing: Server) -> None:
    """The response has no more token IDs than before, either."""
    for path, stream in product(PATHS, (False, True)):
        [traced] = asked(routing, path, stream, **GREEDY)
        [choice] = asked(routing, path, stream, **GREEDY, return_token_ids=None)
        assert (choice.experts, choice.start) == (traced.experts, 0)
        assert bool(choice.token_ids) == (path == CHAT)


@pytest.mark.parametrize("stream", [False, True])
def test_generate_honours_and_returns_the_start(
    routing: Server, way: str, model: Path, stream: bool
) -> None:
    prompts = [[60, 61, 62, 63, 64], [70, 71, 72, 73, 74, 75]]
    for prompt in (prompts, prompts[0]):
        answer: Any = answers(
            routing,
            "/generate",
            stream,
            input_ids=prompt,
            sampling_params={"max_new_tokens": 9, "ignore_eos": True},
            return_routed_experts=True,
            routed_experts_start_len=5,
        )
        outputs = answer if stream or prompt is not prompts else answer[0]
        ids: dict[int, list[int]] = {}
        last: dict[int, dict[str, Any]] = {}
        for position, output in enumerate(outputs):
            # The outputs of a non-streaming batch are in order.
            index = output.get("index", 0 if stream else position)
            known = ids.get(index, []) if way == "stream-output" else []
            ids[index] = known + output["output_ids"]
            last[index] = output["meta_info"]
        assert len(last) == (2 if prompt is prompts else 1)
        for index, meta_info in last.items():
            assert meta_info["routed_experts_start_len"] == 5
            assert len(ids[index]) == 9
            token_ids = prompts[index] + ids[index]
            assert_routed(model, read(meta_info["routed_experts"]), token_ids, 5)


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


# An endpoint, and a value that it refuses; tests/unit has a table of more.
BAD: tuple[tuple[str, dict[str, Any]], ...] = (
    (CHAT, {"routed_experts_start_len": "7"}),
    (CHAT, {"routed_experts_start_len": 10**6}),
    (CHAT, {"routed_experts_format": "int32"}),
    (COMPLETIONS, {"routed_experts_start_len": 2**70}),
    (COMPLETIONS, {"routed_experts_format": ["npy"]}),
    ("/generate", {"input_ids": [60, 61, 62], "routed_experts_start_len": -1}),
    ("/generate", {"text": "abc", "routed_experts_start_len": 10**6}),
)


@in_one_way
def test_bad_values_are_refused_by_name(routing: Server) -> None:
    for path, bad in BAD:
        for stream in (False, True):
            body = {**PROMPTS.get(path, {}), "return_routed_experts": True, **bad}
            with refused([*bad][-1]):
                answers(routing, path, stream, **body)
    assert held_requests(routing) == []


@pytest.mark.parametrize("path", PATHS)
def test_the_experts_of_the_whole_prompt_can_be_left_out(
    routing: Server, model: Path, path: str
) -> None:
    [choice] = asked(routing, path)
    start = len(choice.prompt_token_ids)
    for n_tokens in (1, 5):
        more: dict[str, Any] = {"routed_experts_start_len": start}
        [choice] = asked(routing, path, **more, max_tokens=n_tokens)
        assert_choice(model, choice, start)
        assert len(read(choice.experts)) == n_tokens - 1


@in_one_way
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.usefixtures("slow_engine")
def test_return_token_ids_false_leaves_every_byte_unchanged(
    routing: Server, unpatched: Server, path: str, stream: bool
) -> None:
    body = {**PROMPTS[path], **GREEDY, "stream": stream, "return_token_ids": False}
    if path == CHAT:
        body["logprobs"] = True
    for experts in ({}, {"return_routed_experts": True}):
        assert_same(routing, unpatched, path, {**body, **experts})


@in_one_way
def test_sglext_is_unchanged(routing: Server, unpatched: Server) -> None:
    for path, stream in product(PATHS, (False, True)):
        body = {**PROMPTS[path], **GREEDY, "return_routed_experts": True}
        found, expected = (
            [
                chunk["sglext"]
                for chunk in answers(server, path, stream, **body)
                if chunk.get("sglext")
            ]
            for server in (routing, unpatched)
        )
        assert found == expected != []


@pytest.mark.usefixtures("slow_engine")
@pytest.mark.parametrize("pause", ["retract", "in_place", "abort"])
def test_a_pause_does_not_change_the_experts(
    way: str, routing: Server, model: Path, pause: str
) -> None:
    if way == "two-workers":
        pytest.skip("several workers cannot be paused")
    with ThreadPoolExecutor() as pool:
        asking = [
            pool.submit(
                asked, routing, path, stream=True, max_tokens=80, rid=f"{pause}{path}"
            )
            for path in PATHS
        ]
        wait_until(lambda: len(held(routing)) == 2, 30)
        time.sleep(0.3)
        assert send(routing, "/pause_generation", mode=pause).status_code == 200
        assert send(routing, "/continue_generation").status_code == 200
        for answer in asking:
            [choice] = answer.result(60)
            is_aborted = choice.finish == "abort"
            assert is_aborted is (pause == "abort")
            assert (len(choice.token_ids) == 80) is not is_aborted
            # An aborted answer has the experts of its tokens, or none.
            if choice.experts is not None or not is_aborted:
                assert_choice(model, choice, 0)


@in_one_mode
def test_a_server_that_does_not_record_experts_omits_them(server: Server) -> None:
    for path, stream in product(PATHS, (False, True)):
        [choice] = asked(server, path, stream, routed_experts_format="npy")
        assert choice.experts is None and choice.start is None
        assert len(choice.token_ids) == 24
