"""The same requests to a patched SGLang and to a real vLLM: `make peers`.

Everything that vLLM answers must be in the patched server's answer: status, tokens,
text, reasons, usage, logprobs. The patched server may answer more.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from agentcore_verify.scripted_model import STOP_WORD, TOOLS, line
from agentcore_verify.server import Server, free_port
from tests.helpers.endpoints import CHAT, COMPLETIONS, Json
from tests.helpers.servers import Launch, Trees
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.vllm

PYTHON = "AGENTCORE_TEST_VLLM"
"""The variable that names an interpreter with vLLM."""

GENERATE = "/inference/v1/generate"
RENDER = "/v1/chat/completions/render"
MODEL = "peer"
CONTEXT = 1024
NOISE = 2e-3

LONG: Json = {"messages": line("long").messages}
PROMPT = "the prompt's IDs"
"""Stands for the IDs of the prompt of `LONG` in a request."""


def generate(**params: Any) -> tuple[str, Json]:
    params = {"temperature": 0, "max_tokens": 12, **params}
    return GENERATE, {"token_ids": PROMPT, "sampling_params": params}


def chat(**fields: Any) -> tuple[str, Json]:
    more = {"temperature": 0, "max_tokens": 12, "return_token_ids": True}
    return CHAT, {**LONG, **more, **fields}


def complete(**fields: Any) -> tuple[str, Json]:
    more = {"temperature": 0, "max_tokens": 12, "return_token_ids": True}
    return COMPLETIONS, {"prompt": PROMPT, **more, **fields}


def echo(**fields: Any) -> tuple[str, Json]:
    # With the IDs, vLLM omits the prompt's text. SGLang omits special tokens.
    fields = {"prompt": [5, 6, 7], "return_token_ids": None, **fields}
    return complete(echo=True, **fields)


def likeliest(path: str, **params: Any) -> tuple[str, Json]:
    """A request for the likeliest first tokens, whichever is sampled."""
    params = {"max_tokens": 1, "temperature": 2.0, **params}
    if path == GENERATE:
        return path, {"token_ids": PROMPT, "sampling_params": {**params, "logprobs": 8}}
    params["return_tokens_as_token_ids"] = True
    if path == CHAT:
        return path, {**LONG, **params, "logprobs": True, "top_logprobs": 8}
    return path, {"prompt": PROMPT, **params, "logprobs": 8}


REQUESTS: dict[str, tuple[str, Json]] = {
    "generate": generate(),
    "generate, the prompt's IDs": (
        GENERATE,
        {**generate()[1], "return_token_ids": True, "request_id": "turn-1"},
    ),
    "generate, text": (GENERATE, {**generate()[1], "output_mode": "text"}),
    "generate, EOS": generate(max_tokens=600),
    "generate, no max_tokens": (
        GENERATE,
        {"token_ids": PROMPT, "sampling_params": {"temperature": 0}},
    ),
    "generate, logprobs 0": generate(logprobs=0),
    "generate, logprobs 1": generate(logprobs=1),
    "generate, logprobs 3": generate(logprobs=3),
    "generate, prompt logprobs 0": generate(prompt_logprobs=0),
    "generate, prompt logprobs 2": generate(prompt_logprobs=2, logprobs=2),
    "generate, a stop string": generate(max_tokens=600, stop=[STOP_WORD]),
    "generate, two stop strings": generate(max_tokens=600, stop=["zzz", STOP_WORD]),
    "generate, a stop string kept": generate(
        max_tokens=600, stop=STOP_WORD, include_stop_str_in_output=True
    ),
    "generate, stop IDs": generate(max_tokens=600, stop_token_ids=[32, 201, 275]),
    "generate, penalties": generate(
        repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.5
    ),
    "generate, a bias": generate(logit_bias={"7": 30}, logprobs=0),
    "generate, min_tokens": generate(min_tokens=300, max_tokens=310, ignore_eos=True),
    "generate, top_k 0": generate(top_k=0),
    "generate, a regex": generate(structured_outputs={"regex": "[ab]{6}"}),
    "generate, a choice": generate(structured_outputs={"choice": ["red", "blue"]}),
    "generate, beyond the context": generate(max_tokens=5000, ignore_eos=True),
    "generate, more than is left": generate(max_tokens=CONTEXT - 10),
    "generate, no max_tokens and no EOS": generate(max_tokens=None, ignore_eos=True),
    "generate, a salt": (GENERATE, {**generate()[1], "cache_salt": "one"}),
    "generate, priority 0": (GENERATE, {**generate()[1], "priority": 0}),
    "generate, n 1": generate(n=1),
    "generate, neutral values": generate(
        allowed_token_ids=None, bad_words=[], output_kind=2, seed=3, extra_args=None
    ),
    "generate, no IDs": (GENERATE, {**generate()[1], "token_ids": []}),
    "generate, a negative ID": (GENERATE, {**generate()[1], "token_ids": [1, -1]}),
    "generate, an unknown ID": (GENERATE, {**generate()[1], "token_ids": [10**6]}),
    "generate, a long prompt": (GENERATE, {**generate()[1], "token_ids": [5] * 2000}),
    "generate, no parameters": (GENERATE, {"token_ids": [5, 6]}),
    "generate, no tokens": generate(max_tokens=0),
    "generate, a wrong temperature": generate(temperature=-1),
    "generate, a wrong top_p": generate(top_p=2),
    "generate, wrong logprobs": generate(logprobs=-5),
    "generate, an unknown model": (GENERATE, {**generate()[1], "model": "another"}),
    "generate, an empty salt": (GENERATE, {**generate()[1], "cache_salt": ""}),
    "generate, min above max": generate(min_tokens=20, max_tokens=10),
    "chat": chat(),
    "chat, EOS": chat(max_tokens=600),
    "chat, logprobs": chat(logprobs=True),
    "chat, top logprobs": chat(logprobs=True, top_logprobs=3, max_tokens=8),
    "chat, tokens by ID": chat(
        logprobs=True, top_logprobs=2, return_tokens_as_token_ids=True
    ),
    "chat, a stop string": chat(max_tokens=600, stop=[STOP_WORD]),
    "chat, a stop string kept": chat(
        max_tokens=600, stop=[STOP_WORD], include_stop_str_in_output=True
    ),
    "chat, stop IDs": chat(max_tokens=600, stop_token_ids=[32, 201, 275]),
    "chat, a bias": chat(logit_bias={"7": 30}),
    "chat, a regex": chat(structured_outputs={"regex": "[ab]{6}"}),
    "chat, beyond the context": chat(max_tokens=5000),
    "chat, tools": chat(
        return_token_ids=None,
        messages=line("tool").messages,
        tools=list(TOOLS),
        max_tokens=300,
    ),
    "chat, a message to continue": chat(
        messages=[*LONG["messages"], {"role": "assistant", "content": "I say"}],
        continue_final_message=True,
        add_generation_prompt=False,
    ),
    "chat, neutral values": chat(
        allowed_token_ids=None,
        bad_words=[],
        truncate_prompt_tokens=None,
        add_special_tokens=False,
        add_generation_prompt=True,
        include_stop_str_in_output=False,
        use_beam_search=False,
        length_penalty=1.0,
        logprob_token_ids=None,
        mm_processor_kwargs=None,
        vllm_xargs=None,
        documents=None,
        prompt_logprobs=None,
        echo=False,
    ),
    "chat, wrong top logprobs": chat(logprobs=True, top_logprobs=-5),
    "chat, a wrong temperature": chat(temperature=-1),
    "chat, no messages": chat(messages=None),
    "completions": complete(),
    "completions, text": complete(prompt="Say hello."),
    "completions, text as it is": complete(
        prompt="Say hello.", add_special_tokens=False
    ),
    "completions, two prompts": complete(prompt=[[5, 6, 7], [8, 9]], max_tokens=5),
    "completions, EOS": complete(max_tokens=600),
    "completions, logprobs 0": complete(logprobs=0),
    "completions, logprobs 2": complete(logprobs=2, max_tokens=8),
    "completions, tokens by ID": complete(logprobs=0, return_tokens_as_token_ids=True),
    "completions, prompt logprobs": complete(prompt_logprobs=1, logprobs=1),
    "completions, echo": echo(),
    "completions, echo of text": echo(prompt="Say hello."),
    "completions, echo and logprobs 0": echo(logprobs=0),
    "completions, echo and logprobs 2": echo(logprobs=2),
    "completions, echo, text, logprobs 0": echo(prompt="Say hello.", logprobs=0),
    "completions, a stop string": complete(max_tokens=600, stop=[STOP_WORD]),
    "completions, a stop string kept": complete(
        max_tokens=600, stop=[STOP_WORD], include_stop_str_in_output=True
    ),
    "completions, stop IDs": complete(max_tokens=600, stop_token_ids=[32, 201, 275]),
    "completions, beyond the context": complete(max_tokens=5000),
    "completions, wrong logprobs": complete(logprobs=-5),
    "render": (RENDER, {**LONG, "temperature": 0, "max_tokens": 12}),
    "render, tools": (RENDER, {**LONG, "tools": list(TOOLS), "max_tokens": 12}),
    "tokenize": ("/tokenize", {"prompt": "Say hello."}),
    "tokenize, strings": (
        "/tokenize",
        {"prompt": "Say hello.", "return_token_strs": True},
    ),
    "tokenize, as it is": (
        "/tokenize",
        {"prompt": "Say hello.", "add_special_tokens": False},
    ),
    "tokenize, messages": ("/tokenize", LONG),
    "detokenize": ("/detokenize", {"tokens": [87, 85, 275]}),
    "is_paused": ("GET /is_paused", {}),
    "pause": ("/pause?mode=keep", {}),
    "paused": ("GET /is_paused", {}),
    "resume": ("/resume", {}),
    "abort": ("/abort_requests", {"request_ids": ["unknown"]}),
    "reset": ("/reset_prefix_cache", {}),
    "world size": ("GET /get_world_size", {}),
    "load": ("GET /load", {}),
    "health": ("GET /health", {}),
}

# Requests whose chunks are cut differently.
NOT_STREAMED = ("chat, tools",)

# Fields that differ from answer to answer, or as documented.
IGNORED = {
    "aborted": "vLLM counts unknown IDs",
    "bytes": "SGLang has those of a token's name, if it asks for names",
    "cached_tokens": "vLLM caches whole blocks",
    "created": "the time",
    "created_cache_tokens": "not SGLang's",
    "decoded_token": "SGLang has none of the prompt's tokens",
    "id": "random",
    "prompt_tokens_details": "SGLang omits zeros in chat and completions",
    "max_model_len": "SGLang's /tokenize states the tokenizer's limit",
    "output_kind": "of vLLM's engine",
    "request_id": "vLLM writes `generate-tokens-` before the client's",
    "skip_clone": "of vLLM's engine",
    "skip_reading_prefix_cache": "of vLLM's engine",
    "system_fingerprint": "names the server",
}


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
    port = free_port("127.0.0.1")
    url = f"http://127.0.0.1:{port}"
    log = tmp_path_factory.mktemp("vllm") / "vllm.log"
    env = {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_SERVER_DEV_MODE": "1",
    }
    args = (
        *("--host", "127.0.0.1", "--port", str(port), "--served-model-name", MODEL),
        *("--dtype", "float32", "--max-model-len", str(CONTEXT), "--max-num-seqs", "8"),
        *("--logprobs-mode", f"{logprobs_mode}_logprobs", "--enforce-eager"),
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        *("--enable-scale-out", "--enable-prompt-tokens-details"),
    )
    command = (python, "-m", "vllm.entrypoints.cli.main", "serve", scripted_model)
    with log.open("w") as output:
        running = subprocess.Popen(
            [*command, *args],
            env={**os.environ, **env},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def is_ready() -> bool:
        assert running.poll() is None, log.read_text()[-5000:]
        try:
            return requests.get(f"{url}/health", timeout=5).ok
        except requests.ConnectionError:
            return False

    try:
        wait_until(is_ready, seconds=600)
        yield url
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()


@pytest.fixture(scope="module")
def sglang(trees: Trees, launch: Launch, logprobs_mode: str) -> Iterator[Server]:
    raw = {"SGLANG_RETURN_ORIGINAL_LOGPROB": "1"} if logprobs_mode == "raw" else {}
    args = (
        *("--served-model-name", MODEL, "--context-length", str(CONTEXT)),
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
    response = requests.request(method or "POST", url + path, json=body, timeout=120)
    if response.status_code != 200:
        return {"status": response.status_code}
    if body.get("stream"):
        return joined(response.text)
    found = response.json() if response.text else None
    return {"status": 200, "answer": found}


def joined(text: str) -> Json:
    """Join the chunks of a stream: texts, lists and logprobs; the last of all else."""
    *events, done = [part for part in text.split("\n\n") if part]
    assert done == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    choices: dict[int, Json] = {}
    whole: Json = {}
    for chunk in chunks:
        if "error" in chunk:
            return {"status": chunk["error"]["code"]}
        for piece in chunk.pop("choices"):
            _add(choices.setdefault(piece["index"], {}), piece)
        whole |= {name: value for name, value in chunk.items() if value is not None}
    ordered = [choice for _, choice in sorted(choices.items())]
    return {"status": 200, **whole, "choices": ordered}


def _add(choice: Json, piece: Json) -> None:
    for name, value in piece.items():
        known = choice.get(name)
        # SGLang's streams have -1 for each offset.
        if value is None or name == "text_offset":
            continue
        if isinstance(value, dict):
            _add(choice.setdefault(name, {}) if known is None else known, value)
        elif name in ("index", "role") or known is None:
            choice[name] = value
        elif isinstance(value, (str, list)):
            choice[name] = known + value


def differences(theirs: Any, ours: Any, where: str = "") -> Iterator[str]:
    """Yield what vLLM's answer has, and the other has not."""
    if theirs in (None, [], {}) and ours in (None, [], {}):
        return
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name, value in theirs.items():
            # SGLang reports only the ranks of the likeliest tokens.
            is_rank = name == "rank" and "prompt_logprobs" in where
            if name not in IGNORED and not is_rank:
                yield from differences(value, ours.get(name), f"{where}.{name}")
    elif isinstance(theirs, list) and isinstance(ours, list):
        if len(theirs) != len(ours):
            yield f"{where}: {len(theirs)} elements, not {len(ours)}: {theirs} {ours}"
        for i, (one, other) in enumerate(zip(theirs, ours, strict=False)):
            yield from differences(one, other, f"{where}[{i}]")
    elif isinstance(theirs, float) and isinstance(ours, (int, float)):
        if abs(theirs - ours) > NOISE:
            yield f"{where}: {theirs}, not {ours}"
    elif theirs != ours:
        yield f"{where}: {theirs!r}, not {ours!r}"


@pytest.mark.parametrize("logprobs_mode", ["raw"], indirect=True, scope="module")
@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", REQUESTS)
def test_answers_have_what_those_of_vllm_have(
    vllm: str, sglang: Server, prompt: list[int], name: str, streaming: bool
) -> None:
    path, body = REQUESTS[name]
    if streaming:
        if path not in (GENERATE, CHAT, COMPLETIONS) or name in NOT_STREAMED:
            pytest.skip("is not streamed")
        body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    theirs = answer_of(vllm, path, body, prompt)
    ours = answer_of(sglang.base_url, path, body, prompt)
    assert "\n".join(differences(theirs, ours)) == ""


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
            found.append(answer_of(url, path, body, prompt)["answer"]["choices"][0])
        theirs, ours = map(by_name, found)
        assert len(theirs.keys() & ours.keys()) > 6
        for token in theirs.keys() & ours.keys():
            assert ours[token] == pytest.approx(theirs[token], abs=NOISE)


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


def test_the_server_says_which_logprobs_it_returns(
    sglang: Server, logprobs_mode: str
) -> None:
    info = requests.get(f"{sglang.base_url}/server_info", timeout=60).json()
    assert info["agentcore_patches"]["logprobs"] == logprobs_mode
    assert f"({logprobs_mode} logprobs)" in sglang.log.read_text()
