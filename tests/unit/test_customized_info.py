"""Values of a custom sampler by properties: in step with the IDs of each chunk."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentcore_patches.grafts.customized_info import (
    _add_customized_info,
    _send_customized_info,
    _set_customized_info,
)
from agentcore_patches.grafts.stream_output import (
    _join_customized_info,
    _merge_queued_chunks,
)

# What the scheduler sends, output by output: the values of the new tokens; None where
# the request has none.
OUTPUTS = st.lists(st.lists(st.integers(), max_size=4), min_size=1, max_size=8)
OUTPUTS_WITH_HOLES = st.lists(
    st.none() | st.lists(st.integers(), max_size=4), min_size=1, max_size=8
)


def a_stream() -> SimpleNamespace:
    """The state of a request that streams, as far as the grafts look at it."""
    return SimpleNamespace(
        customized_info={}, output_ids=[], obj=SimpleNamespace(stream=True)
    )


def added(
    outputs: list[list[int] | None],
    incremental: bool,
    key: str = "key",
    state: Any = None,
) -> list[dict[str, Any]]:
    """The meta info of each chunk; an output without values has two tokens."""
    state = state or a_stream()
    chunks = []
    for values in outputs:
        meta_info: dict[str, Any] = {}
        _add_customized_info(state, meta_info, key, values, incremental)
        state.output_ids += range(2 if values is None else len(values))
        chunks.append(meta_info)
    return chunks


@given(OUTPUTS_WITH_HOLES)
def test_a_cumulative_chunk_has_every_value_so_far(
    outputs: list[list[int] | None],
) -> None:
    so_far: list[int | None] = []
    # Looked at last: no chunk has grown with those after it.
    for values, chunk in zip(outputs, added(outputs, False), strict=True):
        so_far += [None, None] if values is None else values
        assert chunk == ({} if values is None else {"key": so_far})


@given(OUTPUTS_WITH_HOLES)
def test_an_incremental_chunk_has_the_new_values_and_queued_ones_are_joined(
    outputs: list[list[int] | None],
) -> None:
    state = a_stream()
    chunks = added(outputs, True, state=state)
    assert chunks == [{} if new is None else {"key": new} for new in outputs]
    queue = [
        {"output_ids": [0, 0] if new is None else new, "meta_info": chunk}
        for new, chunk in zip(outputs, chunks, strict=True)
    ]
    merged = _merge_queued_chunks(queue, state.customized_info)
    if "key" in merged["meta_info"]:
        assert len(merged["output_ids"]) == len(merged["meta_info"]["key"])


@given(OUTPUTS, OUTPUTS)
def test_keys_are_kept_apart(
    one: list[list[int] | None], other: list[list[int] | None]
) -> None:
    state = a_stream()
    added(one, False, "one", state)
    state.output_ids = []
    last = added(other, False, "other", state)[-1]
    assert last == {"other": [value for new in other for value in new or ()]}


@given(st.lists(st.booleans(), max_size=12))
def test_a_token_without_a_value_keeps_its_place(given_at: list[bool]) -> None:
    values: list[int | None] = []
    for n_tokens, has_value in enumerate(given_at, start=1):
        if has_value:
            _set_customized_info(values, n_tokens, n_tokens)
    wanted = [n if has else None for n, has in enumerate(given_at, start=1)]
    while wanted and wanted[-1] is None:
        wanted.pop()
    assert values == wanted


@given(st.lists(st.none() | st.lists(st.integers(), max_size=6), max_size=6))
def test_values_go_to_the_request_that_they_are_of(
    batch: list[list[int] | None],
) -> None:
    column: list[list[Any] | None] = []
    start, end = 1, 4
    for n_before, values in enumerate(batch):
        if values is not None:
            _send_customized_info(column, values, n_before, start, end)
    for n_before, values in enumerate(batch):
        sent = column[n_before] if n_before < len(column) else None
        if values is None:
            assert sent is None
        else:
            new = values[start:end]
            assert sent == new + [None] * (end - start - len(new))


@given(OUTPUTS)
def test_where_ids_are_a_list_that_grows_the_values_are_too(
    outputs: list[list[int]],
) -> None:
    state = a_stream()
    chunks: list[dict[str, Any]] = []
    for values in outputs:
        chunks.append({})
        _add_customized_info(state, chunks[-1], "key", values, False, live=True)
        state.output_ids += values
    assert all(chunk["key"] == state.output_ids for chunk in chunks)


@given(OUTPUTS_WITH_HOLES)
def test_a_merged_chunk_has_the_values_of_all_that_were_queued(
    outputs: list[list[int] | None],
) -> None:
    state = a_stream()
    queue: list[dict[str, Any]] = [
        {"output_ids": [0, 0] if new is None else new, "meta_info": chunk}
        for new, chunk in zip(outputs, added(outputs, True, state=state), strict=True)
    ]
    last = dict(queue[-1]["meta_info"])
    out: dict[str, Any] = {
        "output_ids": [i for chunk in queue for i in chunk["output_ids"]],
        "meta_info": queue[-1]["meta_info"],
    }
    _join_customized_info(out, queue, state.customized_info)
    for values in out["meta_info"].values():
        assert len(values) == len(out["output_ids"])
    # The chunk that was queued is as it was.
    assert queue[-1]["meta_info"] == last
