"""vLLM's endpoints: the same tokens as /generate, streaming and not."""

from __future__ import annotations

import http.client
import json
import math
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests

from agentcore_patches.landing.vllm_api.admin import NOT_SUPPORTED
from agentcore_patches.patches.releases import is_between
from agentcore_verify.checks.vllm_api import ROUTES, TOLD
from agentcore_verify.scripted_model import STOP_WORD, line
from agentcore_verify.server import Server
from tests.helpers import weights
from tests.helpers.asking import LOGPROB_NOISE
from tests.helpers.endpoints import (
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    Json,
    answers,
    body_to,
    events_in,
    get,
    ids_in,
    is_traced,
    joined,
    post,
    prompt_of,
    send,
)
from tests.helpers.endpoints import VLLM_GENERATE as GENERATE
from tests.helpers.servers import Launch, Trees, held, held_requests, in_one_mode
from tests.helpers.waiting import wait_until
from tests.live.conftest import PREFIX_CACHE

RENDER = "/v1/chat/completions/render"
ENDLESS = {"max_tokens": 6000, "ignore_eos": True, "temperature": 0}

CASES: dict[str, tuple[str, Json]] = {
    # Name: line of the script, vLLM's parameters.
    "emoji": ("emoji", {}),
    "by length": ("long", {"max_tokens": 30}),
    # Long enough to be written in a thread.
    "a long answer": ("long", {"max_tokens": 1100, "ignore_eos": True}),
    "stop string, kept": (
        "long",
        {"stop": [STOP_WORD], "include_stop_str_in_output": True},
    ),
    "two stop strings": ("long", {"stop": ["zzz", STOP_WORD]}),
    "a stop ID": ("long", {"stop_token_ids": [14]}),
    "two samples": ("emoji", {"n": 2}),
}

IN_SGLANG = {
    "max_tokens": "max_new_tokens",
    "include_stop_str_in_output": "no_stop_trim",
}

# The modes that change the engine's output or its route.
in_modes = pytest.mark.parametrize(
    "mode",
    ["default", "stream-output", "two-workers-stream-output"],
    indirect=True,
    scope="session",
)


# With several workers, any of them may answer.
with_one_worker = pytest.mark.parametrize(
    "mode", ["default", "stream-output"], indirect=True, scope="session"
)


def ask(server: Server, token_ids: list[int], params: Json, **more: Any) -> Json:
    """Return the response to a request; a stream's chunks are joined."""
    params = {"temperature": 0, **params}
    body = {"token_ids": token_ids, "sampling_params": params, **more}
    response = send(server, GENERATE, **body)
    assert response.status_code == 200, response.text
    if not more.get("stream"):
        answer: Json = response.json()
        return answer
    events = events_in(GENERATE, response.text)
    assert len({event["request_id"] for event in events}) == 1
    return joined(events)


def native(server: Server, token_ids: list[int], params: Json, **more: Any) -> Any:
    """Return the answers of `/generate` to a request with vLLM's parameters."""
    params = {"temperature": 0, "max_tokens": 700, **params}
    params = {IN_SGLANG.get(name, name): value for name, value in params.items()}
    body = {"input_ids": token_ids, "sampling_params": params, **more}
    response = send(server, "/generate", **body)
    assert response.status_code == 200, response.text
    answer = response.json()
    return answer if isinstance(answer, list) else [answer]


@in_modes
@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", CASES)
def test_tokens_and_logprobs_are_those_of_generate(
    server: Server, name: str, streaming: bool
) -> None:
    script, params = CASES[name]
    prompt = prompt_of(server, script)
    scored = {"return_logprob": True, "top_logprobs_num": 3, "logprob_start_len": 0}
    expected = native(server, prompt, params, **scored)
    params = {"max_tokens": 700, **params, "logprobs": 3, "prompt_logprobs": 2}
    more = {"return_token_ids": True, "output_mode": "text"}
    answer = ask(server, prompt, params, stream=streaming, **more)
    assert answer["prompt_token_ids"] == prompt
    of_prompt = expected[0]["meta_info"]
    first, *others = answer["prompt_logprobs"]
    assert first is None
    rows, tops = of_prompt["input_token_logprobs"], of_prompt["input_top_logprobs"]
    for said, row, top in zip(others, rows[1:], tops[1:], strict=True):
        assert next(iter(said)) == str(row[1])
        assert set(said) == {str(row[1]), *(str(one[1]) for one in top[:2])}
        assert said[str(row[1])]["logprob"] == pytest.approx(row[0], abs=LOGPROB_NOISE)
    for choice, item in zip(answer["choices"], expected, strict=True):
        meta_info = item["meta_info"]
        assert choice["token_ids"] == item["output_ids"]
        assert choice["finish_reason"] == meta_info["finish_reason"]["type"]
        # SGLang itself repeats characters in the text of a stream with an interval.
        if not streaming:
            assert choice["text"] == item["text"]
        assert choice["weight_versions"] == meta_info["weight_versions"]
        matched = meta_info["finish_reason"].get("matched")
        asked = [*params.get("stop", ()), *params.get("stop_token_ids", ())]
        assert choice.get("stop_reason") == (matched if matched in asked else None)
        entries = choice["logprobs"]["content"]
        rows = meta_info["output_token_logprobs"][: len(choice["token_ids"])]
        for entry, row in zip(entries, rows, strict=True):
            assert entry["token"] == f"token_id:{entry['token_id']}"
            assert entry["token_id"] == row[1]
            assert entry["logprob"] == pytest.approx(row[0], abs=LOGPROB_NOISE)
            own, *others = entry.pop("top_logprobs")
            assert own == entry and entry["rank"] == 1  # Decoding is greedy.
            assert [one["rank"] for one in others] == [2, 3]


@in_one_mode
@pytest.mark.parametrize("most", [None, 40_950, 10**9])
def test_max_tokens_beyond_the_context_fills_it(
    server: Server, most: int | None
) -> None:
    answer = ask(server, prompt_of(server, "long"), {"max_tokens": most})
    [choice] = answer["choices"]
    assert choice["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] > 128  # SGLang's own default.
    # Nothing else was requested.
    assert choice["logprobs"] is None and "text" not in choice
    found = {name for name, value in answer.items() if value is not None}
    assert found == {
        *("request_id", "model", "created", "output_mode", "choices", "usage")
    }
    assert answer.keys() - found == {
        *("prompt_logprobs", "prompt_token_ids", "mm_placeholders"),
        *("kv_transfer_params", "ec_transfer_params"),
    }


@in_one_mode
def test_usage_of_a_stream(server: Server) -> None:
    body = {**body_to(GENERATE, 9), "stream": True}
    body["sampling_params"]["ignore_eos"] = True
    for include, each in ((False, True), (True, False), (True, True)):
        options = {"include_usage": include, "continuous_usage_stats": each}
        response = send(server, GENERATE, **body, stream_options=options)
        *events, last = events_in(GENERATE, response.text)
        assert {"usage" in event for event in events} == {include and each}
        if not include:
            assert "usage" not in last and last["choices"]
            continue
        assert last["choices"] == [] and last["output_mode"] == "tokens"
        assert last["usage"]["prompt_tokens"] == 3
        assert last["usage"]["completion_tokens"] == 9


TOOLS: list[Json] = [
    {"type": "function", "function": {"name": "get", "parameters": {"type": "object"}}}
]

CHATS: dict[str, Json] = {
    "tools": {"tools": TOOLS, "logprobs": True, "top_logprobs": 2},
    "a tool that must be called": {"tools": TOOLS, "tool_choice": "required"},
    "parameters": {
        "min_tokens": 4,
        "stop": [STOP_WORD],
        "top_k": 0,
        "no_stop_trim": True,
        "logit_bias": {"7": 3},
        "cache_salt": "salt",
        "rid": "rendered",
        "presence_penalty": 0.5,
        "return_token_ids": True,
    },
    "a grammar": {"structured_outputs": {"regex": "[ab]{5}"}},
    "a continued message": {"continue_final_message": True},
}


@in_modes
def test_a_chat_is_rendered_to_the_request_that_gives_its_tokens(
    server: Server,
) -> None:
    for name, fields in CHATS.items():
        messages = line("long").messages
        if "continue_final_message" in fields:
            messages = [*messages, {"role": "assistant", "content": "I say"}]
        body = {"messages": messages, "temperature": 0, "max_tokens": 30, **fields}
        rendered = post(server, RENDER, **body)
        assert rendered["features"] is None
        assert rendered["output_mode"] == "tokens" and rendered["priority"] == 0
        response = send(server, CHAT, **{**body, "return_token_ids": True})
        if response.status_code == 400:
            # Newer tool grammars need a token that the scripted model lacks.
            assert name == "a tool that must be called"
            assert send(server, GENERATE, **rendered).status_code == 400
            continue
        chat = response.json()
        assert rendered["token_ids"] == chat["prompt_token_ids"], name
        generated = post(server, GENERATE, **rendered)
        [of_chat], [choice] = chat["choices"], generated["choices"]
        assert choice["token_ids"] == of_chat["token_ids"], name
        assert choice["finish_reason"] in (of_chat["finish_reason"], "stop")
        if "logprobs" in fields:
            entries = choice["logprobs"]["content"]
            assert [len(entry["top_logprobs"]) for entry in entries] == [2] * 30
        if "rid" in fields:
            assert rendered["request_id"] == generated["request_id"] == "rendered"
            assert rendered["cache_salt"] == "salt"
            assert generated["prompt_token_ids"] == rendered["token_ids"]
    streamed = post(server, RENDER, **{**body, "stream": True})
    assert streamed["stream"] is True
    assert post(server, RENDER, **body)["request_id"] != rendered["request_id"]


@pytest.mark.parametrize("mode", ["reasoning"], indirect=True, scope="session")
def test_a_rendered_grammar_applies_after_the_reasoning(server: Server) -> None:
    body = {"messages": line("reasoning").messages, "temperature": 0, "max_tokens": 300}
    body["structured_outputs"] = {"regex": "[ab]{5}"}
    rendered = post(server, RENDER, **body)
    assert rendered["reasoning_ended"] is False
    response = send(server, CHAT, **body)
    if response.status_code == 400:
        # llguidance, the backend without a GPU, has no reasoning in newer releases.
        assert "no attribute 'allocate_vocab_mask'" in response.text
        assert send(server, GENERATE, **rendered).status_code == 400
        return
    [of_chat] = response.json()["choices"]
    [choice] = post(server, GENERATE, **rendered)["choices"]
    assert choice["token_ids"] == of_chat["token_ids"]
    ended = {**rendered, "reasoning_ended": True, "output_mode": "text"}
    [choice] = post(server, GENERATE, **ended)["choices"]
    assert re.fullmatch("[ab]{5}", choice["text"])
    assert choice["token_ids"] != of_chat["token_ids"]


LONG = "word " * 30_000
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


REQUESTS: dict[str, Json] = {
    # The last is the last of the vocabulary.
    GENERATE: {"token_ids": [5, 447], "sampling_params": {"max_tokens": 2}},
    RENDER: {"messages": line("plain").messages, "temperature": 0},
    CHAT: {"messages": line("plain").messages, "max_tokens": 2},
    COMPLETIONS: {"model": "m", "prompt": [5, 6], "max_tokens": 2},
}

# Fields that replace those of a good request, the status, and a word of the error.
# tests/unit has tables of more fields.
REFUSED: tuple[tuple[str, Json, int, str], ...] = (
    (GENERATE, {"token_ids": [1, -1]}, 400, "token_ids"),
    (GENERATE, {"sampling_params": {"temperature": -1}}, 400, "temperature"),
    (GENERATE, {"sampling_params": {"top_p": math.inf}}, 400, "JSON"),
    (GENERATE, {"sampling_params": {"logit_bias": {"x": 1}}}, 400, "logit_bias"),
    (GENERATE, {"model": "another"}, 404, "model"),
    (COMPLETIONS, {"best_of": 2}, 400, "best_of"),
    (CHAT, {"guided_json": {"type": "object"}}, 400, "guided_json"),
    (RENDER, {"messages": None}, 400, "messages"),
    (RENDER, {"messages": []}, 400, "Messages"),
    (RENDER, {"response_format": 7}, 400, "no attribute"),
    (RENDER, {"messages": [{"role": "user", "content": [IMAGE]}]}, 400, "images"),
    (RENDER, {"tool_choice": "required"}, 400, "Tools"),
    (RENDER, {"return_hidden_states": True}, 400, "return_hidden_states"),
    (RENDER, {"top_p": 7}, 400, "top_p"),
    (RENDER, {"logprobs": True, "top_logprobs": -1}, 400, "logprobs"),
    (RENDER, {"model": "another"}, 404, "another"),
    (RENDER, {"messages": [{"role": "user", "content": LONG}]}, 400, "token_ids"),
    ("/update_weights", {"update_info": {"names": ["a"]}}, 501, "weight_dir"),
    ("/update_weights", {"weight_dir": None}, 501, "weight_dir"),
    ("/update_weights", {"weight_dir": "/missing"}, 400, "/missing"),
    *((path, {"init_info": {}}, 501, "weight_dir") for path in NOT_SUPPORTED),
    ("/collective_rpc", {"method": "save"}, 501, "save"),
    ("/collective_rpc", {}, 400, "method"),
    ("/collective_rpc", {"method": "reload_weights"}, 400, "weights_path"),
    ("/pause?mode=stop", {}, 400, "mode"),
    ("/pause", {"modes": "keep"}, 400, "modes"),
    ("/reset_prefix_cache", {"reset_running_requests": True}, 400, "running"),
    ("/sleep?level=2", {}, 400, "--enable-memory-saver"),
    ("/abort_requests", {"request_ids": [7]}, 400, "request_ids"),
    ("/v1/load_lora_adapter", {}, 400, "lora"),
    ("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "/no"}, 400, "lora"),
    ("/v1/unload_lora_adapter", {"lora_name": "a"}, 400, "lora"),
)


@in_one_mode
def test_what_cannot_be_honoured_is_refused(server: Server) -> None:
    def refuse(path: str, text: str, status: int, word: str) -> None:
        url, headers = server.base_url + path, {"Content-Type": "application/json"}
        response = requests.post(url, data=text, headers=headers, timeout=60)
        assert response.status_code == status, (path, text, response.text)
        error = response.json()
        message = error.get("error", error)["message"]
        assert word in message and len(message) > 10, (path, text, message)

    for path, fields, status, word in REFUSED:
        body = {**REQUESTS.get(path, {}), **fields}
        refuse(path, json.dumps(body), status, word)
        if path in (GENERATE, CHAT, COMPLETIONS):
            refuse(path, json.dumps({**body, "stream": True}), status, word)
    for text in ("", "no JSON", "[1]"):
        refuse(GENERATE, text, 400, "")
    assert held_requests(server) == []
    assert send(server, GENERATE, **REQUESTS[GENERATE]).ok


@in_modes
def test_completions_honour_the_fields_of_vllm(server: Server) -> None:
    prompts = [prompt_of(server, "long"), prompt_of(server, "plain")]
    body = {"model": "m", "prompt": prompts, "max_tokens": 5, "temperature": 0}
    flags = {"return_token_ids": True, "return_tokens_as_token_ids": True}
    expected = post(server, COMPLETIONS, **body, **flags, logprobs=0)
    found = post(server, COMPLETIONS, **body, **flags, logprobs=0, top_k=0, n=2)
    for index, choice in enumerate(found["choices"]):
        same = expected["choices"][index // 2]
        assert choice["token_ids"] == same["token_ids"]
        assert choice["prompt_token_ids"] == prompts[index // 2]
        logprobs = choice["logprobs"]
        assert logprobs["top_logprobs"] == [
            {name: value}
            for name, value in zip(
                logprobs["tokens"], logprobs["token_logprobs"], strict=True
            )
        ]
        assert "prompt_logprobs" not in choice
    scored = post(server, COMPLETIONS, **body, prompt_logprobs=3, logprobs=1)
    for prompt, choice in zip(prompts, scored["choices"], strict=True):
        generated = ask(server, prompt, {"max_tokens": 1, "prompt_logprobs": 3})
        ours, theirs = (one["prompt_logprobs"] for one in (choice, generated))
        assert len(ours) == len(prompt) and ours[0] is theirs[0] is None
        for one, other in zip(ours[1:], theirs[1:], strict=True):
            assert [*one] == [*other]
            for entry, same in zip(one.values(), other.values(), strict=True):
                assert entry["rank"] == same["rank"] <= 4
                assert abs(entry["logprob"] - same["logprob"]) <= LOGPROB_NOISE
        assert [len(top) for top in choice["logprobs"]["top_logprobs"]] == [1] * 5
    scored = post(server, COMPLETIONS, **body, prompt_logprobs=0, logprobs=0)
    for prompt, choice in zip(prompts, scored["choices"], strict=True):
        ids = [[*one] for one in choice["prompt_logprobs"][1:]]
        assert ids == [[str(token_id)] for token_id in prompt[1:]]
        assert not choice["logprobs"]["top_logprobs"]
    for more in ({}, flags):
        echoed = post(server, COMPLETIONS, **body, **more, echo=True, logprobs=0)
        for prompt, choice in zip(prompts, echoed["choices"], strict=True):
            logprobs = choice["logprobs"]
            rows = [*zip(*logprobs.values(), strict=True)]
            assert len(rows) == len(prompt) + 5
            assert logprobs["token_logprobs"][0] is logprobs["top_logprobs"][0] is None
            assert all(value <= 0 for value in logprobs["token_logprobs"][1:])
            lengths = map(len, logprobs["tokens"])
            assert logprobs["text_offset"] == [*accumulate(lengths, initial=0)][:-1]
    structured = {"structured_outputs": {"regex": "[ab]{4}"}}
    for choice in post(server, COMPLETIONS, **body, **structured)["choices"]:
        assert len(choice["text"]) == 4 and set(choice["text"]) <= {"a", "b"}
    chat = {"messages": line("plain").messages, "temperature": 0, "top_k": 0}
    answer = post(server, CHAT, **chat, **structured, tools=TOOLS, tool_choice="none")
    content = answer["choices"][0]["message"]["content"]
    assert len(content) == 4 and set(content) <= {"a", "b"}


@in_one_mode
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
def test_stop_reasons_and_stop_strings_in_the_text(
    server: Server, path: str, streaming: bool
) -> None:
    body: Json = {"messages": line("long").messages}
    if path == COMPLETIONS:
        body = {"prompt": prompt_of(server, "long")}
    body |= {"temperature": 0, "max_tokens": 700, "return_token_ids": True}

    def ended(**more: Any) -> tuple[Any, str]:
        events = answers(server, path, streaming, **{**body, **more})
        [choice] = joined(events)["choices"]
        said = choice.get("delta", choice.get("message", {})).get("content")
        return choice.get("stop_reason"), choice.get("text", said)

    reason, text = ended(stop=["zzz", STOP_WORD])
    assert reason == STOP_WORD and STOP_WORD not in text
    reason, text = ended(stop=[STOP_WORD], include_stop_str_in_output=True)
    assert reason == STOP_WORD and text.endswith(STOP_WORD)
    comma = post(server, "/tokenize", prompt=",", add_special_tokens=False)["tokens"]
    assert ended(stop_token_ids=comma)[0] == comma[0]
    assert ended()[0] is None
    assert ended(max_tokens=5)[0] is None


@in_modes
@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
def test_sampling_masks(server: Server, release: str, streaming: bool) -> None:
    prompt = prompt_of(server, "plain")
    params = {"max_tokens": 6, "ignore_eos": True, "temperature": 1, "top_k": 5}
    wanted = ("return_sampling_mask", "return_sampling_mask_logprobs")
    for name, first in zip(wanted, ("0.5.16", "0.5.21"), strict=True):
        given = {**params, name: True}
        if not is_between(release, first, ""):
            body = {"token_ids": prompt, "sampling_params": given}
            response = send(server, GENERATE, **body, stream=streaming)
            assert response.status_code == 400
            assert f"{name} is not supported" in response.text
            assert f"SGLang {first}" in response.text
            continue
        [choice] = ask(server, prompt, given, stream=streaming)["choices"]
        masks = choice["sampling_mask"]
        assert len(masks) == len(choice["token_ids"]) == 6
        for token_id, mask in zip(choice["token_ids"], masks, strict=True):
            assert token_id in mask and len(mask) <= 5
        if name == wanted[0]:
            assert "sampling_mask_logprobs" not in choice
            continue
        for mask, logprobs in zip(masks, choice["sampling_mask_logprobs"], strict=True):
            assert len(logprobs) == len(mask)
            assert sum(map(math.exp, logprobs)) == pytest.approx(1, abs=1e-3)


# Slow enough for the client to leave before the first token, too.
@in_modes
@pytest.mark.usefixtures("slow_engine")
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("n", [1, 2])
def test_a_disconnect_aborts_the_request(server: Server, n: int, begun: bool) -> None:
    # The prefill takes a while, since no other request has this salt.
    body = {"token_ids": [7] * 8_000, "cache_salt": f"{uuid.uuid4()}", "stream": True}
    body["sampling_params"] = {**ENDLESS, "max_tokens": 3000, "n": n}
    address = server.base_url.removeprefix("http://")
    with closing(http.client.HTTPConnection(address, timeout=60)) as connection:
        connection.request("POST", GENERATE, json.dumps(body))
        if begun:
            assert connection.getresponse().readline()
        else:
            wait_until(lambda: bool(held(server)))
    assert held_requests(server) == []


@in_modes
@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("n", [1, 2])
def test_requests_are_aborted_by_their_id(
    server: Server, mode: str, n: int, streaming: bool
) -> None:
    workers = mode.startswith("two-workers")
    if workers and n > 1:
        pytest.skip("a worker knows only its own samples")
    prompt = prompt_of(server, "long")
    params = {**ENDLESS, "n": n, "logprobs": 0}
    with ThreadPoolExecutor(2) as pool:
        answers = [
            pool.submit(ask, server, prompt, params, request_id=name, stream=streaming)
            for name in ("turn-1", "turn-10")
        ]
        seen: set[str] = set()  # Any worker may answer, with its own requests.

        def all_run() -> bool:
            seen.update(held(server))
            return len(seen) >= 2 * n

        wait_until(all_run)
        time_before = time.monotonic()
        reply = send(server, "/abort_requests", request_ids=["turn-1", "unknown"])
        assert reply.json()["aborted"] in ((0, 1) if workers else (1,))
        for choice in answers[0].result(timeout=30)["choices"]:
            assert choice["finish_reason"] == "abort"
            assert len(choice["logprobs"]["content"]) == len(choice["token_ids"])
            spans = choice["weight_versions"]
            assert sum(span["end"] - span["start"] for span in spans) == len(
                choice["token_ids"]
            )
        assert time.monotonic() - time_before < 20
        assert not answers[1].done(), "an ID that starts alike was aborted, too"
        send(server, "/abort_requests", request_ids=["turn-10"])
        for choice in answers[1].result(timeout=30)["choices"]:
            assert choice["finish_reason"] == "abort"
    assert held_requests(server) == []


def paused(server: Server) -> bool:
    return bool(get(server, "/is_paused")["is_paused"])


@in_modes
@pytest.mark.parametrize("path", [GENERATE, "/generate"])
def test_an_abort_without_ids_aborts_all_requests(
    server: Server, mode: str, path: str
) -> None:
    prompt = prompt_of(server, "long")
    body: Json = {"token_ids": prompt, "sampling_params": ENDLESS}
    if path == "/generate":
        endless = {"max_new_tokens": 6000, "ignore_eos": True}
        body = {"input_ids": prompt, "sampling_params": endless, "rid": "other"}
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(send, server, path, **body)
        wait_until(lambda: bool(held(server)))
        ids = {"request_ids": ["other"]} if path == "/generate" else {}
        reply = send(server, "/abort_requests", **ids).json()
        assert reply["status"] == "aborted"
        if not mode.startswith("two-workers"):
            assert reply["aborted"] == 1
        assert '"abort"' in answer.result(timeout=30).text
    assert held_requests(server) == []


# Slow enough for the pause to hit the answer midway.
@with_one_worker
@pytest.mark.usefixtures("slow_engine")
@pytest.mark.parametrize("mode_of_pause", ["abort", "wait", "keep"])
def test_pauses(server: Server, mode_of_pause: str) -> None:
    prompt = prompt_of(server, "long")
    params = {"max_tokens": 100, "ignore_eos": True, "temperature": 0, "logprobs": 0}
    expected = ask(server, prompt, params)["choices"][0]["token_ids"]
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, server, prompt, params)
        wait_until(lambda: bool(held(server)))
        reply = send(server, f"/pause?mode={mode_of_pause}")
        assert reply.json() == {"status": "paused"}
        assert paused(server)
        if mode_of_pause == "keep":
            assert not answer.done()
        else:
            answer.result(timeout=10)
        waiting = pool.submit(ask, server, prompt, {"max_tokens": 2})
        assert send(server, "/resume").json() == {"status": "resumed"}
        assert waiting.result(timeout=30)["usage"]["completion_tokens"] == 2
        [choice] = answer.result(timeout=30)["choices"]
    assert not paused(server)
    if mode_of_pause == "abort":
        assert choice["token_ids"] == expected[: len(choice["token_ids"])]
        assert choice["finish_reason"] == "abort"
    else:
        assert choice["token_ids"] == expected
        assert choice["finish_reason"] == "length"


@with_one_worker
@pytest.mark.usefixtures("slow_engine")
def test_a_paused_server_refuses_what_would_never_end(server: Server) -> None:
    def check_health() -> int:
        url = f"{server.base_url}/health"
        return requests.get(url, timeout=60).status_code

    params = {"max_tokens": 100, "ignore_eos": True, "temperature": 0}
    with ThreadPoolExecutor(4) as pool:
        answer = pool.submit(ask, server, prompt_of(server, "long"), params)
        wait_until(lambda: bool(held(server)))
        refused = send(server, "/pause?mode=keep&clear_cache=true")
        assert (refused.status_code, paused(server)) == (400, False)
        assert send(server, "/pause?mode=keep").ok
        for _ in range(2):
            refused = send(server, "/pause?mode=wait&clear_cache=false")
            assert refused.status_code == 400 and "Resume it first" in refused.text
            assert paused(server)
        checks = [pool.submit(check_health) for _ in range(3)]
        time_before = time.monotonic()
        while time.monotonic() < time_before + 1:
            assert get(server, "/load")["server_load"] == 1
        assert send(server, "/resume").ok
        assert answer.result(timeout=60)["usage"]["completion_tokens"] == 100
        assert [check.result(timeout=60) for check in checks] == [200] * 3
    for path in ("/pause?mode=keep", "/pause?mode=wait", "/resume"):
        assert send(server, path).ok


@pytest.fixture(scope="module")
def mute(scripted_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights") / "step_7"
    return weights.make(scripted_model, folder, weights.mute)


# test_weight_versions has answers that run through an update.
@with_one_worker
@pytest.mark.parametrize("way", ["update_weights", "collective_rpc"])
def test_weights_from_a_folder_under_a_pause(
    server: Server, scripted_model: Path, mute: Path, way: str
) -> None:
    def update(folder: Path) -> None:
        body: Json = {"weight_dir": str(folder)}
        if way == "collective_rpc":
            kwargs = {"weights_path": str(folder), "is_checkpoint_format": True}
            body = {"method": "reload_weights", "kwargs": kwargs}
        assert send(server, "/pause?mode=keep&clear_cache=false").ok
        response = send(server, f"/{way}", **body)
        assert response.status_code == 200, response.text
        assert send(server, "/resume").ok

    names = [model["id"] for model in get(server, "/v1/models")["data"]]
    prompt = prompt_of(server, "long")
    before = ask(server, prompt, {"max_tokens": 3})["choices"][0]["token_ids"]
    update(mute)
    try:
        assert get(server, "/weight_info") == {"weight_version": "step_7"}
        assert [model["id"] for model in get(server, "/v1/models")["data"]] == names
        later = ask(server, prompt, {"max_tokens": 3}, model=names[0])
        [choice] = later["choices"]
        assert choice["token_ids"] == [weights.MUTE_TOKEN] * 3
        assert [span["version"] for span in choice["weight_versions"]] == ["step_7"]
        assert later["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    finally:
        update(scripted_model)
    body = {"new_version": "default", "abort_all_requests": False}
    assert send(server, "/update_weight_version", **body).ok
    after = ask(server, prompt, {"max_tokens": 3})["choices"][0]["token_ids"]
    assert after == before


@in_one_mode
def test_a_folder_with_other_contents_is_another_version(
    server: Server, scripted_model: Path, tmp_path: Path
) -> None:
    folder = weights.make(scripted_model, tmp_path / "same", weights.mute)

    def update() -> str:
        response = send(server, "/update_weights", weight_dir=str(folder))
        assert response.status_code == 200, response.text
        [choice] = ask(server, [5, 6, 7], {"max_tokens": 3})["choices"]
        version: str = choice["weight_versions"][0]["version"]
        assert response.json()["weight_version"] == version
        return version

    def rename(version: str) -> None:
        body = {"new_version": version, "abort_all_requests": False}
        assert send(server, "/update_weight_version", **body).ok

    try:
        rename("same")  # Not these weights.
        assert [update(), update()] == ["same#2"] * 2
        shutil.rmtree(folder)
        weights.make(scripted_model, folder, weights.changed)
        assert update() == "same#3"
        rename("between")
        assert update() == "same#3"
        shutil.rmtree(folder)
        weights.make(scripted_model, folder, weights.mute)
        assert update() == "same#4"
    finally:
        body = {"weight_dir": str(scripted_model), "weight_version": "default"}
        assert send(server, "/update_weights", **body).ok


@in_modes
def test_status_endpoints_of_trainers(server: Server) -> None:
    for path, found in (
        ("/liveness", {"status": "ok"}),
        ("/get_world_size", {"world_size": 1}),
        ("/get_world_size?include_dp=false", {"world_size": 1}),
        ("/load?include_inflight=true&inflight_limit=100", {"server_load": 0}),
    ):
        assert get(server, path) == found
    config = get(server, "/server_info?config_format=json")["vllm_config"]
    assert config["parallel_config"]["tensor_parallel_size"] == 1
    assert config["weight_transfer_config"] is None
    assert send(server, "/reset_prefix_cache").status_code == 200


@in_modes
def test_tokenize_and_detokenize(server: Server) -> None:
    text = "Say hello."
    tokenized = post(server, "/tokenize", prompt=text, return_token_strs=True)
    assert len(tokenized["token_strs"]) == tokenized["count"] > 1
    assert post(server, "/tokenize", prompt=text)["token_strs"] is None
    both = post(server, "/tokenize", prompt=[text, text], return_token_strs=True)
    assert both["token_strs"] == [tokenized["token_strs"]] * 2
    assert post(server, "/detokenize", tokens=tokenized["tokens"])["prompt"] == text


@pytest.fixture(scope="module")
def guarded(trees: Trees, launch: Launch) -> Iterator[Server]:
    args = ("--admin-api-key", "secret", "--enable-metrics", "--enable-memory-saver")
    with launch(trees.patched, *args) as running:
        yield running


def test_endpoints_require_the_key_of_sglangs_own(guarded: Server) -> None:
    def status(path: str) -> int:
        return requests.post(guarded.base_url + path, timeout=60).status_code

    for path in {*ROUTES, *NOT_SUPPORTED} - {GENERATE, RENDER, *TOLD, "/is_sleeping"}:
        assert status(path) == 401, path
    for path in ("/is_paused", "/load", "/model_info"):
        url = guarded.base_url + path
        assert requests.get(url, timeout=60).status_code == 200


@pytest.mark.usefixtures("slow_engine")
def test_a_server_generates_again_once_fully_awake(guarded: Server) -> None:
    def control(path: str) -> requests.Response:
        key = {"Authorization": "Bearer secret"}
        return requests.post(guarded.base_url + path, headers=key, timeout=60)

    def state() -> tuple[bool, bool]:
        return paused(guarded), get(guarded, "/is_sleeping")["is_sleeping"]

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, guarded, [5, 6, 7], ENDLESS)
        wait_until(lambda: bool(held(guarded)))
        for query, word in (
            ("", "--enable-weights-cpu-backup"),
            ("?level=1&tags=weights", "--enable-weights-cpu-backup"),
            ("?level=3", "level"),
            ("?level=2&mode=keep", "keep"),
            ("?level=2&tags=all", "tags"),
        ):
            refused = control(f"/sleep{query}")
            assert refused.status_code == 400 and word in refused.text, query
        assert state() == (False, False) and not answer.done()
        assert control("/sleep?level=2").status_code == 200
        assert answer.result(timeout=30)["choices"][0]["finish_reason"] == "abort"
    assert state() == (True, True)
    assert control("/wake_up?tags=weights").status_code == 200
    assert state() == (True, True)
    assert control("/wake_up?tags=kv_cache").status_code == 200
    assert state() == (False, False)
    # Level 1 keeps the weights.
    assert control("/sleep?level=1&tags=kv_cache").status_code == 200
    assert control("/wake_up").status_code == 200
    assert ask(guarded, [5, 6, 7], {"max_tokens": 2})["choices"]


ADAPTED = (
    *("--enable-lora", "--lora-backend", "torch_native"),
    *("--max-loras-per-batch", "2", "--max-lora-rank", str(weights.RANK)),
    *("--lora-target-modules", *weights.ADAPTED),
)


class Adapted(NamedTuple):
    """A server named `served`, with a memory, and the folders of two adapters."""

    server: Server
    folders: list[Path]

    def load(
        self, path: str, folder: int = 0, name: str = "policy", **more: Any
    ) -> requests.Response:
        adapter = {"lora_name": name, "lora_path": str(self.folders[folder])}
        return send(self.server, path, **{**adapter, **more})


@pytest.fixture(scope="module")
def adapted(
    trees: Trees, launch: Launch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Adapted]:
    folder = tmp_path_factory.mktemp("adapters")
    adapters = [weights.make_adapter(folder / str(seed), seed) for seed in (0, 1)]
    args = (*ADAPTED, "--served-model-name", "served")
    with launch(trees.patched, *args, env={PREFIX_CACHE: "1"}) as server:
        yield Adapted(server, adapters)


# The model's name, the field lora_path, and the weights that must answer, or the
# status. The served name is that of the first adapter; "policy" is the second.
NAMED: tuple[tuple[str, str | None, str], ...] = (
    ("served", None, "first"),
    ("policy", None, "second"),
    ("served:policy", None, "second"),
    ("served:served", None, "first"),
    ("default", None, "base"),
    ("PATH", None, "base"),
    ("unknown", None, "404"),
    ("served:unknown", None, "404"),
    ("served", "policy", "second"),
    ("unknown", "policy", "second"),
    ("policy", "served", "first"),
    ("served", "unknown", "400"),
)


def test_a_model_name_is_the_base_an_adapter_or_unknown(
    adapted: Adapted, release: str
) -> None:
    server = adapted.server
    path = get(server, "/model_info")["model_path"]
    for folder, name in enumerate(("served", "policy")):
        response = adapted.load("/load_lora_adapter", folder, name)
        assert response.status_code == 200, response.text
    listed = get(server, "/v1/models")["data"]
    assert [model["id"] for model in listed] == ["served", "policy"]
    assert listed[0]["max_model_len"]
    prompt = prompt_of(server, "plain")
    known = {}
    for name, adapter in (("base", None), ("first", "served"), ("second", "policy")):
        [item] = native(server, prompt, {"max_tokens": 4}, lora_path=adapter)
        known[name] = (item["output_ids"], item["text"])

    def answering(
        endpoint: str, streaming: bool, model: str, lora_path: str | None
    ) -> str:
        """Return whose tokens an endpoint answers with, or its status."""
        # SGLang's /v1/responses generates two tokens fewer than requested.
        n_tokens = 6 if endpoint == RESPONSES else 4
        body: Json = {
            **body_to(endpoint, n_tokens),
            "model": model.replace("PATH", path),
        }
        if endpoint in (GENERATE, COMPLETIONS):
            body["token_ids" if endpoint == GENERATE else "prompt"] = prompt
        if is_traced(endpoint, release):
            body["return_token_ids"] = True
        if lora_path:
            body["lora_path"] = lora_path
        response = send(server, endpoint, **body, stream=streaming)
        if response.status_code != 200:
            return str(response.status_code)
        # A stream may have sent its status before SGLang looks for the adapter.
        failed = '"code": ?400|"invalid_request_error"|"type": ?"error"'
        if re.search(failed, response.text):
            return "400"
        events = events_in(endpoint, response.text) if streaming else [response.json()]
        ids, output = ids_in(events), events[0].get("output")
        for name, (expected_ids, text) in known.items():
            if ids == expected_ids:
                return name
            # Without IDs; it omits the half of a character at the end.
            if output and not ids and text.startswith(output[0]["content"][0]["text"]):
                return name
        return f"{ids} {response.text[:600]}"

    if not release.startswith("0.5.8"):
        body = {"model": "unknown", "messages": line("plain").messages}
        counted = send(server, f"{MESSAGES}/count_tokens", **body)
        assert counted.status_code == 200, counted.text
    for endpoint in (GENERATE, CHAT, COMPLETIONS, MESSAGES, RESPONSES):
        if endpoint == MESSAGES and not is_traced(MESSAGES, release):
            continue
        # From 0.5.20 on, SGLang's /v1/responses wants a name of /v1/models.
        is_strict = endpoint == RESPONSES and is_between(release, "0.5.20", "")
        for model, lora_path, expected in NAMED:
            if lora_path and endpoint == GENERATE:
                continue
            if is_strict and model in ("default", "PATH", "unknown"):
                expected = "404"
            for streaming in (False, True)[: 1 + is_traced(endpoint, release)]:
                asked = endpoint, streaming, model, lora_path
                assert answering(*asked) == expected, asked
    for name in ("served", "policy"):
        assert send(server, "/unload_lora_adapter", lora_name=name).ok


@pytest.mark.usefixtures("slow_engine")
def test_an_adapter_can_be_replaced_under_its_name(adapted: Adapted) -> None:
    server, load = adapted.server, adapted.load
    prompt = prompt_of(server, "plain")
    params = {"max_tokens": 4}

    def ids(**more: Any) -> list[int]:
        found: list[int] = ask(server, prompt, params, **more)["choices"][0][
            "token_ids"
        ]
        return found

    base = ids()
    found = []
    for path in ("/v1/load_lora_adapter", "/load_lora_adapter"):
        more: Json = {"load_inplace": True} if path.startswith("/v1") else {}
        for folder in (0, 1):
            response = load(path, folder, **more)
            assert response.status_code == 200, response.text
            found.append(ids(model="policy"))
        more["weight_version"] = f"{path}-8"
        assert load(path, 1, **more).status_code == 200
        [choice] = ask(server, prompt, params, model="policy")["choices"]
        [span] = choice["weight_versions"]
        assert span["version"] == f"{path}-8"
        assert get(server, "/model_info")["weight_version"] == f"{path}-8"
    refused = load("/v1/load_lora_adapter")
    assert refused.status_code == 400 and "load_inplace" in refused.text
    first, second = found[:2]
    assert found[2:] == [first, second] and base not in found and first != second
    # Running requests finish on the old weights, new requests wait.
    long = {"max_tokens": 150, "ignore_eos": True}
    with ThreadPoolExecutor(2) as pool:
        old = pool.submit(ask, server, prompt, long, model="policy", stream=True)
        wait_until(lambda: bool(held(server)))
        replacing = pool.submit(load, "/load_lora_adapter")
        while ids(model="policy") != first:
            # The server has not read the request to load yet.
            assert not replacing.done()
        assert replacing.result(timeout=60).status_code == 200
        [choice] = old.result(timeout=60)["choices"]
    assert len(choice["token_ids"]) == 150 and choice["token_ids"][:4] == second
    # An adapter that is loaded anew under its name uses no cache of the earlier one.
    same = adapted.folders[0].with_name("same")
    for folder, expected in enumerate((first, second)):
        assert send(server, "/v1/unload_lora_adapter", lora_name="policy").ok
        weights.make_adapter(same, folder)
        assert load("/load_lora_adapter", lora_path=str(same)).status_code == 200
        answer = ask(server, prompt, params, model="policy")
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert answer["choices"][0]["token_ids"] == expected == ids(model="policy")
    assert send(server, "/v1/unload_lora_adapter", lora_name="policy").ok
    left = {"token_ids": prompt, "sampling_params": params, "model": "policy"}
    assert send(server, GENERATE, **left).status_code == 404


@pytest.mark.usefixtures("slow_engine")
def test_an_adapter_with_paused_requests_is_not_unloaded(adapted: Adapted) -> None:
    server, load = adapted.server, adapted.load

    def unload(path: str) -> requests.Response:
        return send(server, path, lora_name="policy")

    assert load("/v1/load_lora_adapter").status_code == 200
    params = {"max_tokens": 200, "ignore_eos": True}
    token_ids = prompt_of(server, "plain")
    for while_loading, mode in ((False, "keep"), (True, "keep"), (True, "abort")):
        with ThreadPoolExecutor(2) as pool:
            answer = pool.submit(ask, server, token_ids, params, model="policy")
            wait_until(lambda: bool(held(server)))
            if while_loading:
                loaded = pool.submit(load, "/load_lora_adapter", 1)
                wait_until(lambda: "policy" in held(server))
            assert send(server, f"/pause?mode={mode}").ok
            if while_loading:
                results = [loaded.result(timeout=30)]
            else:
                results = [load("/v1/load_lora_adapter", 1, load_inplace=True)]
                results += map(
                    unload, ("/v1/unload_lora_adapter", "/unload_lora_adapter")
                )
            for result in results:
                assert result.status_code == (200 if mode == "abort" else 400)
                assert ("its requests are paused" in result.text) == (mode == "keep")
            assert load("/load_lora_adapter", name="other").status_code == 200
            assert paused(server) and (mode == "abort" or not answer.done())
            body = {"new_version": "7", "abort_all_requests": False}
            assert send(server, "/update_weight_version", **body).status_code == 200
            assert send(server, "/resume").ok
            [choice] = answer.result(timeout=60)["choices"]
            n_tokens = len(choice["token_ids"])
            assert (n_tokens == 200) == (mode == "keep")
        assert send(server, "/unload_lora_adapter", lora_name="other").ok
    assert unload("/v1/unload_lora_adapter").status_code == 200
    assert held_requests(server) == []
