"""Values of a custom sampler by properties: in step with the IDs of each chunk."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from agentcore_patches.grafts.customized_info import _add_customized_info
from agentcore_patches.grafts.stream_output import _merge_queued_chunks

# What the scheduler sends, output by output: the values of the new tokens.
OUTPUTS = st.lists(st.lists(st.integers(), max_size=4), min_size=1, max_size=8)


@given(OUTPUTS)
def test_a_cumulative_chunk_has_every_value_so_far(outputs: list[list[int]]) -> None:
    state = SimpleNamespace(customized_info={})
    chunks = [_add_customized_info(state, "key", new, False) for new in outputs]
    for n_outputs, chunk in enumerate(chunks, start=1):
        # Looked at last: no chunk has grown with those after it.
        assert chunk == [value for new in outputs[:n_outputs] for value in new]


@given(OUTPUTS)
def test_an_incremental_chunk_has_the_new_values_and_queued_ones_are_joined(
    outputs: list[list[int]],
) -> None:
    state = SimpleNamespace(customized_info={})
    chunks = [_add_customized_info(state, "key", new, True) for new in outputs]
    assert chunks == outputs
    queue = [
        {"output_ids": list(range(len(chunk))), "meta_info": {"key": chunk}}
        for chunk in chunks
    ]
    merged = _merge_queued_chunks(queue, state.customized_info)
    assert merged["meta_info"]["key"] == [value for new in outputs for value in new]
    assert len(merged["output_ids"]) == len(merged["meta_info"]["key"])


@given(OUTPUTS, OUTPUTS)
def test_keys_are_kept_apart(one: list[list[int]], other: list[list[int]]) -> None:
    state = SimpleNamespace(customized_info={})
    for key, outputs in (("one", one), ("other", other)):
        for new in outputs:
            chunk = _add_customized_info(state, key, new, False)
        assert chunk == [value for new in outputs for value in new]
