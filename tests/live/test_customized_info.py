"""Per-token metadata of a custom sampler, beyond the check `customized-info`.

The servers here run with a sampler that mirrors each sampled token ID.
"""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_verify import client
from agentcore_verify.probe import MIRROR_KEY
from agentcore_verify.server import Server
from tests.helpers.endpoints import refused
from tests.helpers.servers import MODES, Launch, Trees

PROMPT = [5, 6, 7]
LENGTHS = (7, 50, 120, 333)


def body(length: int, **more: Any) -> dict[str, Any]:
    return {
        "input_ids": PROMPT,
        "sampling_params": {
            "temperature": 0,
            "max_new_tokens": length,
            "ignore_eos": True,
        },
        **more,
    }


def assert_in_step(output: dict[str, Any]) -> None:
    assert output["meta_info"][MIRROR_KEY] == output["output_ids"]


@pytest.mark.usefixtures("slow_engine")
def test_an_abort_loses_and_repeats_nothing(server: Server, mode: str) -> None:
    if mode.startswith("two-workers"):
        pytest.skip("SGLang hands an abort to a worker that may not know the request")
    chunks = client.generate_stream(server.base_url, **body(4000, rid="abort-me"))
    incremental = "--stream-output" in MODES[mode]
    ids: list[int] = []
    aborted = False
    for chunk in chunks:
        assert_in_step(chunk)
        ids = ids + chunk["output_ids"] if incremental else chunk["output_ids"]
        if len(ids) > 20 and not aborted:
            client.post(server.base_url + "/abort_request", {"rid": "abort-me"})
            aborted = True
    assert chunk["meta_info"]["finish_reason"]["type"] == "abort"
    wanted = client.generate(server.base_url, **body(len(ids)))
    assert ids == wanted["output_ids"]


@pytest.mark.parametrize("args", [(), ("--stream-output",)], ids=["default", "output"])
def test_values_arrive_without_a_tokenizer(
    trees: Trees, launch: Launch, args: tuple[str, ...]
) -> None:
    with launch(trees.patched, "--skip-tokenizer-init", *args) as server:
        for length in LENGTHS:
            output = client.generate(
                server.base_url, **body(length, return_prompt_token_ids=True)
            )
            assert output["prompt_token_ids"] == PROMPT
            assert_in_step(output)
            ids: list[int] = []
            for chunk in client.generate_stream(server.base_url, **body(length)):
                assert_in_step(chunk)
                ids = (ids if args else []) + chunk["output_ids"]
                assert len(ids) == chunk["meta_info"]["completion_tokens"]
            assert ids == output["output_ids"] and len(ids) == length
        with refused("--skip-tokenizer-init", "/generate"):
            client.chat(
                server.base_url,
                messages=[{"role": "user", "content": "-"}],
                input_ids=PROMPT,
            )
