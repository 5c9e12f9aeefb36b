"""Logprobs with the bytes of their tokens, as SGLang writes them from v0.5.21 on."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

orjson = pytest.importorskip("orjson")
pydantic = pytest.importorskip("pydantic")

from agentcore_patches.landing import release  # noqa: E402
from agentcore_patches.landing.http import answers, logprobs  # noqa: E402
from tests.helpers.chat_logprobs import chat_logprobs  # noqa: E402

# A partial character, U+FFFD itself, two tokens with equal text, one without bytes.
TEXTS = ["a", "\ufffd", "\ufffd", " \u00e9", "b", "b", "<|end|>"]
BYTES = [[97], [240], [239, 191, 189], [32, 195, 169], [98], [98], None]
UTILS = "sglang.srt.entrypoints.openai.utils"


@pytest.fixture(autouse=True)
def _release(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that takes bytes from the token ID, with a list as the tokenizer."""
    utils = SimpleNamespace(
        _is_byte_level_tokenizer=bool,
        token_id_to_bytes=lambda tokenizer, token_id: tokenizer[token_id],
        to_openai_style_logprobs=lambda **lists: SimpleNamespace(
            model_dump_json=lambda: json.dumps(lists)
        ),
    )
    monkeypatch.setitem(sys.modules, UTILS, utils)
    monkeypatch.setattr(release, "BYTES_OF_ID", True)
    monkeypatch.setattr(release, "PYDANTIC_ANSWERS", True)


def write(meta_info: dict[str, Any], tokenizer: Any) -> str:
    """Write the logprobs of a non-streaming response."""
    openings = logprobs.Openings(tokenizer)
    return logprobs.write(meta_info, openings, answers.dump_numbers)


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
def test_logprobs_are_written_like_sglangs_models(
    rows: Any, with_top: bool, is_byte_level: bool
) -> None:
    meta_info: dict[str, Any] = {"output_token_logprobs": [entry for entry, _ in rows]}
    if with_top:
        meta_info["output_top_logprobs"] = [top for _, top in rows]
    bytes_of = BYTES if is_byte_level else None
    expected = chat_logprobs(meta_info, bytes_of).model_dump_json()
    assert write(meta_info, bytes_of) == expected


@given(st.lists(st.floats(), min_size=1))
def test_numbers_are_written_like_pydantic(values: list[float]) -> None:
    written = f"[{','.join(answers.dump_numbers(values))}]"
    adapter = pydantic.TypeAdapter(list[float])
    assert written.encode() == adapter.dump_json(values)
