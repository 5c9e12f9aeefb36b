"""Whole answers by properties: the bytes, or the refusal, that FastAPI makes of them."""

from __future__ import annotations

import json
from typing import Any, Optional, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore_patches.grafts import fast_answers
from agentcore_patches.grafts.fast_answers import (
    _dump_logprobs,
    _is_plain,
    _prepare_for_orjson,
    _RequestTokenIds,
    _write_generated,
)
from tests.helpers.bad_logprobs import BAD_LOGPROBS, NAN

orjson = pytest.importorskip("orjson")
encoders = pytest.importorskip("fastapi.encoders")
pydantic = pytest.importorskip("pydantic")
responses = pytest.importorskip("fastapi.responses")


@pytest.fixture(autouse=True, scope="module")
def _imports() -> None:
    """What the grafts find where they land."""
    fast_answers.orjson = orjson  # type: ignore[attr-defined]


def fastapi(content: Any) -> bytes | None:
    """What FastAPI writes, None if it fails."""
    try:
        body: bytes = responses.JSONResponse(encoders.jsonable_encoder(content)).body
    except (ValueError, RecursionError):
        return None
    return body


def ours(content: Any) -> bytes | None:
    """What orjson writes of prepared data, None if it is left to FastAPI."""
    try:
        body: bytes = orjson.dumps(_prepare_for_orjson(content))
    except (TypeError, ValueError):
        return None
    return body


TEXTS = st.one_of(
    st.text(max_size=8),
    st.text(st.characters(), max_size=4),  # Half a surrogate pair among them.
    st.sampled_from(["_sa", "_sample", "null", "\u2028", "\ud83d", '"', "\\", "\x7f"]),
)
FLOATS = st.one_of(
    st.floats(),
    st.floats(-12, 0),
    st.sampled_from(
        [1e-4, 9.9e-5, 1e-5, 1e-7, 1e15, 1e16, 1e17, 1e22, -0.0, 5e-324, -3.4e38]
    ),
)
INTEGERS = st.one_of(st.integers(), st.sampled_from([2**63, 2**64, -(2**63) - 1]))
SCALARS = st.one_of(st.none(), st.booleans(), INTEGERS, FLOATS, TEXTS)
CONTENT = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(TEXTS, inner, max_size=3),
        st.lists(st.tuples(FLOATS, INTEGERS, st.none()), max_size=4),
        st.lists(st.tuples(inner, inner), max_size=3),
    ),
    max_leaves=12,
)


@given(CONTENT)
def test_what_is_written_is_what_fastapi_writes(content: Any) -> None:
    written = ours(content)
    assert written is None or written == fastapi(content)


@given(CONTENT)
def test_the_engines_answer_parses_to_what_fastapi_writes(content: Any) -> None:
    written = _write_generated(content)
    if written is not None:
        expected = fastapi(content)
        assert expected is not None
        # Digit for digit, but for the form of an exponent.
        assert repr(json.loads(written)) == repr(json.loads(expected))


@given(st.lists(st.tuples(st.floats(-50, 0), st.integers(0, 2**31), st.none())))
def test_usual_answers_do_not_take_the_old_way(entries: Any) -> None:
    content = {
        "text": "é 見 😀",
        "output_ids": [token_id for _, token_id, _ in entries],
        "meta_info": {
            "finish_reason": {"type": "stop", "matched": 2},
            "input_token_logprobs": [(None, 5, None), *entries],
            "output_token_logprobs": entries,
            "output_top_logprobs": [[entry, entry] for entry in entries],
            "e2e_latency": 1.5,
        },
    }
    for answer in (content, [content, content]):
        assert _write_generated(answer) is not None
    content["meta_info"] = json.loads(json.dumps(content["meta_info"]))
    assert ours(content) == fastapi(content)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_left_to_fastapi(bad: float) -> None:
    for content in (
        bad,
        {"a": [1.0, bad]},
        [(0.5, 1, None), (bad, 2, None)],
        [(0.5, 1), (bad, 2, None)],
        [[(0.5, 1, None)], [(bad, 1, None)]],
        [{"a": {"b": bad}}],
        [None, "a", bad],
    ):
        assert not _is_plain(content)
        assert _write_generated(content) is None
        assert fastapi(content) is None
        assert ours(json.loads(json.dumps(content))) is None


class Text(str):
    """As json takes it, and orjson not."""


@pytest.mark.parametrize(
    "content",
    [
        {"_sampler": 1},
        [{"a": {"_sa": 1}}],
        {1: 2},
        {"a": 2**64},
        {"a": {1, 2}},
        {"a": Text("x")},
        {"a": b"x"},
        "\ud83d",
        ["\ud83d"],
    ],
    ids=repr,
)
def test_what_fastapi_writes_in_its_own_way_is_left_to_it(content: Any) -> None:
    assert _write_generated(content) is None
    assert ours(content) is None


def vanilla_logprobs(meta_info: dict[str, Any]) -> dict[str, Any]:
    """The logprobs of a chat choice, token by token."""

    def entry(text: str, logprob: float) -> dict[str, Any]:
        return {"token": text, "bytes": list(text.encode()), "logprob": logprob}

    tops = meta_info.get("output_top_logprobs")
    return {
        "content": [
            {
                **entry(text, logprob),
                "top_logprobs": [
                    entry(other, value)
                    for other, value in {row[2]: row[0] for row in tops[i]}.items()
                ]
                if tops
                else [],
            }
            for i, (logprob, _, text) in enumerate(meta_info["output_token_logprobs"])
        ]
    }


ROW = st.tuples(st.floats(-40, 0), st.integers(0, 99), st.text(max_size=3))


@given(st.lists(st.tuples(ROW, st.lists(ROW, max_size=4))), st.booleans())
def test_logprobs_are_written_as_from_their_models(rows: Any, with_top: bool) -> None:
    meta_info: dict[str, Any] = {"output_token_logprobs": [entry for entry, _ in rows]}
    if with_top:
        meta_info["output_top_logprobs"] = [top for _, top in rows]
    try:
        expected = responses.JSONResponse(vanilla_logprobs(meta_info)).body
    except UnicodeEncodeError:
        with pytest.raises(ValueError):
            _dump_logprobs(meta_info)
        return
    assert _dump_logprobs(meta_info) == expected


def test_a_token_without_text_is_named_by_its_id() -> None:
    meta_info = {
        "output_token_logprobs": [(-0.5, 7, None)],
        "output_top_logprobs": [[(-0.5, 7, None), (-1e-7, 8, None)]],
    }
    [entry] = json.loads(_dump_logprobs(meta_info))["content"]
    assert entry["token"] == "token_id:7"
    assert [top["token"] for top in entry["top_logprobs"]] == [
        "token_id:7",
        "token_id:8",
    ]


@pytest.mark.parametrize("meta_info", [*BAD_LOGPROBS, NAN], ids=repr)
def test_logprobs_that_are_not_as_they_should_be_are_refused(meta_info: Any) -> None:
    with pytest.raises((AttributeError, LookupError, TypeError, ValueError)):
        _dump_logprobs(meta_info)


PROMPTS = st.recursive(
    st.one_of(
        st.integers(),
        st.booleans(),
        st.none(),
        st.floats(),
        st.sampled_from(["1", "x", 2.0, 2**64, {}]),
    ),
    lambda part: st.lists(part, max_size=3),
    max_leaves=8,
)


@given(PROMPTS)
def test_the_token_ids_of_a_request_are_what_pydantic_makes_of_them(value: Any) -> None:
    vanilla = Optional[Union[list[list[int]], list[int]]]  # noqa: UP007, UP045
    assert validated(_RequestTokenIds, value) == validated(vanilla, value)


def validated(kind: Any, value: Any) -> Any:
    """What pydantic makes of a value, or the errors that it finds."""
    try:
        return repr(pydantic.TypeAdapter(kind).validate_python(value))
    except pydantic.ValidationError as error:
        return repr(error.errors())
