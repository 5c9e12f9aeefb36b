"""Property tests: non-streaming responses have FastAPI's bytes or are left to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Optional, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st

orjson = pytest.importorskip("orjson")
encoders = pytest.importorskip("fastapi.encoders")
pydantic = pytest.importorskip("pydantic")
responses = pytest.importorskip("fastapi.responses")

from agentcore_patches.landing import release  # noqa: E402
from agentcore_patches.landing.http.answers import (  # noqa: E402
    RequestTokenIds,
    prepare_for_orjson,
    write_generated,
)


@pytest.fixture(autouse=True, scope="module")
def _release() -> Iterator[None]:
    """A release in which FastAPI writes non-streaming responses."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(release, "PYDANTIC_ANSWERS", False)
        patch.setattr(release, "BYTES_OF_ID", False)
        yield


def fastapi(content: Any) -> bytes | None:
    """Return the bytes that FastAPI writes, None if it fails."""
    try:
        body: bytes = responses.JSONResponse(encoders.jsonable_encoder(content)).body
    except (ValueError, RecursionError):
        return None
    return body


def orjson_bytes(content: Any) -> bytes | None:
    """Return the bytes that orjson writes, None if the data is left to FastAPI."""
    try:
        body: bytes = orjson.dumps(prepare_for_orjson(content))
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
def test_orjson_writes_the_bytes_that_fastapi_writes(content: Any) -> None:
    written = orjson_bytes(content)
    assert written is None or written == fastapi(content)


@given(CONTENT)
def test_the_engines_answer_parses_to_what_fastapi_writes(content: Any) -> None:
    written = write_generated(content)
    if written is not None:
        expected = fastapi(content)
        assert expected is not None
        # Digit for digit, except for the spelling of an exponent.
        assert repr(json.loads(written)) == repr(json.loads(expected))


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
    assert validated(RequestTokenIds, value) == validated(vanilla, value)


def validated(kind: Any, value: Any) -> Any:
    """Validate a value with pydantic; return the result or the errors."""
    try:
        return repr(pydantic.TypeAdapter(kind).validate_python(value))
    except pydantic.ValidationError as error:
        return repr(error.errors())
