"""Logprobs with the bytes of their tokens, as SGLang writes them from v0.5.21 on."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore_patches.grafts import (
    completion_logprobs,
    fast_answers,
    short_numbers,
    token_bytes,
)
from tests.helpers.bad_logprobs import BAD_LOGPROBS

orjson = pytest.importorskip("orjson")
pydantic = pytest.importorskip("pydantic")

# A part of a character, U+FFFD itself, two tokens with the same text, one without bytes.
TEXTS = ["a", "\ufffd", "\ufffd", " é", "b", "b", "<|end|>"]
BYTES = [[97], [240], [239, 191, 189], [32, 195, 169], [98], [98], None]
UTILS = "sglang.srt.entrypoints.openai.utils"


@pytest.fixture(autouse=True)
def _imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the grafts find where they land."""
    utils = SimpleNamespace(_is_byte_level_tokenizer=lambda tokenizer: bool(tokenizer))
    monkeypatch.setitem(sys.modules, UTILS, utils)
    for module, name, value in (
        (token_bytes, "orjson", orjson),
        (token_bytes, "token_id_to_bytes", lambda tokenizer, one: tokenizer[one]),
        (token_bytes, "_dump_numbers", short_numbers._dump_numbers),
        (short_numbers, "orjson", orjson),
        (fast_answers, "orjson", orjson),
    ):
        monkeypatch.setattr(module, name, value, raising=False)


class Entry(pydantic.BaseModel):  # type: ignore[misc,name-defined]
    token: str
    bytes: list[int]
    logprob: float


class TopEntry(Entry):
    top_logprobs: list[Entry]


class Logprobs(pydantic.BaseModel):  # type: ignore[misc,name-defined]
    content: list[TopEntry]


def vanilla(meta_info: dict[str, Any], is_byte_level: bool) -> bytes:
    """The logprobs of a chat choice, token by token, as pydantic writes them."""

    def entry(row: Any) -> dict[str, Any]:
        logprob, token_id, text = row
        raw = BYTES[token_id] if is_byte_level else None
        return {
            "token": text,
            "bytes": raw or list(text.encode()),
            "logprob": logprob,
        }

    tops = meta_info.get("output_top_logprobs")
    content = [
        TopEntry(
            **entry(row),
            top_logprobs=[Entry(**entry(o)) for o in tops[i]] if tops else [],
        )
        for i, row in enumerate(meta_info["output_token_logprobs"])
    ]
    written: str = Logprobs(content=content).model_dump_json()
    return written.encode()


ROW = st.builds(
    lambda logprob, token_id: (logprob, token_id, TEXTS[token_id]),
    st.one_of(st.floats(), st.sampled_from([-1.1920928955078125e-07, -1e-16, -0.0])),
    st.integers(0, len(TEXTS) - 1),
)


@given(
    st.lists(st.tuples(ROW, st.lists(ROW, max_size=4)), max_size=6),
    st.booleans(),
    st.booleans(),
)
def test_logprobs_are_written_as_from_their_models(
    rows: Any, with_top: bool, is_byte_level: bool
) -> None:
    meta_info: dict[str, Any] = {"output_token_logprobs": [entry for entry, _ in rows]}
    if with_top:
        meta_info["output_top_logprobs"] = [top for _, top in rows]
    ret = [{"output_ids": [1], "meta_info": meta_info}]
    tokenizer = BYTES if is_byte_level else None
    [answer] = token_bytes._with_token_bytes(ret, tokenizer)
    assert ret == [{"output_ids": [1], "meta_info": meta_info}]
    assert "token_bytes" not in meta_info
    written = token_bytes._dump_logprobs(answer["meta_info"])
    assert written == vanilla(meta_info, is_byte_level)


def test_a_token_without_text_is_named_by_its_id() -> None:
    meta_info = {
        "output_token_logprobs": [(-0.5, 7, None)],
        "output_top_logprobs": [[(-0.5, 7, None), (-1e-7, 8, None)]],
        "token_bytes": {7: [240]},
    }
    [entry] = json.loads(token_bytes._dump_logprobs(meta_info))["content"]
    assert (entry["token"], entry["bytes"]) == ("token_id:7", [240])
    top = [(one["token"], one["bytes"]) for one in entry["top_logprobs"]]
    assert top == [("token_id:7", [240]), ("token_id:8", list(b"token_id:8"))]


@pytest.mark.parametrize("meta_info", BAD_LOGPROBS, ids=repr)
def test_logprobs_that_are_not_as_they_should_be_are_refused(meta_info: Any) -> None:
    with pytest.raises((AttributeError, LookupError, TypeError, ValueError)):
        token_bytes._dump_logprobs({**meta_info, "token_bytes": {}})


@given(st.lists(st.floats(), min_size=1))
def test_numbers_are_written_as_pydantic_writes_them(values: list[float]) -> None:
    written = b"[%b]" % b",".join(short_numbers._dump_numbers(values))
    adapter = pydantic.TypeAdapter(list[float])
    assert written == adapter.dump_json(values)


@pytest.mark.parametrize("echo", [False, True])
def test_logprobs_of_completions_are_made_with_the_tokenizer(
    monkeypatch: pytest.MonkeyPatch, echo: bool
) -> None:
    made = completion_logprobs
    monkeypatch.setattr(made, "to_openai_style_logprobs", dict, raising=False)
    meta_info = {"input_token_logprobs": [1], "output_token_logprobs": [2]}
    answer = {"meta_info": meta_info}
    built: Any = made._completion_logprobs(answer, echo, tokenizer="T")
    assert built == {
        "input_token_logprobs": [1] if echo else None,
        "input_top_logprobs": None,
        "output_token_logprobs": [2],
        "output_top_logprobs": None,
        "tokenizer": "T",
    }
