"""exact prompt and completion token IDs, with logprobs in step, in chat completions

Non-streaming the engine's answer has all of it and only the protocol lacks the fields.
Streaming, v0.5.9 drops the logprobs of every token whose text is held back, so a trace
keeps IDs and logprobs together until a chunk of their choice is about to be yielded.
"""

from __future__ import annotations

from agentcore_patches.edits import AddField, AddKeyword, Edit, Graft, Insert, Replace
from agentcore_patches.grafts.logprobs import (
    _cut_logprobs,
    check_logprobs_of_diffusion,
    check_logprobs_support,
)
from agentcore_patches.grafts.response_fields import _serialize_answer, _serialize_chunk
from agentcore_patches.patches._chat_streams import CHAT_STREAMS
from agentcore_patches.patches._completions import COMPLETIONS
from agentcore_patches.patches._ended_requests import ENDED_REQUESTS, PAUSES
from agentcore_patches.patches._files import (
    HTTP_SERVER,
    PROTOCOL,
    SERVING_BASE,
    SERVING_CHAT,
    SERVING_COMPLETIONS,
    SSE_UTILS,
    TOKENIZER_MANAGER,
)
from agentcore_patches.patches._messages import MESSAGES
from agentcore_patches.patches._prompts import (
    CHECKED_PROMPTS,
    CHOICE_PROMPT_TOKEN_IDS,
    PROMPT_TOKEN_IDS,
)
from agentcore_patches.patches._stream_output import WHOLE_STREAM_OUTPUT
from agentcore_patches.patches._token_names import TOKENS_AS_TOKEN_IDS
from agentcore_patches.patches._whole_answers import ANSWER_BY_ORJSON

RESPONSE_FIELDS = ("prompt_token_ids", "token_ids")

_BASE = "OpenAIServingBase"
_CHAT = "OpenAIServingChat"
_COMPLETION = "OpenAIServingCompletion"

# From v0.5.17 on SGLang has the flag itself, for whole answers; in v0.5.17 alone what it
# answers is called `token_ids`, too, and from v0.5.18 on `response_token_ids`.
_ANSWERED_BY_US = (("", "0.5.16"), ("0.5.18", ""))

FIELDS: tuple[Edit, ...] = (
    AddField(
        PROTOCOL,
        "ChatCompletionRequest",
        "return_token_ids: Optional[bool] = None",
        note="token IDs of prompt and completion; only false leaves them out",
        until="0.5.16",
    ),
    Replace(
        PROTOCOL,
        "ChatCompletionRequest",
        "return_token_ids: bool = False",
        "return_token_ids: Optional[bool] = None",
        note="only false leaves them out",
        since="0.5.17",
    ),
    *(
        edit
        for since, until in _ANSWERED_BY_US
        for edit in (
            AddField(
                PROTOCOL,
                "ChatCompletionResponseChoice",
                "token_ids: Optional[List[int]] = None",
                note="the IDs generated for this choice",
                since=since,
                until=until,
            ),
            Insert(
                PROTOCOL,
                "ChatCompletionResponseChoice._serialize",
                'if self.token_ids is None:\n    data.pop("token_ids", None)',
                before="return data",
                since=since,
                until=until,
            ),
        )
    ),
    AddField(
        PROTOCOL,
        "ChatCompletionResponse",
        "prompt_token_ids: Optional[List[int]] = None",
        note="the IDs that the engine prefilled",
    ),
    Insert(
        PROTOCOL,
        "ChatCompletionResponse._serialize",
        'if self.prompt_token_ids is None:\n    data.pop("prompt_token_ids", None)',
        before="return data",
        since="0.5.9",
    ),
    AddField(
        PROTOCOL,
        "ChatCompletionResponseStreamChoice",
        "token_ids: Optional[List[int]] = None",
        note="the IDs new since the last chunk of this choice",
    ),
    AddField(
        PROTOCOL,
        "ChatCompletionStreamResponse",
        "prompt_token_ids: Optional[List[int]] = None",
        note="the IDs that the engine prefilled, on the first chunk only",
    ),
    AddField(
        PROTOCOL,
        "ChatCompletionResponseStreamChoice",
        "prompt_token_ids: Optional[List[int]] = None",
        note="return_token_ids if it is true: on the first chunk of this choice",
    ),
    AddField(
        PROTOCOL,
        "ChatCompletionStreamResponse",
        "metadata: Optional[Dict[str, Any]] = None",
        note="the weight version, on the first chunk and where it is another",
    ),
    # One serializer for chunk and choices: a second one would run on every chunk.
    Insert(
        PROTOCOL,
        "ChatCompletionStreamResponse._serialize",
        'for key in ("prompt_token_ids", "metadata"):\n'
        "    if data.get(key) is None:\n"
        "        data.pop(key, None)\n"
        'for choice in data.get("choices", ()):\n'
        '    for key in ("token_ids", "prompt_token_ids"):\n'
        "        if choice.get(key) is None:\n"
        "            choice.pop(key, None)",
        before="return data",
        since="0.5.9",
    ),
    # In v0.5.8 neither of the two has a serializer.
    *(
        Graft(
            PROTOCOL,
            response,
            serializer,
            inside=True,
            note="a field that is None is left out",
            until="0.5.8",
        )
        for response, serializer in (
            ("ChatCompletionResponse", _serialize_answer),
            ("ChatCompletionStreamResponse", _serialize_chunk),
        )
    ),
    # From v0.5.11 on most chunks are structs, in which a field that is unset is left out,
    # and from v0.5.13 on these are in a file of their own.
    *(
        AddField(file, struct, declaration, note=note, since=since, until=until)
        for file, choice, chunk, mapping, since, until in (
            (
                SERVING_CHAT,
                "_StreamChoice",
                "_StreamChunk",
                "Dict[str, Any]",
                "0.5.11",
                "0.5.12",
            ),
            (SSE_UTILS, "StreamChoice", "StreamChunk", "dict", "0.5.13", ""),
        )
        for struct, declaration, note in (
            (
                choice,
                "token_ids: Union[List[int], msgspec.UnsetType] = msgspec.UNSET",
                "the IDs new since the last chunk of this choice",
            ),
            (
                choice,
                "prompt_token_ids: Union[List[int], msgspec.UnsetType] = msgspec.UNSET",
                "return_token_ids if it is true: on the first chunk of this choice",
            ),
            (
                chunk,
                "prompt_token_ids: Optional[List[int]] = None",
                "the IDs that the engine prefilled, on the first chunk only",
            ),
            (
                chunk,
                f"metadata: Optional[{mapping}] = None",
                "the weight version, on the first chunk and where it is another",
            ),
        )
    ),
)

REQUEST: tuple[Edit, ...] = (
    Insert(
        SERVING_CHAT,
        f"{_CHAT}._convert_to_internal_request",
        "if request.return_token_ids is not False:\n"
        "    adapted_request.return_prompt_token_ids = True",
        before="return adapted_request, request",
        note="return_token_ids",
    ),
    Replace(
        SERVING_CHAT,
        f"{_CHAT}._convert_to_internal_request",
        "raise ValueError(\n"
        '    "return_token_ids is not supported with streaming on "\n'
        '    "/v1/chat/completions. Please set stream=false when using "\n'
        '    "return_token_ids=true."\n'
        ")",
        "pass",
        note="a stream has them on its chunks",
        since="0.5.17",
    ),
)

_LOGPROBS = "a logprob for every token"
# File, class, the function that builds its whole answers, and when they have both.
_LOGPROBS_WITH_IDS = (
    (
        SERVING_CHAT,
        _CHAT,
        "_build_chat_response",
        "request.logprobs and request.return_token_ids is not False",
    ),
    (
        SERVING_COMPLETIONS,
        _COMPLETION,
        "_build_completion_response",
        "request.logprobs is not None and request.return_token_ids",
    ),
)

LOGPROBS: tuple[Edit, ...] = (
    Graft(SERVING_BASE, _BASE, _cut_logprobs, inside=True, note=_LOGPROBS),
    *(
        Graft(
            TOKENIZER_MANAGER,
            "TokenizerManager",
            check,
            inside=True,
            note=_LOGPROBS,
            until=until,
        )
        for check, until in (
            (check_logprobs_support, "0.5.9"),
            (check_logprobs_of_diffusion, ""),
        )
    ),
    *(
        Insert(
            file,
            f"{serving}._validate_request",
            f"if {has_both}:\n"
            f"    error = self.tokenizer_manager.{check.__name__}()\n"
            "    if error is not None:\n"
            "        return error",
            note=_LOGPROBS,
            since=since,
            until=until,
        )
        for check, since, until in (
            (check_logprobs_support, "", "0.5.9"),
            (check_logprobs_of_diffusion, "0.5.10", ""),
        )
        for file, serving, _, has_both in _LOGPROBS_WITH_IDS
    ),
    *(
        Insert(
            HTTP_SERVER,
            endpoint,
            "asked = obj.return_logprob\n"
            "if any(asked) if isinstance(asked, list) else asked:\n"
            "    manager = _global_state.tokenizer_manager\n"
            f"    error = manager.{check.__name__}({of})\n"
            "    if error is not None:\n"
            "        return _create_error_response(error)",
            note=_LOGPROBS,
            since=since,
            until=until,
        )
        for endpoint, check, of, since, until in (
            # Scoring a prompt is one new token, whose logprobs there are.
            (
                "generate_request",
                check_logprobs_support,
                "obj.sampling_params",
                "",
                "0.5.9",
            ),
            ("generate_request", check_logprobs_of_diffusion, "", "0.5.10", "0.5.21"),
            ("serve_generate_request", check_logprobs_of_diffusion, "", "0.5.22", ""),
        )
    ),
    *(
        Insert(
            file,
            f"{serving}.{build}",
            f"if {has_both}:\n    self._cut_logprobs(ret)",
            note=_LOGPROBS,
        )
        for file, serving, build, has_both in _LOGPROBS_WITH_IDS
    ),
)

_UNLESS_FALSE = """(
    ret_item["output_ids"]
    if request.return_token_ids is not False
    else None
)"""

NON_STREAMING: tuple[Edit, ...] = (
    *(
        AddKeyword(
            SERVING_CHAT,
            f"{_CHAT}._build_chat_response",
            "ChatCompletionResponseChoice",
            f"token_ids={_UNLESS_FALSE}",
            since=since,
            until=until,
        )
        for since, until in _ANSWERED_BY_US
    ),
    Replace(
        SERVING_CHAT,
        f"{_CHAT}._build_chat_response",
        'choice_token_ids = ret_item["output_ids"] if request.return_token_ids else None',
        f"choice_token_ids = {_UNLESS_FALSE}",
        note="only false leaves them out",
        since="0.5.17",
        until="0.5.17",
    ),
    AddKeyword(
        SERVING_CHAT,
        f"{_CHAT}._build_chat_response",
        "ChatCompletionResponse",
        "prompt_token_ids=(\n"
        '    ret[0].get("prompt_token_ids")\n'
        "    if request.return_token_ids is not False\n"
        "    else None\n"
        ")",
    ),
    Insert(
        SERVING_CHAT,
        f"{_CHAT}._build_chat_response",
        "if request.return_token_ids:\n"
        '    choice_data.prompt_token_ids = ret_item.get("prompt_token_ids")\n'
        '    choice_data.message.content = choice_data.message.content or ""',
        before="choices.append(choice_data)",
        note="return_token_ids: true has the shape of later versions",
        until="0.5.16",
    ),
)

EDITS: tuple[Edit, ...] = (
    *CHECKED_PROMPTS,
    *PROMPT_TOKEN_IDS,
    *CHOICE_PROMPT_TOKEN_IDS,
    *WHOLE_STREAM_OUTPUT,
    *ANSWER_BY_ORJSON,
    *ENDED_REQUESTS,
    *PAUSES,
    *FIELDS,
    *REQUEST,
    *LOGPROBS,
    *NON_STREAMING,
    *CHAT_STREAMS,
    *TOKENS_AS_TOKEN_IDS,
    *COMPLETIONS,
    *MESSAGES,
)
