"""Property tests: a custom sampler's values, one per token ID in each chunk.

Chunks that wait for a reader are merged.
"""

from __future__ import annotations

from copy import deepcopy
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentcore_patches.landing.http.stream_output import (
    join_customized_info,
    merge_queued,
)
from agentcore_patches.landing.shared.customized_info import (
    add_to_column,
    add_to_output,
    cut_to_request,
)
from tests.unit.small_server import tokenizer_manager

# The scheduler's outputs: the values of the new tokens, or None if
# the request has no values.
OUTPUTS_WITH_HOLES = st.lists(
    st.none() | st.lists(st.integers(), max_size=4), min_size=1, max_size=8
)


def a_stream() -> Any:
    """Return the state of a streaming request: only attributes that the code reads."""
    return SimpleNamespace(
        customized_info_accumulated={},
        output_ids=[],
        obj=SimpleNamespace(stream=True),
    )


def added(outputs: list[list[int] | None], incremental: bool) -> list[dict[str, Any]]:
    """Return the meta info of each chunk; an output without values has two tokens."""
    state = a_stream()
    manager = tokenizer_manager(stream_output=incremental)
    chunks = []
    for values in outputs:
        meta_info: dict[str, Any] = {}
        add_to_output(manager, state, meta_info, "key", [[-1], values], 1)
        state.output_ids += range(2 if values is None else len(values))
        chunks.append(meta_info)
    return chunks


@given(OUTPUTS_WITH_HOLES, st.booleans())
def test_a_chunk_has_the_new_values_or_every_value_so_far(
    outputs: list[list[int] | None], incremental: bool
) -> None:
    so_far: list[int | None] = []
    # Checked last: no chunk has grown with later ones.
    for values, chunk in zip(outputs, added(outputs, incremental), strict=True):
        so_far += [None, None] if values is None else values
        expected = values if incremental else so_far
        assert chunk == ({} if values is None else {"key": expected})


@given(st.lists(st.none() | st.lists(st.integers(), max_size=6), max_size=6))
def test_values_go_to_their_request(
    batch: list[list[int] | None],
) -> None:
    column: list[list[Any] | None] = []
    start, end = 1, 4
    for n_before, values in enumerate(batch):
        if values is not None:
            add_to_column(column, values, n_before, start, end)
    for n_before, values in enumerate(batch):
        sent = column[n_before] if n_before < len(column) else None
        if values is None:
            assert sent is None
        else:
            new = values[start:end]
            assert sent == new + [None] * (end - start - len(new))
            assert cut_to_request({"key": column}, n_before) == {"key": [sent]}


def test_queued_chunks_are_joined_and_the_last_of_other_fields_is_kept() -> None:
    parts: list[tuple[list[int], dict[str, Any]]] = [
        ([1, 2], {"mirror": ["a", "b"]}),
        ([3], {}),
        ([], {"mirror": []}),
        ([4], {"mirror": ["d"], "finish_reason": {"type": "stop"}}),
    ]
    queue = [
        {"text": "1234"[: n + 1], "output_ids": output_ids, "meta_info": meta_info}
        for n, (output_ids, meta_info) in enumerate(parts)
    ]
    before = deepcopy(queue)
    state: Any = SimpleNamespace(
        out_list=queue, customized_info_accumulated={"mirror": [], "other": []}
    )
    merged = merge_queued(state)
    assert merged == {
        "text": "1234",
        "output_ids": [1, 2, 3, 4],
        "meta_info": {
            # None for a token without a value from the sampler.
            "mirror": ["a", "b", None, "d"],
            "other": [None, None, None, None],
            "finish_reason": {"type": "stop"},
        },
    }
    # Some releases merge the rest themselves.
    out = {**queue[-1], "output_ids": merged["output_ids"]}
    join_customized_info(out, queue, state)
    assert (out, queue) == (merged, before)
    state.out_list = queue[:1]
    assert merge_queued(state) is queue[0]
