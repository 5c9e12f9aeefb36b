"""Prompts with images, on a tiny Qwen2-VL with its real processor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from agentcore_verify import client
from agentcore_verify.checks import images
from agentcore_verify.client import Answer
from agentcore_verify.server import Server
from agentcore_verify.subject import Subject
from tests.helpers import endpoints, tiny_vision_model
from tests.helpers.asking import assert_equal, assert_whole
from tests.helpers.conversing import prefix_of
from tests.helpers.servers import Launch, Trees, held_requests
from tests.live import in_sglang, in_vision_processor
from tests.live.conftest import PassesInSGLang

IMAGE = {"type": "image_url", "image_url": {"url": images.IMAGE}}
PLACES = 4
"""Number of placeholders of the image: 56 x 56 pixels, 28 x 28 for each."""


@pytest.fixture(scope="module")
def vision_model(
    sglang_python: Path, scripted_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("vision") / "model"
    return tiny_vision_model.run(sglang_python, scripted_model, folder)


@pytest.mark.parametrize("name", in_sglang.tests_in(vars(in_vision_processor)))
def test_in_the_processor(
    passes_in_sglang: PassesInSGLang, vision_model: Path, name: str
) -> None:
    passes_in_sglang(in_vision_processor, name, vision_model, images.IMAGE)


@pytest.fixture(scope="module")
def vision_server(trees: Trees, launch: Launch, vision_model: Path) -> Iterator[Server]:
    args, env = tiny_vision_model.ARGUMENTS, tiny_vision_model.ENVIRONMENT
    with launch(trees.patched, *args, env=env, model=vision_model) as running:
        yield running


def body(*parts: Any, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts]
    messages = [{"role": "user", "content": content}]
    options = {"temperature": 0, "max_tokens": 12, "logprobs": True}
    return {"messages": messages, **options, **more}


def ask(server: Server, *parts: Any, **more: Any) -> Answer:
    return client.ask(server.base_url, **body(*parts, **more))


def tokenized(server: Server, text: str) -> list[int]:
    asked = {"prompt": text, "add_special_tokens": False}
    tokens: list[int] = endpoints.post(server, "/tokenize", **asked)["tokens"]
    return tokens


def placeholder(server: Server) -> int:
    [token] = tokenized(server, "<|image_pad|>")
    return token


def both(server: Server, *parts: Any, **more: Any) -> tuple[list[int], list[int]]:
    """Return prompt and completion IDs; check that streaming yields the same."""
    whole = ask(server, *parts, **more)
    streamed = ask(server, *parts, **more, stream=True)
    assert_whole(streamed)
    assert_equal(streamed, whole)
    [said] = whole.completions
    return [*(whole.prompt_token_ids or ())], [*(said.token_ids or ())]


def with_one_place(server: Server, prompt: list[int]) -> list[int]:
    """Return the IDs of a prompt before its image was expanded."""
    pad = placeholder(server)
    assert prompt.count(pad) == PLACES
    first = prompt.index(pad)
    return prompt[: first + 1] + prompt[first + PLACES :]


def test_a_prompt_of_ids_is_prefilled_unchanged_but_for_expanded_images(
    vision_server: Server,
) -> None:
    prompt, said = both(vision_server, "What is", IMAGE, "this?")
    given = with_one_place(vision_server, prompt)
    assert both(vision_server, "-", IMAGE, input_ids=given) == (prompt, said)
    # A part of a character: no tokenizer produces it from text.
    [part, *others] = tokenized(vision_server, "中")
    assert others
    odd = [part, 10, 11, 10, *given, 11, part]
    expanded, _ = both(vision_server, "-", IMAGE, input_ids=odd)
    assert expanded == [part, 10, 11, 10, *prompt, 11, part]


def test_a_second_turn_starts_with_the_ids_of_the_first(vision_server: Server) -> None:
    prompt, said = both(vision_server, "What is", IMAGE, "this?")
    past = [*prompt, *said, *prompt]
    given = [*prompt, *said, *with_one_place(vision_server, prompt)]
    for input_ids in (past, given):
        taken, _ = both(vision_server, IMAGE, IMAGE, input_ids=input_ids)
        assert taken == past


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("how", ["request", "message"])
def test_a_prefix_keeps_its_images_and_accepts_new_ones(
    vision_server: Server, how: str, stream: bool
) -> None:
    prompt, said = both(vision_server, "What is", IMAGE, "this?")
    first = body("What is", IMAGE, "this?")["messages"]
    answer: dict[str, Any] = {"role": "assistant", "content": "An image."}
    more: dict[str, Any] = {"required_prefix_token_ids": [*prompt, *said]}
    if how == "message":
        answer |= {"prompt_token_ids": prompt, "token_ids": said}
        more = {}
    messages = [*first, answer, *body("And", IMAGE, "this?")["messages"]]
    second = ask(vision_server, messages=messages, stream=stream, **more)
    taken = list(second.prompt_token_ids or ())
    continued = prefix_of(second)
    assert continued is not None and continued["source"] == how
    kept = continued["kept"]
    assert taken[:kept] == [*prompt, *said][:kept]
    # The template writes one placeholder; the prefix has one per embedding.
    assert continued["template_matched"] >= len(prompt)
    pad = placeholder(vision_server)
    assert taken[kept:].count(pad) == prompt.count(pad)


@pytest.mark.parametrize("stream", [False, True])
def test_a_prefix_without_its_images_is_refused(
    vision_server: Server, stream: bool
) -> None:
    prompt, said = both(vision_server, "What is", IMAGE, "this?")
    answer = {"role": "assistant", "content": "An image."}
    text = body("What is this?")["messages"]
    with endpoints.refused():
        ask(
            vision_server,
            messages=[*text, answer, *text],
            required_prefix_token_ids=[*prompt, *said],
            stream=stream,
        )
    assert held_requests(vision_server) == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/generate"])
def test_images_without_placeholders_are_refused(
    vision_server: Server, path: str, stream: bool
) -> None:
    prompt, _ = both(vision_server, "What is", IMAGE, "this?")
    pad = placeholder(vision_server)
    first = prompt.index(pad)
    for n_images, given, said in (
        (3, prompt, "placeholders for images"),
        (1, prompt * 2, "placeholders for images"),
        (1, [i for i in prompt if i != pad], "placeholders for images"),
        (1, [10, pad, 11], "finds 0 of them"),
        (1, prompt[: first + 2] + prompt[first + 4 :], "for an image that takes 4"),
    ):
        if path == "/generate":
            asked = {"input_ids": given, "image_data": [images.IMAGE] * n_images}
        else:
            asked = body(*[IMAGE] * n_images, input_ids=given)
        refused = endpoints.send(vision_server, path, **asked, stream=stream)
        assert (refused.status_code, said in refused.text) == (400, True), refused.text
    assert held_requests(vision_server) == []


# Slow, so that the other samples do not finish before the test looks for them.
@pytest.mark.usefixtures("slow_engine")
def test_nothing_of_a_rejected_batch_keeps_running(vision_server: Server) -> None:
    prompt, _ = both(vision_server, "What is", IMAGE, "this?")
    refused = endpoints.send(
        vision_server,
        "/generate",
        input_ids=[prompt, [10, placeholder(vision_server), 11]],
        image_data=[[images.IMAGE], [images.IMAGE]],
        sampling_params={"max_new_tokens": 3000, "ignore_eos": True},
        stream=True,
    )
    assert (refused.status_code, "finds 0 of them" in refused.text) == (400, True)
    assert held_requests(vision_server) == []


@pytest.mark.usefixtures("slow_engine")
def test_a_client_that_disconnects_at_once_leaves_no_request(
    vision_server: Server,
) -> None:
    prompt, _ = both(vision_server, "What is", IMAGE, "this?")
    # The error depends on whether the status arrived in time.
    with pytest.raises(requests.RequestException, match="timed out"):
        requests.post(
            f"{vision_server.base_url}/generate",
            json={
                "input_ids": prompt,
                "image_data": images.IMAGE,
                "sampling_params": {"max_new_tokens": 3000, "ignore_eos": True},
                "stream": True,
            },
            timeout=0.01,
        )
    assert held_requests(vision_server) == []


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_generate_stream_with_an_image_is_complete(
    vision_server: Server, parallel: int
) -> None:
    prompt, said = both(vision_server, "What is", IMAGE, "this?")
    events = endpoints.stream(
        vision_server,
        "/generate",
        input_ids=prompt,
        image_data=images.IMAGE,
        sampling_params={"temperature": 0, "max_new_tokens": 12, "n": parallel},
    )
    last = {event.get("index", 0): event["output_ids"] for event in events}
    assert last == dict.fromkeys(range(parallel), said)
    assert held_requests(vision_server) == []


def test_several_samples_of_an_image_are_answered(vision_server: Server) -> None:
    said = ask(vision_server, "What is", IMAGE, "this?", n=3)
    [one] = ask(vision_server, "What is", IMAGE, "this?").completions
    assert [c.token_ids for c in said.completions] == [one.token_ids] * 3


PARTS = (
    {"type": "image_url", "image_url": {"url": images.IMAGE, "detail": "auto"}},
    {"type": "image_url", "url": images.IMAGE},
    {"type": "image_url", "image_url": images.IMAGE},
)


def of_vllm(server: Server, token_ids: list[int], stream: bool, **more: Any) -> Any:
    """Ask vLLM's endpoint; return prompt, placeholders and each choice's tokens."""
    sampling = {"temperature": 0, "max_tokens": 12, "logprobs": 0}
    sampling |= more.pop("sampling_params", {})
    asked = {"token_ids": token_ids, "sampling_params": sampling, "model": None, **more}
    path, asked = "/inference/v1/generate", {**asked, "return_token_ids": True}
    if stream:
        events = endpoints.stream(server, path, **asked)
    else:
        events = [endpoints.post(server, path, **asked)]
    said: dict[int, list[int]] = {}
    for event in events:
        for choice in event["choices"]:
            said.setdefault(choice["index"], []).extend(choice["token_ids"])
            assert len(choice["logprobs"]["content"]) == len(choice["token_ids"])
    return events[0]["prompt_token_ids"], events[0]["mm_placeholders"], said


@pytest.mark.parametrize("stream", [False, True])
def test_vllms_endpoint_accepts_images(vision_server: Server, stream: bool) -> None:
    prompt, said = both(vision_server, "What is", IMAGE, "this?")
    given = with_one_place(vision_server, prompt)
    range_ = {"offset": given.index(placeholder(vision_server)), "length": PLACES}
    for part in PARTS:
        found = of_vllm(vision_server, given, stream, content_parts=[part])
        assert found == (prompt, {"image": [range_]}, {0: said})
    more = {"content_parts": [PARTS[0]], "sampling_params": {"n": 2}}
    *_, choices = of_vllm(vision_server, given, stream, **more)
    assert choices == {0: said, 1: said}

    past = [*prompt, *said, *prompt]
    second = [*prompt, *said, *given]
    taken, places, _ = of_vllm(vision_server, second, stream, content_parts=PARTS[:2])
    shifted = {**range_, "offset": range_["offset"] + len(prompt) + len(said)}
    assert (taken, places) == (past, {"image": [range_, shifted]})
    assert of_vllm(vision_server, [5, 6, 7], stream)[:2] == ([5, 6, 7], None)


@pytest.mark.parametrize("stream", [False, True])
def test_vllms_endpoint_refuses_images_that_do_not_fit(
    vision_server: Server, stream: bool
) -> None:
    prompt, _ = both(vision_server, "What is", IMAGE, "this?")
    given = with_one_place(vision_server, prompt)
    image = PARTS[1]
    for parts, said in (
        ([image, image], "placeholders for images"),
        ([], None),
        ("an image", "content_parts must be a list"),
        ([{**image, "url": "data:image/png;base64,AA=="}], ""),
        ([{**image, "url": "/no/such/file.png"}], ""),
        ([{**image, "url": "http://127.0.0.1:9/a.png"}], ""),
    ):
        refused = endpoints.send(
            vision_server,
            "/inference/v1/generate",
            token_ids=given,
            sampling_params={"max_tokens": 2},
            content_parts=parts,
            stream=stream,
        )
        if said is None:
            assert refused.status_code == 200
            continue
        assert (refused.status_code, said in refused.text) == (400, True), refused.text
    assert held_requests(vision_server) == []


def test_a_prompt_without_images_is_answered(vision_server: Server) -> None:
    both(vision_server, "What is this?")
    both(vision_server, "-", input_ids=[5, 6, 7])


def test_the_check_of_images_passes(vision_server: Server) -> None:
    subject = Subject(vision_server.base_url)
    assert "a second turn of" in images.check(subject)
