"""whole answers written by orjson, without a pydantic model per token

v0.5.9 makes a model of each token's logprob, and FastAPI walks every value of an answer
before `json.dumps` does: half a second of the event loop for 16,000 tokens, in which no
stream moves. What is written is the same; what orjson would write in another way takes
the old way. (Upstream answers `/generate` by orjson from 0.5.10.)
"""

from __future__ import annotations

from agentcore_patches.edits import (
    AddKeyword,
    AddParameter,
    Edit,
    Graft,
    Insert,
    Replace,
)
from agentcore_patches.grafts import token_bytes
from agentcore_patches.grafts.fast_answers import (
    _dump_logprobs,
    _is_plain,
    _keep_first_token,
    _prepare_for_orjson,
    _RequestTokenIds,
    _write_chat_answer,
    _write_generated,
)
from agentcore_patches.grafts.short_numbers import _dump_numbers
from agentcore_patches.patches._files import (
    HTTP_SERVER,
    IO_STRUCT,
    SERVING_BASE,
    SERVING_CHAT,
)
from agentcore_patches.patches._prompts import CHECKED_PROMPTS
from agentcore_patches.patches._whole_answers import ANSWER_BY_ORJSON

RESPONSE_FIELDS: tuple[str, ...] = ()

_BASE = "OpenAIServingBase"
_CHAT = "OpenAIServingChat"
_NOTE = "no model per token"

# `/v1/messages` takes the model that `_handle_non_streaming_request` returns, so only
# `handle_request` asks for less.
CHAT: tuple[Edit, ...] = (
    *(
        Graft(SERVING_BASE, _BASE, function, note=_NOTE, since=since, until=until)
        for function, since, until in (
            # From v0.5.22 on pydantic writes the numbers of whole answers.
            (_dump_numbers, "0.5.22", ""),
            (_prepare_for_orjson, "0.5.22", ""),
            # From v0.5.21 on the bytes of a token are those of its ID.
            (_dump_logprobs, "", "0.5.20"),
            (token_bytes._dump_logprobs, "0.5.21", ""),
        )
    ),
    Graft(SERVING_CHAT, _CHAT, _keep_first_token, note=_NOTE),
    Graft(
        SERVING_CHAT,
        _CHAT,
        token_bytes._with_token_bytes,
        note=_NOTE,
        since="0.5.21",
    ),
    Graft(SERVING_CHAT, _CHAT, _write_chat_answer, inside=True, note=_NOTE),
    Insert(
        SERVING_BASE,
        f"{_BASE}.handle_request",
        "raw_request.state.writes_logprobs = True",
        note="the answer goes to bytes, and to nobody else",
    ),
    Insert(
        SERVING_CHAT,
        f"{_CHAT}._handle_non_streaming_request",
        "writes_logprobs = request.logprobs and getattr(\n"
        '    raw_request.state, "writes_logprobs", False\n'
        ")",
        note=_NOTE,
    ),
    AddKeyword(
        SERVING_CHAT,
        f"{_CHAT}._handle_non_streaming_request",
        "self._build_chat_response",
        "first_token_only=writes_logprobs",
    ),
    AddParameter(
        SERVING_CHAT, f"{_CHAT}._build_chat_response", "first_token_only: bool = False"
    ),
    Replace(
        SERVING_CHAT,
        f"{_CHAT}._build_chat_response",
        "choice_logprobs = self._process_response_logprobs(ret_item)",
        "choice_logprobs = self._process_response_logprobs(\n"
        "    _keep_first_token(ret_item) if first_token_only else ret_item\n"
        ")",
        note="the others' are written from the engine's lists",
    ),
    *(
        Replace(
            SERVING_CHAT,
            f"{_CHAT}._handle_non_streaming_request",
            "return response",
            written,
            note=_NOTE,
            since=since,
            until=until,
        )
        for written, since, until in (
            (
                "return self._write_chat_answer(response, ret) "
                "if writes_logprobs else response",
                "",
                "0.5.20",
            ),
            (
                "return (\n"
                "    self._write_chat_answer(response, ret, _with_token_bytes)\n"
                "    if writes_logprobs\n"
                "    else response\n"
                ")",
                "0.5.21",
                "",
            ),
        )
    ),
)

# `/vertex_generate` calls `generate_request` too, for the dict. From v0.5.10 on the
# endpoint answers by orjson itself.
GENERATE: tuple[Edit, ...] = (
    Graft(
        HTTP_SERVER,
        "generate_request",
        _is_plain,
        note="whole answers without FastAPI's encoder",
        until="0.5.9",
    ),
    Graft(
        HTTP_SERVER,
        "generate_request",
        _write_generated,
        note="whole answers without FastAPI's encoder",
        until="0.5.9",
    ),
    Insert(
        HTTP_SERVER,
        "generate_request",
        'if request.scope.get("endpoint") is generate_request:\n'
        "    body = _write_generated(ret)\n"
        "    if body is not None:\n"
        '        return Response(body, media_type="application/json")',
        before="return ret",
        note="whole answers without FastAPI's encoder",
        until="0.5.9",
    ),
)

# From v0.5.13 on SGLang takes such a prompt as it is.
REQUESTS: tuple[Edit, ...] = (
    Graft(
        IO_STRUCT,
        "GenerateReqInput",
        _RequestTokenIds,
        note="a prompt of token IDs is not walked twice",
        until="0.5.12",
    ),
    Replace(
        IO_STRUCT,
        "GenerateReqInput",
        "input_ids: Optional[Union[List[List[int]], List[int]]] = None",
        "input_ids: _RequestTokenIds = None",
        note="a prompt of token IDs is not walked twice",
        until="0.5.12",
    ),
)

EDITS: tuple[Edit, ...] = (
    *CHECKED_PROMPTS,
    *ANSWER_BY_ORJSON,
    *CHAT,
    *GENERATE,
    *REQUESTS,
)
