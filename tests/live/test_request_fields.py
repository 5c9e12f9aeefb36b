"""Odd values in fields that the patches add, in prompts and in token IDs, beside a stream."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest
import requests

from agentcore_patches.patches.releases import is_between
from agentcore_verify.client import Answer
from agentcore_verify.server import Server
from tests.helpers.asking import Case, ask, assert_equal, assert_whole
from tests.helpers.endpoints import (
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    Json,
    body_to,
    post,
    send,
)
from tests.helpers.servers import held, held_requests
from tests.helpers.waiting import wait_until
from tests.sglang_sources.test_api_page import rows

pytestmark = pytest.mark.parametrize(
    "mode", ["default"], indirect=True, scope="session"
)

ROUNDS = 16
PATIENCE = 5
"""Seconds until a client that waits for an answer goes away."""

SAMPLING = {"max_new_tokens": 4, "temperature": 0}
BODIES: dict[str, Json] = {
    "/generate": {"input_ids": [5, 6, 7], "return_logprob": True},
    "/tokenize": {"prompt": "Say hello."},
    "/detokenize": {"tokens": [5, 6]},
    **{path: body_to(path, 4) for path in (CHAT, COMPLETIONS, RESPONSES, MESSAGES)},
}
NATIVE: dict[str, tuple[str, ...]] = {
    "/generate": (
        *("input_ids", "text", "stop_token_ids"),
        *("token_ids_logprob", "logit_bias", "min_new_tokens"),
    ),
    CHAT: ("stop_token_ids", "logit_bias"),
    COMPLETIONS: ("prompt", "stop_token_ids", "logit_bias"),
    RESPONSES: ("input",),
    "/tokenize": ("prompt",),
    "/detokenize": ("tokens",),
}
"""SGLang's own fields with prompts and token IDs."""

NAN, INFINITY = float("nan"), float("inf")
ANYWHERE: list[Any] = [
    *(None, True, False, 0, 1, -1, 7, 0.5, NAN, INFINITY, 1e308),
    *(2**31, 2**63, 2**70, -(2**63)),
    *("", "x", "NaN", "-1"),
    *([], [0], [-1], [5, 2**40], [[]], [None], ["x"], [[1, [2]]], [{}]),
    *({}, {"x": 1}, {"5": "y"}),
]
THERE: dict[str, list[Any]] = {
    "input_ids": [[[5], [6, 7]]],
    "text": ["a", ["a", "b"]],
    "prompt": [["a", "b"], [5], [[5], [6]]],
    "tokens": [[[5], [6]], [99999]],
    "routed_experts_start_len": [2, 3, 100],
    "structured_outputs": [{"regex": "a+"}, {"regex": "("}, {"json": {}}],
    "stop_token_ids": [[5], [99_999], [-5], [5, None]],
    "token_ids_logprob": [[3, 4], [99999], [[3]], [[3], None]],
}
ALONE: dict[str, list[Any]] = {
    "min_new_tokens": [2, 4],
    "logit_bias": [{"5": 100}, {"99999": 1}, {"-1": 1}, {"x": 1}],
}
"""Values of fields that get no others."""
IN_SAMPLING = {"stop_token_ids", "logit_bias", "min_new_tokens"}
"""Names that `/generate` takes in its sampling parameters."""


def body_of(path: str, fields: Json, stream: bool) -> Json:
    """Return a request with these values in some fields."""
    fields = dict(fields)
    if path == "/generate":
        there = {name: fields.pop(name) for name in IN_SAMPLING & fields.keys()}
        fields["sampling_params"] = {**SAMPLING, **there}
    body = {"model": "default", **BODIES[path], **fields}
    if body.get("text") is not None:
        body.pop("input_ids", None)
    return {**body, "stream": True} if stream else body


def odd_fields(path: str) -> dict[str, list[Any]]:
    """Return odd values of the fields that the patches add, of prompts and of IDs."""
    added = [name for where, part, name in rows() if (where, part) == (path, "Request")]
    return {
        name: ALONE.get(name) or [*ANYWHERE, *THERE.get(name, ())]
        for name in sorted({*added, *NATIVE.get(path, ())})
    }


def odd_requests() -> Iterator[list[tuple[str, Json]]]:
    """Yield requests to send together."""
    chance = random.Random(7)
    fields = {path: odd_fields(path) for path in BODIES}
    assert "required_prefix_token_ids" in fields[CHAT]
    # Half are of the endpoint that checks least.
    paths = ["/generate"] * len(BODIES) + [*BODIES]
    for _ in range(ROUNDS):
        odds = []
        for path in chance.choices(paths, k=9):
            # The same name may be drawn again.
            names = chance.choices(sorted(fields[path]), k=chance.randrange(4))
            values = {name: chance.choice(fields[path][name]) for name in names}
            odds.append((path, body_of(path, values, chance.random() < 0.5)))
        yield odds


def attempt(server: Server, path: str, body: Json) -> None:
    """Send a request; if it is answered, check the answer."""
    # SGLang 0.5.10 to 0.5.13 cut a stream that the scheduler refuses.
    cut = requests.exceptions.ChunkedEncodingError
    with suppress(requests.Timeout, cut):
        answer = send_json(server, path, body, timeout=PATIENCE)
        is_stream = "event-stream" in answer.headers.get("Content-Type", "")
        if answer.status_code == 200 and not is_stream:
            assert_own_ids(path, answer.json())


def send_json(
    server: Server, path: str, body: Any, timeout: float = 60
) -> requests.Response:
    """Send a body with NaN in it, which clients write, too."""
    data, headers = json.dumps(body), {"Content-Type": "application/json"}
    url = server.base_url + path
    return requests.post(url, data=data, headers=headers, timeout=timeout)


def assert_own_ids(path: str, answer: Any) -> None:
    """Check that an answer has as many IDs as its token count."""
    if path == "/generate":
        for one in answer if isinstance(answer, list) else [answer]:
            meta_info = one["meta_info"]
            if "beam_results" in meta_info:
                continue
            assert len(one["output_ids"]) == meta_info["completion_tokens"]
            if "output_token_logprobs" in meta_info:
                given = [row[1] for row in meta_info["output_token_logprobs"]]
                assert given == one["output_ids"]
    elif path == CHAT and "token_ids" in answer["choices"][0]:
        n_ids = sum(len(choice["token_ids"]) for choice in answer["choices"])
        assert n_ids == answer["usage"]["completion_tokens"]


NEIGHBOUR = Case("long", options={"max_tokens": 60, "top_logprobs": 2})


@contextmanager
def beside_a_stream(server: Server, quiet: Answer) -> Iterator[None]:
    """Check that the stream of another request is exact while the block runs."""
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(ask, server, NEIGHBOUR, stream=True)
        wait_until(lambda: stream.done() or held(server))
        yield
    assert_whole(stream.result())
    assert_equal(stream.result(), quiet)


@pytest.fixture(scope="module")
def quiet(server: Server) -> Answer:
    return ask(server, NEIGHBOUR)


def test_no_field_of_ours_prompt_or_id_harms_the_server_or_its_streams(
    server: Server, quiet: Answer, release: str
) -> None:
    for odds in odd_requests():
        with beside_a_stream(server, quiet), ThreadPoolExecutor(len(odds)) as pool:
            [*pool.map(partial(attempt, server), *zip(*odds, strict=True))]
        alive = send(server, "/generate", input_ids=[5], sampling_params=SAMPLING)
        assert alive.status_code == 200
        # These keep a note of what they refuse themselves.
        if not is_between(release, "0.5.10", "0.5.13"):
            assert held_requests(server) == []


# On releases that do not check them themselves; tests/unit has a table of more.
CRASHING: dict[str, tuple[str, Json]] = {
    "temperature": ("/generate", {"sampling_params": {"temperature": NAN}}),
    "top_logprobs_num": (CHAT, {"logprobs": True, "top_logprobs": 10**6}),
    "custom_logit_processor": ("/generate", {"custom_logit_processor": "{}"}),
}


def test_a_value_that_crashes_the_engine_is_a_400(server: Server) -> None:
    for name, (path, fields) in CRASHING.items():
        body = {"model": "default", **BODIES[path], **fields}
        answer = send_json(server, path, body)
        assert answer.status_code == 400
        assert name in answer.text


# Slow enough for all requests to run at the same time.
@pytest.mark.usefixtures("slow_engine")
def test_a_grammar_applies_only_to_its_own_request(
    server: Server, quiet: Answer
) -> None:
    asked = {"prompt": "Say hello.", "max_tokens": 4, "temperature": 0}
    refused = {"sampling_params": {**SAMPLING, "json_schema": '{"type": "nothing"}'}}
    for _ in range(4):
        with beside_a_stream(server, quiet), ThreadPoolExecutor(2) as pool:
            # The second one leaves the batch at once: the first one changes its row.
            grammar = pool.submit(post, server, COMPLETIONS, **asked, regex="[0-9]{3}")
            pool.submit(send, server, "/generate", **BODIES["/generate"], **refused)
        assert re.fullmatch("[0-9]{3}", grammar.result()["choices"][0]["text"])


def test_a_grammar_ends_before_min_tokens_rather_than_by_an_unsampled_token(
    server: Server,
) -> None:
    for temperature in (0, 0.7):
        params = {"temperature": temperature, "max_new_tokens": 8, "min_new_tokens": 4}
        asked = {"input_ids": [5, 6, 7], "sampling_params": {**params, "regex": "a"}}
        answer = post(server, "/generate", **asked)
        assert answer["text"] == "a"
        assert answer["meta_info"]["finish_reason"]["type"] == "stop"
        assert len(answer["output_ids"]) == 2


# As `to_str` of the class returns it, but for the pickle's protocol.
NO_TOKENS = json.dumps(
    {
        "callable": b"csglang.srt.sampling.custom_logit_processor\n"
        b"DisallowedTokensLogitsProcessor\n.".hex()
    }
)


@pytest.mark.usefixtures("slow_engine")
def test_a_logit_processor_is_for_its_own_request_alone(
    server: Server, quiet: Answer
) -> None:
    [choice] = quiet.completions
    unwanted = [*dict.fromkeys(choice.token_ids or ())]
    params = {**SAMPLING, "custom_params": {"token_ids": unwanted}}
    body = {**BODIES["/generate"], "sampling_params": params}
    with beside_a_stream(server, quiet), ThreadPoolExecutor(2) as pool:
        # Both leave the batch before the stream ends.
        processed, refused = pool.map(
            lambda given: send(
                server, "/generate", **body, custom_logit_processor=given
            ),
            (NO_TOKENS, "x"),
        )
    assert refused.status_code == 400
    ids = processed.json()["output_ids"]
    assert len(ids) == SAMPLING["max_new_tokens"]
    assert not {*ids} & {*unwanted}
