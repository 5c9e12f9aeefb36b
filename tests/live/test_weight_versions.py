"""Weight updates during requests: all answers finish, all tokens have their version.

The mute weights sample only one token, so a token shows which weights sampled it. The
changed weights have other keys and values, so logprobs show a prompt computed by old
weights.
"""

from __future__ import annotations

import base64
import itertools
import json
import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests
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
    get,
    post,
    send,
    stream,
)
from tests.helpers.servers import (
    Launch,
    Trees,
    held,
    held_requests,
    streams_new_ids,
)
from tests.helpers.waiting import wait_until

TIMEOUT = 60.0
LENGTH = 120

MODES: dict[str, tuple[str, ...]] = {
    "default": (),
    "overlap": (),
    "stream-output": ("--stream-output",),
    "two-workers": ("--tokenizer-worker-num", "2"),
}

PAUSES = ("in_place", "retract", "abort", None)
in_place_or_none = pytest.mark.parametrize("pause", ["in_place", None], indirect=True)
FLUSHES: dict[str, dict[str, bool]] = {
    "left-out": {},
    "true": {"flush_cache": True},
    "false": {"flush_cache": False},
}
EACH_WAY = tuple(itertools.product(PAUSES, FLUSHES))
in_each_way = pytest.mark.parametrize(("pause", "flush"), EACH_WAY, indirect=["pause"])
TENSORS, NAME_ALONE = "tensors", "the same weights"

OPTIONS = {"temperature": 0, "max_tokens": LENGTH, "ignore_eos": True}
QUESTION = {"messages": line("long").messages, **OPTIONS}
SAMPLING = {"temperature": 0, "max_new_tokens": LENGTH, "ignore_eos": True}


class Weights(NamedTuple):
    """Folders of the scripted model's weights, and of others."""

    spoken: Path
    mute: Path
    changed: Path


@dataclass
class Output:
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
    return str(request.param)


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
    response = load(server, folder, version, **more)
    assert response.status_code == 200, response.text
    return version


def load(
    server: Server, folder: Path | str, version: str, **more: Any
) -> requests.Response:
    body = {"model_path": str(folder), "weight_version": version, **more}
    return send(server, "/update_weights_from_disk", **body)


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


def whole(server: Server, path: str, **body: Any) -> Output:
    asked = {"return_weight_versions": True, "return_token_ids": True, **OPTIONS}
    answer = post(server, path, **asked, **body)
    [choice] = answer["choices"]
    metadata = answer["metadata"]
    assert answer["weight_version"] == metadata["weight_version"]
    return Output(
        choice["token_ids"],
        choice["weight_versions"],
        [metadata["weight_versions"], answer["weight_version"]],
        choice["finish_reason"],
    )


def chat_stream(server: Server) -> Output:
    output = Output(others=[None])  # No line has had a version yet.
    for event in stream(server, CHAT, return_weight_versions=True, **QUESTION):
        assert "error" not in event, event
        if "metadata" in event:
            output.others = [event["metadata"]["weight_version"]]
        for choice in event["choices"]:
            assert output.spans is None, "a chunk after the last one"
            output.ids += choice.get("token_ids", [])
            output.spans = choice.get("weight_versions")
            output.finish = choice["finish_reason"] or output.finish
    return output


def generate(server: Server, streaming: bool = False) -> Output:
    body = {"text": "Once upon a time", "sampling_params": SAMPLING}
    events = answers(server, "/generate", streaming, **body)
    assert not any("error" in event for event in events), events
    meta_info = events[-1]["meta_info"]
    ids = events[-1]["output_ids"]
    if streaming and streams_new_ids(server):
        ids = [token_id for event in events for token_id in event["output_ids"]]
    finish = meta_info["finish_reason"]["type"]
    others = [meta_info["weight_version"]] if ids else []
    return Output(ids, meta_info["weight_versions"], others, finish)


OPEN: tuple[Callable[[Server], Output], ...] = (
    partial(whole, path=CHAT, messages=QUESTION["messages"]),
    chat_stream,
    partial(whole, path=COMPLETIONS, prompt="Tell me a story."),
    generate,
    partial(generate, streaming=True),
    chat_stream,
)


def through(
    server: Server, pause: str | None, change: Callable[[], Any]
) -> tuple[list[Output], Any]:
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
        outputs = [answer.result(timeout=TIMEOUT) for answer in asking]
    if "--tokenizer-worker-num" not in server.options.args:
        assert held_requests(server) == []
    return outputs, result


def assert_right(
    output: Output, quiet: Output, old: str, new: str, is_mute: bool
) -> None:
    """Check that each span's tokens come from the weights of its version."""
    assert output.spans is not None
    ends = [0, *(span["end"] for span in output.spans)]
    assert [span["start"] for span in output.spans] == ends[:-1]
    assert ends[-1] == len(output.ids)
    for span in output.spans:
        ids = output.ids[span["start"] : span["end"]]
        assert span["version"] == new or (span["start"] == 0 and span["version"] == old)
        if span["version"] == new and is_mute:
            assert set(ids) == {weights.MUTE_TOKEN}
        else:
            assert ids == quiet.ids[span["start"] : span["end"]]
    for other in output.others:
        assert other in (output.spans, output.spans[-1]["version"])


@pytest.fixture(scope="module")
def quiet(updated: Server, model: Weights) -> list[Output]:
    """The answers of the scripted model's weights."""
    update(updated, model.spoken)
    return [ask(updated) for ask in OPEN]


@pytest.fixture
def old(updated: Server, model: Weights) -> str:
    """The version of the weights before the test, the scripted model's."""
    return update(updated, model.spoken)


@pytest.mark.usefixtures("slow_engine")
@pytest.mark.parametrize(
    ("pause", "how"),
    [*EACH_WAY, ("in_place", TENSORS), ("retract", TENSORS), (None, NAME_ALONE)],
    indirect=["pause"],
)
def test_each_token_has_the_version_of_the_weights_that_sampled_it(
    updated: Server,
    model: Weights,
    quiet: list[Output],
    old: str,
    pause: str | None,
    how: str,
    release: str,
) -> None:
    def change() -> str:
        if how in FLUSHES:
            return update(updated, model.mute, **FLUSHES[how])
        if how == TENSORS:
            norm = [(NORM, load_file(model.mute / "model.safetensors")[NORM])]
            response = update_from_tensor(updated, release, pickle.dumps(norm), how)
        else:
            body = {"new_version": how, "abort_all_requests": False}
            response = send(updated, "/update_weight_version", **body)
        assert response.status_code == 200, response.text
        return how

    assert all(output.finish == "length" for output in quiet)
    outputs, new = through(updated, pause, change)
    for output, before in zip(outputs, quiet, strict=True):
        assert_right(output, before, old, new, is_mute=how != NAME_ALONE)
        assert output.finish == ("abort" if pause == "abort" else "length")
    if pause in ("in_place", "retract") or how == NAME_ALONE:
        assert all(len(output.spans or ()) == 2 for output in outputs)


@pytest.mark.usefixtures("slow_engine", "old")
@in_each_way
def test_a_later_prompt_uses_no_cache_of_other_weights(
    updated: Server,
    model: Weights,
    expected: list[float],
    pause: str | None,
    flush: str,
) -> None:
    before = later(updated)
    assert later(updated)["meta_info"]["cached_tokens"] > 290
    through(updated, pause, lambda: update(updated, model.changed, **FLUSHES[flush]))
    after = later(updated)
    assert logprobs_of(after) == pytest.approx(expected, abs=LOGPROB_NOISE)
    assert logprobs_of(before) != pytest.approx(expected, abs=100 * LOGPROB_NOISE)
    again = later(updated)
    assert again["meta_info"]["cached_tokens"] > 290
    assert logprobs_of(again) == pytest.approx(expected, abs=LOGPROB_NOISE)


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
@in_place_or_none
def test_what_fails_during_requests_is_an_error_and_changes_no_version(
    updated: Server, old: str, pause: str | None, release: str
) -> None:
    def fail() -> None:
        kept = send(updated, "/release_memory_occupation", tags=["kv_cache"])
        assert "Nothing was released" in kept.text
        failed = load(updated, "/nowhere", "no")
        corrupt = update_from_tensor(updated, release, b"nothing", "no")
        assert [r.status_code for r in (kept, failed, corrupt)] == [400] * 3

    outputs, _ = through(updated, pause, fail)
    for output in outputs:
        assert output.finish == "length"
        assert [span["version"] for span in output.spans or ()] == [old]


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


NORM = "model.norm.weight"
UNKNOWN = "x.norm.weight"
QUERY = "model.layers.0.self_attn.q_proj.weight"
HALF = "half renamed"

# A folder with new weights, by the one with the old: what the server says of it.
FOLDERS: dict[str, tuple[str, Callable[[Path, Path], Path]]] = {
    "all renamed": (
        "0 of 14 tensors were loaded: the model has none named base_model.",
        partial(weights.make, change=partial(renamed, 1)),
    ),
    "an adapter": (
        "0 of 4 tensors were loaded",
        lambda _, folder: weights.make_adapter(folder, seed=1),
    ),
    "a file is missing": (
        "lacks 1 of the files that its index lists, such as model-2.safetensors",
        lambda model, folder: a_file_less(weights.make(model, folder, weights.changed)),
    ),
    HALF: (
        "7 of 14 tensors were loaded: the model has none named base_model.",
        partial(weights.make, change=partial(renamed, 2)),
    ),
}
# Names of the tensors in one request, and what the server says of them.
BUCKETS: dict[str, tuple[str, tuple[str, ...]]] = {
    "one": ("", (NORM,)),
    "a part of a merged tensor": ("", (QUERY,)),
    "only tied embeddings": ("", ("lm_head.weight",)),
    "none": ("", ()),
    "unknown": ("0 of 1 tensors were loaded", (UNKNOWN,)),
    "one unknown": ("1 of 2 tensors were loaded", (NORM, UNKNOWN)),
}


def names_of(server: Server, way: str) -> list[Any]:
    """Return the names that a server gives its weights."""
    answer = post(server, CHAT, **QUESTION, return_weight_versions=True)
    if way == "two-workers":  # One worker does not know the updates of the other.
        return [answer["metadata"]]
    info, models = get(server, "/model_info"), get(server, "/v1/models")["data"]
    names = info["model_path"], info["weight_version"], *(one["id"] for one in models)
    return [*names, answer["metadata"]]


@pytest.mark.parametrize("case", [*FOLDERS, *BUCKETS])
def test_an_update_fails_unless_the_model_takes_all_of_it(
    updated: Server,
    model: Weights,
    way: str,
    release: str,
    tmp_path: Path,
    case: str,
) -> None:
    update(updated, model.spoken)
    before, logprobs = names_of(updated, way), logprobs_of(later(updated))
    known = load_file(model.spoken / "model.safetensors")
    if case in FOLDERS:
        reason, make = FOLDERS[case]
        folder = make(model.spoken, tmp_path / "new")
    for _ in range(2):
        if case in FOLDERS:
            response = load(updated, folder, "new")
        else:
            reason, names = BUCKETS[case]
            tensors = [(name, known.get(name, known[NORM])) for name in names]
            pickled = pickle.dumps(tensors)
            response = update_from_tensor(updated, release, pickled, "new")
        assert response.status_code == (400 if reason else 200), response.text
        assert reason in response.text
        after, found = names_of(updated, way), logprobs_of(later(updated))
        assert (after[-1]["weight_version"] == "new") is not bool(reason)
        if reason:
            assert after == before
            n_loaded = int(not reason.startswith(("0", "lacks")))
            assert ("as before", "mixed now")[n_loaded] in response.text
        is_same = found == pytest.approx(logprobs, abs=LOGPROB_NOISE)
        assert is_same is (case != HALF)
    update(updated, model.spoken)
    assert logprobs_of(later(updated)) == pytest.approx(logprobs, abs=LOGPROB_NOISE)


@pytest.mark.usefixtures("slow_engine", "old")
@in_place_or_none
def test_concurrent_updates_from_disk_run_one_by_one(
    updated: Server, model: Weights, expected: list[float], pause: str | None
) -> None:
    def several() -> list[str]:
        with ThreadPoolExecutor(4) as pool:
            folders = (model.mute, model.changed) * 2
            return [*pool.map(partial(update, updated), folders)]

    outputs, versions = through(updated, pause, several)
    assert all(output.finish == "length" for output in outputs)
    answer = later(updated)
    last = answer["meta_info"]["weight_version"]
    assert last in versions
    if last.startswith("mute"):
        assert {*answer["output_ids"]} == {weights.MUTE_TOKEN}
    else:
        assert logprobs_of(answer) == pytest.approx(expected, abs=LOGPROB_NOISE)


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
