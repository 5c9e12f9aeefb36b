"""Property tests: non-streaming responses have FastAPI's bytes or are left to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Optional, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st

orjson = pytest.importorskip("orjson")
encoders = pytest.importorskip("fastapi.encoders")
pydantic = pytest.importorskip("pydantic")
responses = pytest.importorskip("fastapi.responses")

from agentcore_patches.landing import answers, logprobs, release  # noqa: E402
from agentcore_patches.landing.answers import (  # noqa: E402
    RequestTokenIds,
    is_plain,
    prepare_for_orjson,
    write_generated,
)
from tests.helpers import chat_logprobs  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def _release() -> Iterator[None]:
    """A release in which FastAPI writes non-streaming responses."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(release, "PYDANTIC_ANSWERS", False)
        patch.setattr(release, "BYTES_OF_ID", False)
        yield


def dump_logprobs(meta_info: dict[str, Any]) -> bytes:
    """Write the logprobs of a non-streaming response."""
    openings = logprobs.Openings(None)
    return logprobs.write(meta_info, openings, answers.dump_numbers).encode()


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
        assert not is_plain(content)
        assert write_generated(content) is None
        assert fastapi(content) is None
        assert orjson_bytes(json.loads(json.dumps(content))) is None


class Text(str):
    """A string type that json accepts and orjson rejects."""


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
def test_values_that_fastapi_writes_differently_are_left_to_it(content: Any) -> None:
    assert write_generated(content) is None
    assert orjson_bytes(content) is None


ROW = st.tuples(st.floats(-40, 0), st.integers(0, 99), st.text(max_size=3))


@given(st.lists(st.tuples(ROW, st.lists(ROW, max_size=4))), st.booleans())
def test_logprobs_are_written_as_from_their_models(rows: Any, with_top: bool) -> None:
    meta_info: dict[str, Any] = {"output_token_logprobs": [entry for entry, _ in rows]}
    if with_top:
        meta_info["output_top_logprobs"] = [top for _, top in rows]
    expected = responses.JSONResponse(
        chat_logprobs.chat_logprobs(meta_info).model_dump()
    ).body
    assert dump_logprobs(meta_info) == expected


NAN = {"output_token_logprobs": [(float("nan"), 7, "a")]}
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


class Choice(pydantic.BaseModel):  # type: ignore[misc,name-defined]
    index: int
    logprobs: Optional[chat_logprobs.Logprobs] = None  # noqa: UP045
    meta_info: Optional[dict[str, Any]] = None  # noqa: UP045


class Response(pydantic.BaseModel):  # type: ignore[misc,name-defined]
    choices: list[Choice]
    created: float


class Serving(chat_logprobs.Serving):
    """Makes chat responses like SGLang."""

    def __init__(self, ret: list[Any], suffix: str = "") -> None:
        super().__init__(suffix)
        self.ret = ret

    async def _handle_non_streaming_request(self, logprobs: bool = True) -> Any:
        await asyncio.sleep(0)
        choices = [
            Choice(
                index=index,
                logprobs=answers.build_logprobs(self, ret_item) if logprobs else None,
                meta_info=ret_item["meta_info"],
            )
            for index, ret_item in enumerate(self.ret)
        ]
        return Response(choices=choices, created=1e-7)

    def answer(self, **options: Any) -> Any:
        return asyncio.run(
            answers.answer(self._handle_non_streaming_request(**options))
        )


def engines(n_choices: int, n_tokens: int) -> list[Any]:
    """Draw the engine's answers, with logprobs."""
    return [
        {
            "meta_info": {
                "output_token_logprobs": [
                    (-i / 7, i, f"<{i}>") for i in range(n_tokens)
                ],
                "output_top_logprobs": [[(-1e-7, 9, "b")] for _ in range(n_tokens)],
            }
        }
        for _ in range(n_choices)
    ]


@pytest.mark.parametrize("pydantic_answers", [False, True])
@pytest.mark.parametrize("suffix", ["", "changed"])
def test_a_whole_answer_has_the_bytes_of_its_models(
    monkeypatch: pytest.MonkeyPatch, pydantic_answers: bool, suffix: str
) -> None:
    monkeypatch.setattr(release, "PYDANTIC_ANSWERS", pydantic_answers)
    serving = Serving(engines(3, 5), suffix)
    whole = asyncio.run(serving._handle_non_streaming_request())
    assert serving.n_models == 15, "only `answer` may skip models"
    expected = (
        whole.model_dump_json().encode()
        if pydantic_answers
        else fastapi(json.loads(whole.model_dump_json()))
    )
    serving.n_models = 0
    answer = serving.answer()
    if hasattr(answer, "choices"):
        assert pydantic_answers
        assert suffix
        assert answer == whole
    else:
        assert answer.body == expected
        assert answer.media_type == "application/json"
    assert serving.n_models == (18 if suffix else 3)


@pytest.mark.parametrize("pydantic_answers", [False, True])
def test_an_answer_without_logprobs_is_left_to_pydantic_if_it_writes_whole_answers(
    monkeypatch: pytest.MonkeyPatch, pydantic_answers: bool
) -> None:
    monkeypatch.setattr(release, "PYDANTIC_ANSWERS", pydantic_answers)
    answer = Serving(engines(1, 2)).answer(logprobs=False)
    assert hasattr(answer, "choices") is pydantic_answers
    if not pydantic_answers:
        assert json.loads(answer.body)["choices"][0]["logprobs"] is None


def test_the_next_request_of_a_task_is_given_all_models() -> None:
    serving = Serving(engines(1, 4))

    async def ask() -> Any:
        await answers.answer(serving._handle_non_streaming_request())
        return await serving._handle_non_streaming_request()

    assert len(asyncio.run(ask()).choices[0].logprobs.content) == 4


def test_generate_is_written_by_orjson_and_callers_get_the_answer() -> None:
    def endpoint() -> None: ...

    content = {"text": "x"}
    of_generate: Any = SimpleNamespace(scope={"endpoint": endpoint})
    assert answers.generated(content, of_generate, endpoint).body == b'{"text":"x"}'
    of_others: Any = SimpleNamespace(scope={"endpoint": len})
    assert answers.generated(content, of_others, endpoint) is content
    assert answers.generated(NAN, of_generate, endpoint) is NAN
