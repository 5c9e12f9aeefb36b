"""The same requests to a patched SGLang and to a real vLLM: `make peers`.

Everything that vLLM answers must be in the patched server's answer: status, tokens,
text, reasons, usage, logprobs. The patched server may answer more.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from rich.console import Console

from agentcore_verify.contract import LEVELS
from agentcore_verify.progress import Progress
from agentcore_verify.runner import Options, run
from agentcore_verify.scripted_model import STOP_WORD, TOOLS, line
from agentcore_verify.server import Server, free_port
from tests.helpers.endpoints import CHAT, COMPLETIONS, Json, events_in, joined
from tests.helpers.endpoints import VLLM_GENERATE as GENERATE
from tests.helpers.peers import CONTEXT, VLLM_ENV, running, vllm_command
from tests.helpers.servers import Launch, Trees

needs_vllm = pytest.mark.vllm

PYTHON = "AGENTCORE_TEST_VLLM"
"""The variable that names an interpreter with vLLM."""

PAGE = Path(__file__).parents[2] / "docs/reference/api.md"

RENDER = "/v1/chat/completions/render"
MODEL = "peer"
NOISE = 2e-3

LONG: Json = {"messages": line("long").messages}
PROMPT = "the prompt's IDs"
"""Stands for the IDs of the prompt of `LONG` in a request."""

TOP_LEVEL = (
    *("token_ids", "return_token_ids", "output_mode", "request_id", "model"),
    *("cache_salt", "priority"),
)
"""Fields of generate that are no sampling parameters."""


def generate(**fields: Any) -> tuple[str, Json]:
    fields = {"temperature": 0, "max_tokens": 12, "logprobs": 2, **fields}
    top = {name: fields.pop(name) for name in TOP_LEVEL if name in fields}
    return GENERATE, {"token_ids": PROMPT, "sampling_params": fields, **top}


def chat(**fields: Any) -> tuple[str, Json]:
    count = fields.pop("logprobs", 2)
    logprobs = {} if count is None else {"logprobs": True, "top_logprobs": count}
    return _by_id(CHAT, **{**LONG, **logprobs, **fields})


def completions(**fields: Any) -> tuple[str, Json]:
    return _by_id(COMPLETIONS, **{"prompt": PROMPT, "logprobs": 2, **fields})


def _by_id(path: str, **fields: Any) -> tuple[str, Json]:
    # By text, SGLang has "�" for each token of a character, and vLLM "" for some.
    by_id = {"return_token_ids": True, "return_tokens_as_token_ids": True}
    return path, {"temperature": 0, "max_tokens": 12, **by_id, **fields}


def echo(**fields: Any) -> tuple[str, Json]:
    # With the IDs, vLLM omits the prompt's text. SGLang omits special tokens.
    few = {"prompt": [5, 6, 7], "max_tokens": 8, "return_token_ids": None}
    return completions(echo=True, **{**few, "logprobs": None, **fields})


def likeliest(path: str, **params: Any) -> tuple[str, Json]:
    """A request for the likeliest first tokens, whichever is sampled."""
    make = {GENERATE: generate, CHAT: chat, COMPLETIONS: completions}[path]
    return make(logprobs=8, **{"max_tokens": 1, "temperature": 2.0, **params})


# Sampling parameters for generate, chat and completions.
SAMPLED: dict[str, Json] = {
    "greedy": {},
    "EOS": {"max_tokens": 600},
    "no logprobs": {"logprobs": None},
    "logprobs 0": {"logprobs": 0},
    "two stop strings": {"max_tokens": 600, "stop": ["zzz", STOP_WORD]},
    "a stop string kept": {
        "max_tokens": 600,
        "stop": STOP_WORD,
        "include_stop_str_in_output": True,
    },
    "stop IDs": {"max_tokens": 600, "stop_token_ids": [32, 201, 275]},
    "penalties": {
        "repetition_penalty": 1.3,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.5,
    },
    "a bias": {"logit_bias": {"7": 30}},
    "no EOS": {"max_tokens": 285, "ignore_eos": True},
    "min_tokens": {"min_tokens": 300, "max_tokens": 310},
    "filters": {"top_k": 5, "top_p": 0.9, "min_p": 0.1},
    "top_k 0": {"top_k": 0},
    "special tokens": {"max_tokens": 600, "skip_special_tokens": False},
    "a regex": {"structured_outputs": {"regex": "[ab]{6}"}},
    "a choice": {"structured_outputs": {"choice": ["red", "blue"]}},
    "a JSON object": {"structured_outputs": {"json_object": True}},
    "a schema": {"structured_outputs": {"json": {"type": "boolean"}}},
    "a grammar": {"structured_outputs": {"grammar": 'root ::= "ab" | "cd"'}},
    "n 2": {"n": 2, "temperature": 0.01},
    "a salt": {"cache_salt": "one"},
    "priority 0": {"priority": 0},
    "neutral values": {"allowed_token_ids": None, "bad_words": [], "seed": 3},
    "without IDs": {
        "return_token_ids": False,
        "max_tokens": 600,
        "stop": STOP_WORD,
        "logprobs": None,
    },
    # Values that a server may reject.
    "n 2, greedy": {"n": 2},
    "unsupported: allowed_token_ids": {"allowed_token_ids": [5, 6]},
    "unsupported: bad_words": {"bad_words": ["a"]},
    "unsupported: truncate_prompt_tokens": {"truncate_prompt_tokens": 3},
    "priority 1": {"priority": 1},
    "more than is left": {"max_tokens": CONTEXT - 10},
    "no tokens": {"max_tokens": 0},
    "a wrong temperature": {"temperature": -1},
    "a high temperature": {"temperature": 3},
    "a wrong top_p": {"top_p": 2},
    "a wrong top_k": {"top_k": -5},
    "a wrong min_p": {"min_p": 2},
    "a wrong penalty": {"presence_penalty": 5},
    "a repetition_penalty of 0": {"repetition_penalty": 0},
    "wrong logprobs": {"logprobs": -5},
    "many logprobs": {"logprobs": 50},
    "min above max": {"min_tokens": 20, "max_tokens": 10},
    "a wrong n": {"n": 0},
    "an empty stop string": {"stop": [""]},
    "wrong stop IDs": {"stop_token_ids": ["a"]},
    "a wrong bias": {"logit_bias": {"a": 1}},
    "a bias beyond the vocabulary": {"logit_bias": {"999999": 1}},
    "a wrong grammar": {"structured_outputs": {"grammar": "root ::= ("}},
    "a wrong regex": {"structured_outputs": {"regex": "[a"}},
    "a wrong flag": {"ignore_eos": "x"},
    "half a token": {"max_tokens": 12.5},
    "an empty salt": {"cache_salt": ""},
    "an unknown model": {"model": "another"},
}

# Requests of single endpoints.
OTHERS: dict[str, tuple[str, Json]] = {
    "generate, the prompt's IDs": generate(return_token_ids=True, request_id="turn-1"),
    "generate, text": generate(output_mode="text"),
    "generate, no max_tokens": generate(max_tokens=None),
    "generate, prompt logprobs 0": generate(prompt_logprobs=0, logprobs=None),
    "generate, prompt logprobs 2": generate(prompt_logprobs=2),
    "generate, an unknown ID": generate(token_ids=[10**6]),
    "generate, a long prompt": generate(token_ids=[5] * 2000),
    "generate, no parameters": (GENERATE, {"token_ids": [5, 6]}),
    "generate, an unknown field": generate(unknown=1),
    "chat, tokens by text": chat(max_tokens=8, return_tokens_as_token_ids=None),
    "chat, tools": chat(
        messages=line("tool").messages, tools=list(TOOLS), max_tokens=300
    ),
    "chat, a tool choice of none": chat(tools=list(TOOLS), tool_choice="none"),
    "chat, a message to continue": chat(
        messages=[*LONG["messages"], {"role": "assistant", "content": "I say"}],
        continue_final_message=True,
        add_generation_prompt=False,
    ),
    "chat, neutral values": chat(
        truncate_prompt_tokens=None, add_special_tokens=False, length_penalty=1.0
    ),
    "chat, no messages": chat(messages=None),
    "completions, text": completions(prompt="Say hello."),
    "completions, text as it is": completions(
        prompt="Say hello.", add_special_tokens=False
    ),
    "completions, two prompts": completions(prompt=[[5, 6, 7], [8, 9]], max_tokens=5),
    "completions, half a character": completions(
        prompt=[5, 6, 7], return_tokens_as_token_ids=None
    ),
    "completions, prompt logprobs": completions(prompt_logprobs=1, logprobs=1),
    "completions, a null max_tokens": completions(max_tokens=None),
    "completions, echo": echo(),
    "completions, echo of text": echo(prompt="Say hello."),
    "completions, echo and logprobs 0": echo(logprobs=0),
    "completions, echo and logprobs 2": echo(logprobs=2),
    "completions, echo, text, logprobs 0": echo(prompt="Say hello.", logprobs=0),
    "render, tools": (RENDER, {**LONG, "tools": list(TOOLS), "max_tokens": 12}),
    "render, no messages": (RENDER, {}),
    "tokenize, strings": (
        "/tokenize",
        {"prompt": "Say hello.", "return_token_strs": True},
    ),
    "tokenize, messages": ("/tokenize", LONG),
    "detokenize": ("/detokenize", {"tokens": [87, 85, 275]}),
    "is_paused": ("GET /is_paused", {}),
    "pause": ("/pause?mode=keep", {}),
    "paused": ("GET /is_paused", {}),
    "resume": ("/resume", {}),
    "pause, a wrong mode": ("/pause?mode=never", {}),
    "abort": ("/abort_requests", {"request_ids": ["unknown"]}),
    "abort all": ("/abort_requests", {}),
    "reset": ("/reset_prefix_cache", {}),
    "awake": ("GET /is_sleeping", {}),
    "wake up": ("/wake_up", {}),
    "world size": ("GET /get_world_size", {}),
    "load": ("GET /load", {}),
    "health": ("GET /health", {}),
    "weights": ("GET /weight_info", {}),
    "collective_rpc, no method": ("/collective_rpc", {}),
}

REQUESTS: dict[str, tuple[str, Json]] = {
    f"{make.__name__}, {name}": make(**fields)
    for make in (generate, chat, completions)
    for name, fields in SAMPLED.items()
} | OTHERS

WHOLE = [(name, False) for name in REQUESTS]

# Tool calls are cut into other chunks.
STREAMS = [
    (name, True)
    for name, (path, body) in REQUESTS.items()
    if path in (GENERATE, CHAT, COMPLETIONS) and not body.get("tools")
]

DIFFERENCES: dict[str, str] = {
    "Identifiers, times": r".*\.(id|request_id|created|system_fingerprint): ",
    "`usage` counts": r".*\.prompt_tokens_details(:|\.)",
    "`n` above 1": r"\w+, n 2, greedy.*: 400, not 200$",
    "`allowed_token_ids`, ": (
        r"(\w+, unsupported|generate, (priority 1|an unknown field)).*: 200, not 400$"
    ),
    "SGLang has no upper limit": (
        r"\w+, (a high temperature|many logprobs).*: 400, not 200$"
    ),
    "Chat and completions serve": (
        r"(chat|completions), (no tokens|an (empty|unknown)|a wrong top_k|wrong logprobs)"
        r".*: 40[04], not 200$"
    ),
    "Chat streams with `n: 0`": r"chat, a wrong n, streamed.*: 400, not 'broken off'$",
    "Chat and completions reject a `max_tokens`": (
        r"(chat, more|completions, (more|a null)).*: 200, not 400$"
    ),
    "With `--grammar-backend": r"\w+, a wrong regex.*: 400, not 200$",
    "Raw logprobs include": r"\w+, (penalties|a bias|min_tokens).*\.logprobs\.",
    "The logprob of a token": r"(chat|completions), a .*: -9999\.0, not -3\.4",
    "`decoded_token` of": r".*\.prompt_logprobs\[.*\.(decoded_token|rank): ",
    'With `output_mode: "text"`': r"generate, text.*\.logprobs\.",
    "With `return_tokens_as_token_ids: true`": r"chat, .*\.bytes\b",
    "A token that is a part of a character": (
        r"completions, half a.*\.(text|tokens|top_logprobs|text_offset)\b"
    ),
    "`text_offset` is -1": r"completions, .*\.text_offset.*, not -1$",
    "Streams with `echo`": r"completions, echo.*, streamed.*\.text: ",
    "With `echo`, `top_logprobs`": r"completions, echo.*\.top_logprobs\[",
    "With `echo`, vLLM": r"completions, echo.*\.prompt_(logprobs|token_ids): ",
    "Without `return_token_ids": r"(chat|completions), without IDs.*\.stop_reason: ",
    "With `return_token_ids": r"chat, tools.*\.content: None, not ''$",
    'With `tool_choice: "none"`': r"chat, a tool choice of none",
    "Rendered requests omit": (
        r"render.*\.(output_kind|skip_clone|skip_reading_prefix_cache): "
    ),
    "`max_model_len` of": r"tokenize.*\.max_model_len: ",
    "`aborted` counts": r"abort.*\.aborted: ",
}
"""Deliberate differences, in the order of docs/reference/api.md.

Each has the beginning of the page's sentence, and a pattern of the requests and of the
fields that differ.
"""

SEEN: set[str] = set()
"""The differences that the tests met."""


@pytest.fixture(scope="module", params=["raw", "processed"])
def logprobs_mode(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def vllm(
    scripted_model: Path, tmp_path_factory: pytest.TempPathFactory, logprobs_mode: str
) -> Iterator[str]:
    """The URL of a vLLM with the same model."""
    python = os.environ.get(PYTHON)
    if python is None:
        pytest.fail(f"{PYTHON} names no interpreter with vLLM: run `make peers`")
    mode = ("--logprobs-mode", f"{logprobs_mode}_logprobs")
    command = vllm_command(python, scripted_model, MODEL, *mode)
    log = tmp_path_factory.mktemp("vllm") / "vllm.log"
    with running(command, free_port(), "/health", log, VLLM_ENV) as url:
        yield url


@pytest.fixture(scope="module")
def sglang(trees: Trees, launch: Launch, logprobs_mode: str) -> Iterator[Server]:
    raw = {"SGLANG_RETURN_ORIGINAL_LOGPROB": "1"} if logprobs_mode == "raw" else {}
    args = (
        # SGLang leaves the last two positions empty.
        *("--served-model-name", MODEL, "--context-length", str(CONTEXT + 2)),
        "--enable-cache-report",
    )
    with launch(trees.patched, *args, env=raw, mirror_sampler=False) as running:
        yield running


@pytest.fixture(scope="module")
def prompt(vllm: str) -> list[int]:
    answer = requests.post(
        f"{vllm}/tokenize", json={"model": MODEL, **LONG}, timeout=60
    )
    ids: list[int] = answer.json()["tokens"]
    return ids


def answer_of(url: str, path: str, body: Json, prompt: list[int]) -> Json:
    """Return the status of a response, and its JSON, or the joined chunks of a stream."""
    method, _, path = path.rpartition(" ")
    body = {name: prompt if value == PROMPT else value for name, value in body.items()}
    if path in (GENERATE, RENDER, CHAT, COMPLETIONS, "/tokenize", "/detokenize"):
        body = {"model": MODEL, **body}
    method = method or "POST"
    try:
        response = requests.request(method, url + path, json=body, timeout=120)
    except requests.exceptions.ChunkedEncodingError:
        return {"status": "broken off"}
    if response.status_code != 200:
        return {"status": response.status_code}
    if body.get("stream"):
        events = events_in(path, response.text)
        errors = [event["error"] for event in events if "error" in event]
        if errors:
            return {"status": errors[0]["code"]}
        return {"status": 200, **joined(events)}
    return {"status": 200, **(response.json() if response.text else {})}


def differences(of_vllm: Any, of_sglang: Any, where: str) -> Iterator[str]:
    """Yield what vLLM's answer has, and the other has not."""
    if of_vllm in (None, [], {}) and of_sglang in (None, [], {}):
        return
    if isinstance(of_vllm, dict) and isinstance(of_sglang, dict):
        if of_vllm.get("status") != of_sglang.get("status"):
            of_vllm, of_sglang = (
                {"status": one["status"]} for one in (of_vllm, of_sglang)
            )
        for name, value in of_vllm.items():
            yield from differences(value, of_sglang.get(name), f"{where}.{name}")
    elif isinstance(of_vllm, list) and isinstance(of_sglang, list):
        if len(of_vllm) != len(of_sglang):
            yield f"{where}: {len(of_vllm)} elements, not {len(of_sglang)}: {of_vllm} {of_sglang}"
        for i, (one, other) in enumerate(zip(of_vllm, of_sglang, strict=False)):
            yield from differences(one, other, f"{where}[{i}]")
    elif isinstance(of_vllm, float) and isinstance(of_sglang, (int, float)):
        if abs(of_vllm - of_sglang) > NOISE:
            yield f"{where}: {of_vllm}, not {of_sglang}"
    elif of_vllm != of_sglang:
        yield f"{where}: {of_vllm!r}, not {of_sglang!r}"


def is_listed(found: str) -> bool:
    """True if a difference is one of `DIFFERENCES`."""
    reasons = [
        reason for reason, pattern in DIFFERENCES.items() if re.match(pattern, found)
    ]
    SEEN.update(reasons)
    return bool(reasons)


@needs_vllm
@pytest.mark.parametrize("logprobs_mode", ["raw"], indirect=True, scope="module")
@pytest.mark.parametrize(("name", "streaming"), [*WHOLE, *STREAMS])
def test_answers_have_what_those_of_vllm_have(
    vllm: str, sglang: Server, prompt: list[int], name: str, streaming: bool
) -> None:
    path, body = REQUESTS[name]
    if streaming:
        body = {**body, "stream": True, "stream_options": {"include_usage": True}}
        name += ", streamed"
    of_vllm, of_sglang = (
        answer_of(url, path, body, prompt) for url in (vllm, sglang.base_url)
    )
    found = [one for one in differences(of_vllm, of_sglang, name) if not is_listed(one)]
    assert "\n".join(found) == ""


@needs_vllm
def test_each_difference_is_there() -> None:
    assert not DIFFERENCES.keys() - SEEN


def test_the_page_lists_the_differences() -> None:
    text = PAGE.read_text().split("### Differences from vLLM")[1].split("\n#")[0]
    listed = re.findall(r"^- (.*)", text, re.MULTILINE)
    for one, beginning in zip(listed, DIFFERENCES, strict=True):
        assert one.startswith(beginning)


@needs_vllm
@pytest.mark.parametrize("path", [GENERATE, CHAT, COMPLETIONS])
def test_logprobs_of_a_scaled_distribution(
    vllm: str, sglang: Server, prompt: list[int], logprobs_mode: str, path: str
) -> None:
    # SGLang's raw logprobs include the bias.
    bias = {"logit_bias": {"7": 5}} if logprobs_mode == "processed" else {}
    for sampling in ({}, bias):
        found = []
        for url in (vllm, sglang.base_url):
            path, body = likeliest(path, **sampling)
            found.append(answer_of(url, path, body, prompt)["choices"][0])
        of_vllm, of_sglang = map(by_name, found)
        assert len(of_vllm.keys() & of_sglang.keys()) > 6
        for token in of_vllm.keys() & of_sglang.keys():
            assert of_sglang[token] == pytest.approx(of_vllm[token], abs=NOISE)


def by_name(choice: Json) -> dict[str, float]:
    """Return the logprobs of the likeliest first tokens."""
    logprobs = choice["logprobs"]
    if "top_logprobs" in logprobs:
        found: dict[str, float] = logprobs["top_logprobs"][0]
        return found
    [entry] = logprobs["content"]
    return {
        one.get("token", f"token_id:{one.get('token_id')}"): one["logprob"]
        for one in entry["top_logprobs"]
    }


@needs_vllm
def test_the_server_says_which_logprobs_it_returns(
    sglang: Server, logprobs_mode: str
) -> None:
    info = requests.get(f"{sglang.base_url}/server_info", timeout=60).json()
    assert info["agentcore_patches"]["logprobs"] == logprobs_mode
    assert f"({logprobs_mode} logprobs)" in sglang.log.read_text()


@needs_vllm
def test_a_real_vllm_is_judged_by_the_rules(vllm: str, logprobs_mode: str) -> None:
    meaning = {"raw": "raw", "processed": "renormalized"}[logprobs_mode]
    options = Options(base_url=vllm, levels=LEVELS[:-1], expect_logprobs=meaning)
    report = run(options, Progress(Console(quiet=True)))
    # It tokenizes the text of earlier turns again, and has no parser of reasoning here.
    [broken] = [rule for rule in report.rules if rule.verdict != "pass"]
    assert (broken.number, broken.verdict) == (17, "fail")
    assert "reasoning: unsupported" in report.rules[7].message
    assert report.exit_code == 1 and report.profile == "vllm"
