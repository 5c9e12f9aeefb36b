"""Property tests: a custom sampler's values, one per token ID in each chunk."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from agentcore_patches.landing import release
from agentcore_patches.landing.shared.customized_info import (
    add_to_column,
    add_to_output,
    cut_to_request,
    pad,
)

# The scheduler's outputs: the values of the new tokens, or None if
# the request has no values.
OUTPUTS = st.lists(st.lists(st.integers(), max_size=4), min_size=1, max_size=8)
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


def a_manager(incremental: bool = False) -> Any:
    """Return a tokenizer manager, with or without --stream-output."""
    return SimpleNamespace(server_args=SimpleNamespace(stream_output=incremental))


def added(
    outputs: list[list[int] | None],
    incremental: bool,
    key: str = "key",
    state: Any = None,
) -> list[dict[str, Any]]:
    """Return the meta info of each chunk; an output without values has two tokens."""
    state = state or a_stream()
    chunks = []
    for values in outputs:
        meta_info: dict[str, Any] = {}
        add_to_output(a_manager(incremental), state, meta_info, key, [[-1], values], 1)
        state.output_ids += range(2 if values is None else len(values))
        chunks.append(meta_info)
    return chunks


@given(OUTPUTS_WITH_HOLES)
def test_a_cumulative_chunk_has_every_value_so_far(
    outputs: list[list[int] | None],
) -> None:
    so_far: list[int | None] = []
    # Checked last: no chunk has grown with later ones.
    for values, chunk in zip(outputs, added(outputs, False), strict=True):
        so_far += [None, None] if values is None else values
        assert chunk == ({} if values is None else {"key": so_far})


@given(OUTPUTS_WITH_HOLES)
def test_an_incremental_chunk_has_the_new_values(
    outputs: list[list[int] | None],
) -> None:
    chunks = added(outputs, True)
    assert chunks == [{} if new is None else {"key": new} for new in outputs]


@given(st.lists(st.booleans(), max_size=12))
def test_a_token_without_a_value_keeps_its_place(given_at: list[bool]) -> None:
    values: list[int | None] = []
    for n_tokens, has_value in enumerate(given_at, start=1):
        if has_value:
            pad(values, n_tokens - 1)
            values.append(n_tokens)
    wanted = [n if has else None for n, has in enumerate(given_at, start=1)]
    while wanted and wanted[-1] is None:
        wanted.pop()
    assert values == wanted


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


@given(OUTPUTS)
def test_values_grow_like_a_growing_list_of_ids(
    outputs: list[list[int]],
) -> None:
    state = a_stream()
    chunks: list[dict[str, Any]] = []
    with patch.object(release, "OUTPUT_IDS_GROW", True):
        for values in outputs:
            chunks.append({})
            add_to_output(a_manager(), state, chunks[-1], "key", [values], 0)
            state.output_ids += values
    assert all(chunk["key"] == state.output_ids for chunk in chunks)
