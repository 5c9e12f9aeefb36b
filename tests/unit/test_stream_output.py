"""Property tests of merging queued chunks."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from itertools import chain
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentcore_patches.landing.http.stream_output import (
    join_customized_info,
    merge_queued,
)

KEYS = ("mirror", "entropy")


def a_state(queue: list[dict[str, Any]], keys: Iterable[str]) -> Any:
    """Return the state of a streaming request: only attributes that merging reads."""
    return SimpleNamespace(
        out_list=queue, customized_info_accumulated={key: [] for key in keys}
    )


@st.composite
def queues(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw chunks of one request: new IDs and values each, the rest cumulative."""
    chunks: list[dict[str, Any]] = []
    text, n_tokens = "", 0
    for _ in range(draw(st.integers(1, 5))):
        output_ids = draw(st.lists(st.integers(0, 9), max_size=3))
        text += "".join(map(str, output_ids))
        n_tokens += len(output_ids)
        meta_info: dict[str, Any] = {"completion_tokens": n_tokens, "id": "x"}
        for key in KEYS:
            if draw(st.booleans()):
                meta_info[key] = [f"{key} {i}" for i in output_ids]
        chunks.append({"text": text, "output_ids": output_ids, "meta_info": meta_info})
    chunks[-1]["meta_info"]["finish_reason"] = draw(
        st.none() | st.just({"type": "stop"})
    )
    return chunks


def expected_merge(queue: list[dict[str, Any]], known: set[str]) -> dict[str, Any]:
    # A single chunk is handed on unchanged: a missing key stays missing.
    joined = known if len(queue) > 1 else known & queue[0]["meta_info"].keys()
    expected = deepcopy(queue[-1])
    expected["output_ids"] = list(chain(*(chunk["output_ids"] for chunk in queue)))
    for key in joined:
        # None for tokens without a value from the sampler.
        parts = (
            chunk["meta_info"].get(key, [None] * len(chunk["output_ids"]))
            for chunk in queue
        )
        expected["meta_info"][key] = list(chain(*parts))
    return expected


@given(queue=queues(), known=st.sets(st.sampled_from(KEYS)))
def test_incremental_fields_are_joined_and_the_last_of_others_is_kept(
    queue: list[dict[str, Any]], known: set[str]
) -> None:
    before = deepcopy(queue)
    merged = merge_queued(a_state(queue, known))
    assert queue == before
    assert merged == expected_merge(queue, known)


@given(queue=queues(), known=st.sets(st.sampled_from(KEYS)))
def test_values_are_joined_in_a_chunk_that_sglang_merged(
    queue: list[dict[str, Any]], known: set[str]
) -> None:
    before = deepcopy(queue)
    out = queue[-1]
    if len(queue) > 1:
        out = {**out, "output_ids": [i for chunk in queue for i in chunk["output_ids"]]}
    join_customized_info(out, queue, a_state([], known))
    assert queue == before
    assert out == expected_merge(queue, known)


@given(queues())
def test_a_merged_chunk_shares_no_list_with_later_chunks(
    queue: list[dict[str, Any]],
) -> None:
    merged = merge_queued(a_state(queue, KEYS))
    if len(queue) == 1:
        assert merged is queue[0]
        return
    before = deepcopy(queue)
    merged["output_ids"].append(-1)
    merged["meta_info"]["mirror"].append(-1)
    merged["meta_info"]["more"] = 1
    assert queue == before
