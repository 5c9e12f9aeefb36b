"""Hidden states and other extras reach only the requests that ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agentcore_patches.patches.releases import is_between
from agentcore_verify.server import Server
from tests.helpers.endpoints import CHAT, COMPLETIONS, Json, post
from tests.helpers.servers import Launch, Trees

PROMPT = [5, 6, 7]
PARAMS = {"temperature": 0, "ignore_eos": True}
EXTRAS = {
    "return_hidden_states": "hidden_states",
    "return_routed_experts": "routed_experts",
    "return_indexer_topk": "indexer_topk",
}
"""The key in `meta_info` of each field."""


@pytest.fixture(scope="module")
def hiding(trees: Trees, launch: Launch) -> Iterator[Server]:
    """A server that returns hidden states. A batch has requests of all kinds."""
    with launch(trees.patched, "--enable-return-hidden-states") as running:
        yield running


def generate(server: Server, tokens: int, **more: Any) -> Json:
    params = {**PARAMS, "max_new_tokens": tokens}
    body = {"input_ids": PROMPT, "sampling_params": params, **more}
    answer: Json = post(server, "/generate", **body)
    return answer


# Slow enough for all requests to run at the same time.
@pytest.mark.usefixtures("slow_engine")
@pytest.mark.parametrize("field", EXTRAS)
def test_extras_reach_only_the_requests_that_ask_for_them(
    hiding: Server, field: str, release: str
) -> None:
    if field == "return_indexer_topk" and not is_between(release, "0.5.12", ""):
        pytest.skip("from 0.5.12 on")
    key = EXTRAS[field]
    # The others run before, during and after the one that asks for them.
    wanting = [{}, {field: True}, {}, {field: True}, {}]
    lengths = [24, 12, 12, 8, 4]
    expected = [
        generate(hiding, length, **more)
        for length, more in zip(lengths, wanting, strict=True)
    ]

    with ThreadPoolExecutor(len(wanting)) as pool:
        made = [
            pool.submit(generate, hiding, length, **more)
            for length, more in zip(lengths, wanting, strict=True)
        ]

    for one, alone, more in zip(made, expected, wanting, strict=True):
        answer = one.result()
        assert answer["output_ids"] == alone["output_ids"]
        has_them = key in answer["meta_info"]
        assert has_them == (key in alone["meta_info"])
        if not more:
            assert not has_them
        elif key == "hidden_states":
            # An entry for the prompt, and one for each further token.
            prompt, *others = answer["meta_info"][key]
            assert len(prompt) <= len(PROMPT)
            assert len(others) == len(answer["output_ids"]) - 1
            assert others[-1] == pytest.approx(
                alone["meta_info"][key][-1], rel=1e-3, abs=1e-3
            )


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_the_hidden_states_of_the_last_token_alone_are_served(
    hiding: Server, release: str, path: str
) -> None:
    if not is_between(release, "0.5.17", ""):
        pytest.skip("from 0.5.17 on")
    message = {"role": "user", "content": "Say hello."}
    prompt: Json = {"messages": [message]} if path == CHAT else {"prompt": PROMPT}
    body = {**prompt, "max_tokens": 4, "temperature": 0}
    [every], [last] = (
        post(hiding, path, **body, return_hidden_states=mode)["choices"]
        for mode in (True, "last")
    )
    assert len(last["hidden_states"]) > 1
    assert last["hidden_states"] == pytest.approx(every["hidden_states"], rel=1e-3)
