"""Per-token metadata of a custom sampler, beyond the check `customized-info`.

The servers here run with a sampler that mirrors each sampled token ID.
"""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_verify import client
from agentcore_verify.probe import MIRROR_KEY
from agentcore_verify.server import Server
from tests.helpers.servers import MODES


def body(length: int, **more: Any) -> dict[str, Any]:
    return {
        "input_ids": [5, 6, 7],
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
    assert_in_step(wanted)
