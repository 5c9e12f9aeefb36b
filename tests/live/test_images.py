"""Prompts with images, on a tiny Qwen2-VL with its real processor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests

from agentcore_verify import checks, client
from agentcore_verify.checks import images
from agentcore_verify.client import Answer
from agentcore_verify.results import Outcome
from agentcore_verify.server import Server
from agentcore_verify.subject import Subject
from tests.helpers import endpoints, tiny_vision_model
from tests.helpers.asking import assert_equal, assert_whole
from tests.helpers.conversing import prefix_of
from tests.helpers.servers import Launch, Trees, held_requests
from tests.live import in_sglang, in_vision_processor
from tests.live.conftest import PassesInSGLang
from tests.live.defects.planting import ChatStream
from tests.live.proxy import Defect, Proxy

IMAGE = {"type": "image_url", "image_url": {"url": images.IMAGE}}
QUESTION = ("What is", IMAGE, "this?")
PLACES = 4
"""Number of placeholders of the image: 56 x 56 pixels, 28 x 28 for each."""

in_both_ways = pytest.mark.parametrize("stream", [False, True])


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
    body = {"prompt": text, "add_special_tokens": False}
    tokens: list[int] = endpoints.post(server, "/tokenize", **body)["tokens"]
    return tokens


def both(server: Server, *parts: Any, **more: Any) -> tuple[list[int], list[int]]:
    """Return prompt and completion IDs; check that streaming yields the same."""
    whole = ask(server, *parts, **more)
    streamed = ask(server, *parts, **more, stream=True)
    assert_whole(streamed)
    assert_equal(streamed, whole)
    [choice] = whole.completions
    return [*(whole.prompt_token_ids or ())], [*(choice.token_ids or ())]


class Asked(NamedTuple):
    """A question with an image: its IDs, expanded or not, and those of the answer."""

    prompt: list[int]
    answer: list[int]
    given: list[int]
    pad: int


@pytest.fixture(scope="module")
def asked(vision_server: Server) -> Asked:
    prompt, answer = both(vision_server, *QUESTION)
    [pad] = tokenized(vision_server, "<|image_pad|>")
    assert prompt.count(pad) == PLACES
    first = prompt.index(pad)
    given = prompt[: first + 1] + prompt[first + PLACES :]
    return Asked(prompt, answer, given, pad)


@pytest.fixture
def nothing_held(vision_server: Server) -> Iterator[None]:
    """Check that the server holds no request afterwards."""
    yield
    assert held_requests(vision_server) == []


def test_a_prompt_of_ids_is_prefilled_unchanged_but_for_expanded_images(
    vision_server: Server, asked: Asked
) -> None:
    prompt, answer, given, _ = asked
    assert both(vision_server, "-", IMAGE, input_ids=given) == (prompt, answer)
    # A part of a character: no tokenizer produces it from text.
    [part, *others] = tokenized(vision_server, "中")
    assert others
    odd = [part, 10, 11, 10, *given, 11, part]
    expanded, _ = both(vision_server, "-", IMAGE, input_ids=odd)
    assert expanded == [part, 10, 11, 10, *prompt, 11, part]
    # A second turn starts with the IDs of the first.
    past = [*prompt, *answer, *prompt]
    for input_ids in (past, [*prompt, *answer, *given]):
        assert both(vision_server, IMAGE, IMAGE, input_ids=input_ids)[0] == past
    both(vision_server, "What is this?")
    both(vision_server, "-", input_ids=[5, 6, 7])


@in_both_ways
@pytest.mark.usefixtures("nothing_held")
def test_a_prefix_needs_its_images_and_accepts_new_ones(
    vision_server: Server, asked: Asked, stream: bool
) -> None:
    required = [*asked.prompt, *asked.answer]
    more = {"required_prefix_token_ids": required, "stream": stream}
    answer = {"role": "assistant", "content": "An image."}
    [first], [last] = body(*QUESTION)["messages"], body("And", IMAGE)["messages"]
    second = ask(vision_server, messages=[first, answer, last], **more)
    prompt = list(second.prompt_token_ids or ())
    continued = prefix_of(second)
    assert continued is not None
    kept = continued["kept"]
    assert prompt[:kept] == required[:kept]
    # The template writes one placeholder; the prefix has one per embedding.
    assert continued["template_matched"] >= len(asked.prompt)
    assert prompt[kept:].count(asked.pad) == PLACES
    [text] = body("What is this?")["messages"]
    with endpoints.refused():
        ask(vision_server, messages=[text, answer, text], **more)


def request_to(path: str, token_ids: list[int], urls: list[str]) -> dict[str, Any]:
    """Return a request with a prompt of token IDs and images."""
    parts: list[Any] = [{"type": "image_url", "url": url} for url in urls]
    sampling = {"sampling_params": {"max_tokens": 2}, "content_parts": parts}
    if path == endpoints.VLLM_GENERATE:
        return {"token_ids": token_ids, **sampling}
    if path == endpoints.CHAT:
        parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        return body(*parts, input_ids=token_ids)
    return {"input_ids": token_ids, "image_data": urls}


@in_both_ways
@pytest.mark.usefixtures("nothing_held")
@pytest.mark.parametrize("path", [endpoints.CHAT, "/generate", endpoints.VLLM_GENERATE])
def test_images_that_do_not_fit_or_cannot_be_read_are_refused(
    vision_server: Server, asked: Asked, path: str, stream: bool
) -> None:
    prompt, _, given, pad = asked
    first = prompt.index(pad)
    for urls, ids, reason in (
        ([images.IMAGE] * 3, prompt, "placeholders for images"),
        ([images.IMAGE], prompt * 2, "placeholders for images"),
        ([images.IMAGE], [i for i in prompt if i != pad], "placeholders for images"),
        ([images.IMAGE], [10, pad, 11], "finds 0 of them"),
        (
            [images.IMAGE],
            prompt[: first + 2] + prompt[first + 4 :],
            "for an image that takes 4",
        ),
        (["data:image/png;base64,AA=="], given, ""),
        (["/no/such/file.png"], given, ""),
        (["http://127.0.0.1:9/a.png"], given, ""),
    ):
        request = request_to(path, ids, urls)
        refused = endpoints.send(vision_server, path, **request, stream=stream)
        assert refused.status_code == 400 and reason in refused.text, refused.text


ENDLESS = {"max_new_tokens": 3000, "ignore_eos": True}


# Slow, so that the other samples do not finish before the test looks for them.
@pytest.mark.usefixtures("slow_engine", "nothing_held")
def test_nothing_of_a_rejected_or_abandoned_request_keeps_running(
    vision_server: Server, asked: Asked
) -> None:
    refused = endpoints.send(
        vision_server,
        "/generate",
        input_ids=[asked.prompt, [10, asked.pad, 11]],
        image_data=[[images.IMAGE], [images.IMAGE]],
        sampling_params=ENDLESS,
        stream=True,
    )
    assert refused.status_code == 400 and "finds 0 of them" in refused.text
    assert held_requests(vision_server) == []
    request = {"input_ids": asked.prompt, "image_data": images.IMAGE, "stream": True}
    # The error depends on whether the status arrived in time.
    with pytest.raises(requests.RequestException, match="timed out"):
        requests.post(
            f"{vision_server.base_url}/generate",
            json={**request, "sampling_params": ENDLESS},
            timeout=0.01,
        )


@pytest.mark.usefixtures("nothing_held")
@pytest.mark.parametrize("parallel", [1, 2])
def test_a_generate_stream_with_an_image_is_complete(
    vision_server: Server, asked: Asked, parallel: int
) -> None:
    events = endpoints.stream(
        vision_server,
        "/generate",
        input_ids=asked.prompt,
        image_data=images.IMAGE,
        sampling_params={"temperature": 0, "max_new_tokens": 12, "n": parallel},
    )
    last = {event.get("index", 0): event["output_ids"] for event in events}
    assert last == dict.fromkeys(range(parallel), asked.answer)


PARTS = [
    {"type": "image_url", "image_url": {"url": images.IMAGE, "detail": "auto"}},
    {"type": "image_url", "url": images.IMAGE},
]


def of_vllm(
    server: Server, token_ids: list[int], stream: bool, n: int = 1, **more: Any
) -> Any:
    """Ask vLLM's endpoint; return prompt, placeholders and each choice's tokens."""
    sampling = {"temperature": 0, "max_tokens": 12, "logprobs": 0, "n": n}
    request: dict[str, Any] = {"token_ids": token_ids, "sampling_params": sampling}
    request |= {"model": None, "return_token_ids": True, **more}
    events = endpoints.answers(server, endpoints.VLLM_GENERATE, stream, **request)
    found: dict[int, list[int]] = {}
    for event in events:
        for choice in event["choices"]:
            found.setdefault(choice["index"], []).extend(choice["token_ids"])
            assert len(choice["logprobs"]["content"]) == len(choice["token_ids"])
    return events[0]["prompt_token_ids"], events[0]["mm_placeholders"], found


@in_both_ways
def test_vllms_endpoint_accepts_images(
    vision_server: Server, asked: Asked, stream: bool
) -> None:
    prompt, answer, given, pad = asked
    place = {"offset": given.index(pad), "length": PLACES}
    found = of_vllm(vision_server, given, stream, content_parts=PARTS[:1])
    assert found == (prompt, {"image": [place]}, {0: answer})
    *_, found = of_vllm(vision_server, given, stream, n=2, content_parts=PARTS[:1])
    assert found == {0: answer, 1: answer}

    second = [*prompt, *answer, *given]
    taken, places, _ = of_vllm(vision_server, second, stream, content_parts=PARTS)
    shifted = {**place, "offset": place["offset"] + len(prompt) + len(answer)}
    assert taken == [*prompt, *answer, *prompt]
    assert places == {"image": [place, shifted]}
    found = of_vllm(vision_server, [5, 6, 7], stream, content_parts=[])
    assert found[:2] == ([5, 6, 7], None)


class OtherPrompt(Defect):
    def whole(self, path: str, body: client.Json, response: Any) -> None:
        if "input_ids" in body:
            response["prompt_token_ids"].insert(1, 5)


class LogprobLost(ChatStream):
    def choice(self, body: client.Json, choice: client.Json) -> None:
        if choice.get("token_ids"):
            choice["logprobs"]["content"].pop()


@pytest.mark.parametrize(
    ("defect", "outcome", "word"),
    [
        (Defect, Outcome.PASSED, "a second turn of"),
        (OtherPrompt, Outcome.FAILED, "differ from the input_ids"),
        (LogprobLost, Outcome.FAILED, "token_ids but"),
    ],
)
def test_the_check_of_images_finds_each_defect(
    vision_server: Server, defect: type[Defect], outcome: Outcome, word: str
) -> None:
    with Proxy(vision_server.base_url) as proxy:
        proxy.plant(defect())
        result = checks.get("images").run(Subject(proxy.url))
    assert (result.outcome, word in result.message) == (outcome, True), result
