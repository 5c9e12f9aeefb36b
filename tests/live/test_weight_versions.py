"""Weight updates during requests: all answers finish, all tokens have their version.

The mute weights sample only one token, so a token shows which weights sampled it. The
changed weights have other keys and values, so logprobs show a prompt computed by old
weights.
"""

from __future__ import annotations

import base64
import dataclasses
import itertools
import json
import pickle
import shutil
import sys
import time
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests
import torch
from safetensors.torch import load_file

from agentcore_patches.patches.releases import is_between
from agentcore_verify import cpu
from agentcore_verify.scripted_model import line
from agentcore_verify.server import Server
from tests.helpers import weights
from tests.helpers.asking import LOGPROB_NOISE
from tests.helpers.endpoints import (
    CHAT,
    COMPLETIONS,
    Json,
    answers,
    post,
    refused,
    send,
    stream,
)
from tests.helpers.servers import Launch, Trees, held, held_requests
from tests.helpers.waiting import wait_until

TIMEOUT = 60.0
LENGTH = 120

MODES: dict[str, tuple[str, ...]] = {
    "default": (),
    "overlap": (),
    "stream-output": ("--stream-output",),
    "two-workers": ("--tokenizer-worker-num", "2"),
}

PAUSES = ["in_place", "retract", "abort", None]
FLUSHES: dict[str, dict[str, bool]] = {
    "left-out": {},
    "true": {"flush_cache": True},
    "false": {"flush_cache": False},
}

OPTIONS = {"temperature": 0, "max_tokens": LENGTH, "ignore_eos": True}
QUESTION = {"messages": line("long").messages, **OPTIONS}
SAMPLING = {"temperature": 0, "max_new_tokens": LENGTH, "ignore_eos": True}


@dataclass(frozen=True)
class Weights:
    """Folders of the scripted model's weights, and of others."""

    spoken: Path
    mute: Path
    changed: Path


@dataclass
class Said:
    """Contents of a response: token IDs, version spans, other fields."""

    ids: list[int] = field(default_factory=list)
    spans: list[dict[str, Any]] | None = None
    others: list[Any] = field(default_factory=list)
    finish: str | None = None


@pytest.fixture(scope="module")
def model(scripted_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Weights:
    folder = tmp_path_factory.mktemp("weights")
    return Weights(
        scripted_model,
        weights.make(scripted_model, folder / "mute", weights.mute),
        weights.make(scripted_model, folder / "changed", weights.changed),
    )


@pytest.fixture(scope="module", params=MODES)
def way(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def updated(way: str, trees: Trees, launch: Launch) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        if way == "overlap":
            args = [arg for arg in cpu.ARGS if arg != "--disable-overlap-schedule"]
            patch.setattr(cpu, "ARGS", tuple(args))
        with launch(trees.patched, *MODES[way]) as running:
            yield running


@pytest.fixture
def pause(request: pytest.FixtureRequest, release: str, way: str) -> str | None:
    """Mode of the pause during the update, None without a pause."""
    mode: str | None = request.param
    if way == "two-workers" and mode and is_between(release, "", "0.5.11"):
        pytest.skip("pauses are refused with several tokenizer workers")
    return mode


@pytest.fixture(scope="module")
def expected(trees: Trees, launch: Launch, model: Weights) -> list[float]:
    """The logprobs of a server that was started with the changed weights."""
    with launch(trees.patched, model=model.changed) as running:
        return logprobs_of(later(running))


_versions = itertools.count()


def update(server: Server, folder: Path, **more: Any) -> str:
    """Load weights; return their new version."""
    version = f"{folder.name[:8]}-{next(_versions)}"
    body = {"model_path": str(folder), "weight_version": version, **more}
    response = send(server, "/update_weights_from_disk", **body)
    assert response.status_code == 200, response.text
    return version


def later(server: Server, **more: Any) -> Json:
    """Return the engine's answer to a prompt that no other request has."""
    return post(
        server,
        "/generate",
        input_ids=[40 + i % 90 for i in range(300)],
        sampling_params={**SAMPLING, "max_new_tokens": 12},
        return_logprob=True,
        top_logprobs_num=5,
        **more,
    )


def logprobs_of(answer: dict[str, Any]) -> list[float]:
    """Return the five most probable first tokens, with logprobs."""
    first = answer["meta_info"]["output_top_logprobs"][0]
    return [value for value, *_ in sorted(first, key=lambda entry: entry[1])]


def whole(server: Server, path: str, **body: Any) -> Said:
    asked = {"return_weight_versions": True, "return_token_ids": True, **OPTIONS}
    answer = post(server, path, **asked, **body)
    [choice] = answer["choices"]
    metadata = answer["metadata"]
    assert answer["weight_version"] == metadata["weight_version"]
    return Said(
        choice["token_ids"],
        choice["weight_versions"],
        [metadata["weight_versions"], answer["weight_version"]],
        choice["finish_reason"],
    )


def chat_stream(server: Server) -> Said:
    said = Said(others=[None])  # No line has had a version yet.
    for event in stream(server, CHAT, return_weight_versions=True, **QUESTION):
        assert "error" not in event, event
        if "metadata" in event:
            said.others = [event["metadata"]["weight_version"]]
        for choice in event["choices"]:
            assert said.spans is None, "a chunk after the last one"
            said.ids += choice.get("token_ids", [])
            said.spans = choice.get("weight_versions")
            said.finish = choice["finish_reason"] or said.finish
    return said


def generate(server: Server, streaming: bool = False) -> Said:
    body = {"text": "Once upon a time", "sampling_params": SAMPLING}
    events = answers(server, "/generate", streaming, **body)
    assert not any("error" in event for event in events), events
    meta_info = events[-1]["meta_info"]
    ids = events[-1]["output_ids"]
    deltas = {"--stream-output", "--incremental-streaming-output"}
    if streaming and deltas & {*server.options.args}:
        ids = [token_id for event in events for token_id in event["output_ids"]]
    finish = meta_info["finish_reason"]["type"]
    others = [meta_info["weight_version"]] if ids else []
    return Said(ids, meta_info["weight_versions"], others, finish)


OPEN: tuple[Callable[[Server], Said], ...] = (
    partial(whole, path=CHAT, messages=QUESTION["messages"]),
    chat_stream,
    partial(whole, path=COMPLETIONS, prompt="Tell me a story."),
    generate,
    partial(generate, streaming=True),
    chat_stream,
)


def through(
    server: Server, pause: str | None, change: Callable[[], Any]
) -> tuple[list[Said], Any]:
    """Return the answers of requests that run while the weights change."""
    with ThreadPoolExecutor(len(OPEN)) as pool:
        asking = [pool.submit(ask, server) for ask in OPEN]
        wait_until(lambda: len(held(server)) >= 2)
        time.sleep(0.5)
        if pause is not None:
            assert send(server, "/pause_generation", mode=pause).status_code == 200
        try:
            result = change()
        finally:
            if pause is not None:
                assert send(server, "/continue_generation").status_code == 200
        said = [answer.result(timeout=TIMEOUT) for answer in asking]
    if "--tokenizer-worker-num" not in server.options.args:
        assert held_requests(server) == []
    return said, result


def assert_right(said: Said, quiet: Said, old: str, new: str) -> None:
    """Check that each span's tokens come from the weights of its version."""
    assert said.spans is not None
    ends = [0, *(span["end"] for span in said.spans)]
    assert [span["start"] for span in said.spans] == ends[:-1]
    assert ends[-1] == len(said.ids)
    for span in said.spans:
        ids = said.ids[span["start"] : span["end"]]
        if span["version"] == old:
            assert span["start"] == 0
            assert ids == quiet.ids[: span["end"]]
        else:
            assert span["version"] == new
            assert set(ids) == {weights.MUTE_TOKEN}
    for other in said.others:
        assert other in (said.spans, said.spans[-1]["version"])


@pytest.fixture(scope="module")
def quiet(updated: Server, model: Weights) -> list[Said]:
    """The answers of the scripted model's weights."""
    update(updated, model.spoken)
    return [ask(updated) for ask in OPEN]


@pytest.fixture
def old(updated: Server, model: Weights) -> str:
    """The version of the weights before the test, the scripted model's."""
    return update(updated, model.spoken)


@pytest.mark.usefixtures("slow_engine")
@pytest.mark.parametrize("flush", FLUSHES)
@pytest.mark.parametrize("pause", PAUSES, indirect=True)
def test_each_token_has_the_version_of_the_weights_that_sampled_it(
    updated: Server,
    model: Weights,
    quiet: list[Said],
    old: str,
    pause: str | None,
    flush: str,
) -> None:
    assert all(said.finish == "length" for said in quiet)
    said, new = through(
        updated, pause, lambda: update(updated, model.mute, **FLUSHES[flush])
    )
    for answer, before in zip(said, quiet, strict=True):
        assert_right(answer, before, old, new)
        assert answer.finish == ("abort" if pause == "abort" else "length")
    if pause in ("in_place", "retract"):
        assert all(len(answer.spans or ()) == 2 for answer in said)


@pytest.mark.usefixtures("slow_engine")
@pytest.mark.parametrize("flush", FLUSHES)
@pytest.mark.parametrize("pause", PAUSES, indirect=True)
def test_a_later_prompt_uses_no_cache_of_other_weights(
    updated: Server,
    model: Weights,
    expected: list[float],
    pause: str | None,
    flush: str,
) -> None:
    update(updated, model.spoken)
    before = later(updated)
    assert later(updated)["meta_info"]["cached_tokens"] > 290
    through(updated, pause, lambda: update(updated, model.changed, **FLUSHES[flush]))
    after = later(updated)
    assert logprobs_of(after) == pytest.approx(expected, abs=LOGPROB_NOISE)
    assert logprobs_of(before) != pytest.approx(expected, abs=100 * LOGPROB_NOISE)
    again = later(updated)
    assert again["meta_info"]["cached_tokens"] > 290
    assert logprobs_of(again) == pytest.approx(expected, abs=LOGPROB_NOISE)


@pytest.mark.usefixtures("slow_engine")
def test_a_new_version_of_the_same_weights_labels_later_tokens(
    updated: Server, quiet: list[Said], old: str
) -> None:
    def rename() -> None:
        body = {"new_version": "renamed", "abort_all_requests": False}
        assert send(updated, "/update_weight_version", **body).status_code == 200

    said, _ = through(updated, None, rename)
    for answer, before in zip(said, quiet, strict=True):
        assert answer.ids == before.ids
        assert answer.spans is not None
        assert [span["version"] for span in answer.spans] == [old, "renamed"]


def test_no_client_fills_the_cache_of_later_weights(
    updated: Server, model: Weights, expected: list[float]
) -> None:
    update(updated, model.spoken)
    start = [40 + i % 90 for i in range(64)]  # Of the prompt in `later`.
    options = {"temperature": 0, "max_new_tokens": 1}
    for number in range(1, 200):
        body = {"input_ids": start, "sampling_params": options}
        post(updated, "/generate", **body, extra_key=f"weights {number}\0")
    update(updated, model.changed, flush_cache=False)
    found = later(updated)
    assert found["meta_info"]["cached_tokens"] == 0
    assert logprobs_of(found) == pytest.approx(expected, abs=LOGPROB_NOISE)


def update_from_tensor(
    server: Server, release: str, serialized: bytes, version: str, **more: Any
) -> requests.Response:
    """Update from a tensor, inside the session that newer releases require."""
    needs_session = is_between(release, "0.5.21", "")
    if needs_session:
        assert send(server, "/begin_weight_update").status_code == 200
    response = send(
        server,
        "/update_weights_from_tensor",
        serialized_named_tensors=[base64.b64encode(serialized).decode()],
        weight_version=version,
        **more,
    )
    if needs_session:
        assert send(server, "/end_weight_update").status_code == 200
    return response


@pytest.mark.usefixtures("slow_engine")
@pytest.mark.parametrize("pause", ["in_place", "retract"], indirect=True)
def test_updates_from_tensors_are_versioned_too(
    updated: Server,
    model: Weights,
    quiet: list[Said],
    old: str,
    pause: str,
    release: str,
) -> None:
    norm = "model.norm.weight"
    tensors = [(norm, load_file(model.mute / "model.safetensors")[norm])]

    def change() -> None:
        pickled = pickle.dumps(tensors)
        response = update_from_tensor(updated, release, pickled, "tensors")
        assert response.status_code == 200, response.text

    said, _ = through(updated, pause, change)
    for answer, before in zip(said, quiet, strict=True):
        assert_right(answer, before, old, "tensors")


@pytest.mark.usefixtures("slow_engine")
@pytest.mark.parametrize("pause", ["in_place", None], indirect=True)
def test_a_failed_update_is_an_error_and_changes_no_version(
    updated: Server, model: Weights, pause: str | None, release: str
) -> None:
    version = update(updated, model.spoken)

    def fail() -> None:
        nowhere = {"model_path": "/nowhere", "weight_version": "no"}
        response = send(updated, "/update_weights_from_disk", **nowhere)
        assert response.status_code == 400
        response = update_from_tensor(updated, release, b"nothing", "no")
        assert response.status_code == 400

    said, _ = through(updated, pause, fail)
    for answer in said:
        assert answer.spans is not None
        assert [span["version"] for span in answer.spans] == [version]


def renamed(every: int, tensors: weights.Tensors) -> None:
    """Change a checkpoint, and rename each tensor or every second one."""
    weights.changed(tensors)
    for name in sorted(tensors)[::every]:
        tensors[f"base_model.{name}"] = tensors.pop(name)


def a_file_less(folder: Path) -> Path:
    """Add an index that lists another file, as if it were not copied yet."""
    files = {"a": "model.safetensors", "b": "model-2.safetensors"}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": files}))
    return folder


NOT_LOADED: dict[str, tuple[str, Callable[[Path, Path], Path]]] = {
    "all renamed": (
        "0 of 14 tensors were loaded: the model has none named base_model.",
        lambda model, folder: weights.make(model, folder, partial(renamed, 1)),
    ),
    "an adapter": (
        "0 of 4 tensors were loaded",
        lambda _, folder: weights.make_adapter(folder, seed=1),
    ),
    "a file is missing": (
        "lacks 1 of the files that its index lists, such as model-2.safetensors",
        lambda model, folder: a_file_less(weights.make(model, folder, weights.changed)),
    ),
    "half renamed": (
        "7 of 14 tensors were loaded: the model has none named base_model.",
        lambda model, folder: weights.make(model, folder, partial(renamed, 2)),
    ),
}


def names_of(server: Server, way: str) -> list[Any]:
    """Return what the server says of its weights.

    One of several workers does not know the updates of the others.
    """
    answer = post(server, CHAT, **QUESTION, return_weight_versions=True)
    if way == "two-workers":
        return [answer["metadata"]]
    info = requests.get(f"{server.base_url}/model_info", timeout=10).json()
    models = requests.get(f"{server.base_url}/v1/models", timeout=10).json()
    return [
        info["model_path"],
        info["weight_version"],
        [one["id"] for one in models["data"]],
        answer["metadata"],
    ]


@pytest.mark.parametrize("case", NOT_LOADED)
def test_an_update_from_disk_that_the_model_does_not_take_fails(
    updated: Server, model: Weights, way: str, tmp_path: Path, case: str
) -> None:
    update(updated, model.spoken)
    reason, make = NOT_LOADED[case]
    before = names_of(updated, way)
    logprobs = logprobs_of(later(updated))
    folder = make(model.spoken, tmp_path / "new")
    for _ in range(2):
        body = {"model_path": str(folder), "weight_version": "no"}
        response = send(updated, "/update_weights_from_disk", **body)
        assert response.status_code == 400, response.text
        assert reason in response.json()["message"]
        after = names_of(updated, way)
        found = logprobs_of(later(updated))
        if case == "half renamed":
            assert "The weights are mixed now" in response.json()["message"]
            assert found != pytest.approx(logprobs, abs=LOGPROB_NOISE)
            before[-1] = after[-1]
        else:
            assert "The weights are as before" in response.json()["message"]
            assert found == pytest.approx(logprobs, abs=LOGPROB_NOISE)
        assert after[-1]["weight_version"] != "no"
        assert after == before
    update(updated, model.spoken)
    assert logprobs_of(later(updated)) == pytest.approx(logprobs, abs=LOGPROB_NOISE)


def bucket(tensors: list[tuple[str, torch.Tensor]]) -> bytes:
    """Pickle tensors as one, in SGLang's format."""
    module = types.ModuleType("sglang.srt.weight_sync.tensor_bucket")
    fields = ("name", "shape", "dtype", "start_idx", "end_idx", "numel")
    metadata = dataclasses.make_dataclass("FlattenedTensorMetadata", fields)
    metadata.__module__ = module.__name__
    vars(module)["FlattenedTensorMetadata"] = metadata
    values = [tensor.flatten().view(torch.uint8) for _, tensor in tensors]
    ends = [*itertools.accumulate(len(value) for value in values)]
    about = [
        metadata(name, tensor.shape, tensor.dtype, end - len(value), end, len(value))
        for (name, tensor), value, end in zip(tensors, values, ends, strict=True)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)
        # Pickle imports the package, which other tests of this process look for.
        patch.setitem(sys.modules, "sglang", types.ModuleType("sglang"))
        return pickle.dumps({"flattened_tensor": torch.cat(values), "metadata": about})


NORM = "model.norm.weight"
QUERY = "model.layers.0.self_attn.q_proj.weight"

# Names of the tensors in one request, and how many of them are loaded.
BUCKETS: dict[str, tuple[tuple[str, ...], str]] = {
    "one": ((NORM,), ""),
    "a part of a merged tensor": ((QUERY,), ""),
    "only tied embeddings": (("lm_head.weight",), ""),
    "none": ((), ""),
    "unknown": (("x.norm.weight",), "0 of 1 tensors were loaded"),
    "one unknown": ((NORM, "x.norm.weight"), "1 of 2 tensors were loaded"),
}


@pytest.mark.parametrize("way_to_send", [None, "flattened_bucket", "direct"])
@pytest.mark.parametrize("case", BUCKETS)
def test_an_update_from_tensors_that_the_model_does_not_take_fails(
    updated: Server, model: Weights, release: str, case: str, way_to_send: str | None
) -> None:
    names, reason = BUCKETS[case]
    if way_to_send == "flattened_bucket" and not names:
        pytest.skip("SGLang has no such bucket")
    if way_to_send == "direct":
        if case in ("a part of a merged tensor", "only tied embeddings"):
            pytest.skip("these are not the model's own names")
        reason = "x.norm.weight" if reason else ""
    version = update(updated, model.spoken)
    before = logprobs_of(later(updated))
    known = load_file(model.spoken / "model.safetensors")
    tensors = [(name, known.get(name, known[NORM])) for name in names]
    pickled = bucket if way_to_send == "flattened_bucket" else pickle.dumps
    response = update_from_tensor(
        updated, release, pickled(tensors), "tensors", load_format=way_to_send
    )
    assert response.status_code == (400 if reason else 200), response.text
    assert reason in response.text
    answer = post(updated, CHAT, **QUESTION)
    assert answer["weight_version"] == (version if reason else "tensors")
    assert logprobs_of(later(updated)) == pytest.approx(before, abs=LOGPROB_NOISE)


@pytest.mark.usefixtures("slow_engine", "old")
@pytest.mark.parametrize("pause", ["in_place", None], indirect=True)
def test_concurrent_updates_from_disk_are_all_answered(
    updated: Server, model: Weights, pause: str | None
) -> None:
    def several() -> list[str]:
        with ThreadPoolExecutor(3) as pool:
            return [*pool.map(lambda _: update(updated, model.mute), range(3))]

    said, versions = through(updated, pause, several)
    assert all(answer.finish == "length" for answer in said)
    assert post(updated, CHAT, **QUESTION)["weight_version"] in versions


@pytest.mark.usefixtures("slow_engine")
@pytest.mark.parametrize("pause", ["in_place", None], indirect=True)
def test_memory_in_use_is_not_released(updated: Server, pause: str | None) -> None:
    def release() -> None:
        response = send(updated, "/release_memory_occupation", tags=["kv_cache"])
        assert response.status_code == 400
        assert "Nothing was released" in response.text

    said, _ = through(updated, pause, release)
    assert all(answer.finish == "length" for answer in said)


def test_memory_that_was_not_released_is_not_resumed(updated: Server) -> None:
    before = logprobs_of(later(updated))
    response = send(updated, "/resume_memory_occupation", tags=["weights"])
    assert response.status_code == 400
    assert "weights was not released" in response.text
    for tags in (["kv_cache", "kv_cache"], []):
        for change in ("release", "resume"):
            response = send(updated, f"/{change}_memory_occupation", tags=tags)
            assert response.status_code == 200, response.text
    assert logprobs_of(later(updated)) == pytest.approx(before, abs=LOGPROB_NOISE)


def test_a_prompt_uses_no_cache_of_another_adapter(
    trees: Trees, launch: Launch, tmp_path: Path
) -> None:
    adapter_folder = weights.make_adapter(tmp_path / "ours", seed=1)
    other = weights.make_adapter(tmp_path / "other", seed=2)

    def load(server: Server, name: str, folder: Path) -> None:
        adapter = {"lora_name": name, "lora_path": str(folder)}
        response = send(server, "/load_lora_adapter", **adapter)
        assert response.status_code == 200, response.text

    arguments = ("--lora-target-modules", *weights.ADAPTED)
    arguments += ("--max-lora-rank", str(weights.RANK))
    arguments += ("--lora-backend", "torch_native", "--max-loras-per-batch", "2")
    with launch(trees.patched, "--enable-lora", *arguments) as server:
        load(server, "a", adapter_folder)
        before = later(server, lora_path="a")
        assert later(server, lora_path="a")["meta_info"]["cached_tokens"] > 290
        assert send(server, "/unload_lora_adapter", lora_name="a").status_code == 200
        shutil.rmtree(adapter_folder)
        load(server, "a", weights.make_adapter(adapter_folder, seed=2))
        after = later(server, lora_path="a")
        assert after["meta_info"]["cached_tokens"] == 0
        load(server, "b", other)
        expected = logprobs_of(later(server, lora_path="b"))
        assert logprobs_of(after) == pytest.approx(expected, abs=LOGPROB_NOISE)
        assert logprobs_of(before) != pytest.approx(expected, abs=100 * LOGPROB_NOISE)


def test_versions_can_be_requested_without_token_ids(
    updated: Server, model: Weights
) -> None:
    version = update(updated, model.spoken)
    spans = [{"version": version, "start": 0, "end": LENGTH}]
    alone = {"return_token_ids": False, "return_weight_versions": True}
    for path, body in (
        (CHAT, QUESTION),
        (COMPLETIONS, {"prompt": "Once upon a time", **OPTIONS}),
    ):
        [choice] = post(updated, path, **body, **alone)["choices"]
        assert choice["weight_versions"] == spans
        assert choice.get("token_ids") is None
        events = stream(updated, path, **body, **alone)
        chunks = [chunk for event in events for chunk in event["choices"]]
        assert chunks[-1]["weight_versions"] == spans
        assert not any(chunk.get("token_ids") for chunk in chunks)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a_flag_of_another_type_is_refused(updated: Server, path: str) -> None:
    with refused("return_weight_versions"):
        post(updated, path, **QUESTION, prompt="a", return_weight_versions=["x"])


def test_a_beam_search_has_no_weight_versions(updated: Server, release: str) -> None:
    if not is_between(release, "0.5.19", ""):
        pytest.skip("SGLang has beam search from 0.5.19 on")
    params = {"beam_width": 3, "n": 2, "max_new_tokens": 12, "temperature": 0}
    answer = post(updated, "/generate", text="Once", sampling_params=params)
    assert len(answer["meta_info"]["beam_results"]) == 2
    assert not answer["meta_info"].get("weight_versions")
