"""exact prompt and completion token IDs, with logprobs in step, in chat completions

Non-streaming the engine's answer has all of it and only the protocol lacks the fields.
Streaming, v0.5.9 drops the logprobs of every token whose text is held back, so a trace
keeps IDs and logprobs together until a chunk of their choice is about to be yielded.
"""

from __future__ import annotations

from agentcore_patches.edits import (
    AddField,
    AddKeyword,
    AddParameter,
    Edit,
    Graft,
    Insert,
    Narrow,
    Replace,
)
from agentcore_patches.grafts.chat_token_trace import ChatTokenTrace
from agentcore_patches.grafts.chunk_template import _fill_template, _keep_template
from agentcore_patches.grafts.logprobs import (
    _cut_logprobs,
    check_logprobs_of_diffusion,
    check_logprobs_support,
)
from agentcore_patches.grafts.response_fields import (
    _serialize_answer,
    _serialize_chunk,
)
from agentcore_patches.patches._completions import COMPLETIONS
from agentcore_patches.patches._ended_requests import (
    ENDED_REQUESTS,
    PAUSES,
    aborts_that_are_no_error,
)
from agentcore_patches.patches._files import (
    CHAT_ENCODING_ADAPTERS,
    HTTP_SERVER,
    PROTOCOL,
    SERVING_BASE,
    SERVING_CHAT,
    SERVING_COMPLETIONS,
    SERVING_DEEPSEEK_RECIPE,
    SERVING_INKLING,
    SSE_UTILS,
    TOKENIZER_MANAGER,
)
from agentcore_patches.patches._messages import MESSAGES
from agentcore_patches.patches._shared import (
    ANSWER_BY_ORJSON,
    CHECKED_PROMPTS,
    CHOICE_PROMPT_TOKEN_IDS,
    PROMPT_TOKEN_IDS,
    STREAM_OUTPUT_OF_ARGUMENTS,
    STREAM_OUTPUT_OF_CONTEXT,
    WHOLE_STREAM_OUTPUT,
)
from agentcore_patches.patches._token_names import TOKENS_AS_TOKEN_IDS

RESPONSE_FIELDS = ("prompt_token_ids", "token_ids")

_BASE = "OpenAIServingBase"
_CHAT = "OpenAIServingChat"
_COMPLETION = "OpenAIServingCompletion"
_PARAMETER = "dump_chunk: Any = ChatCompletionStreamResponse.model_dump_json"


def _dumped(
    scope: str, keyword: str, each: int = 1, since: str = "", until: str = ""
) -> Edit:
    """Have a scope turn its chunks into text with `dump_chunk`."""
    return Replace(
        SERVING_CHAT,
        scope,
        f'{keyword} f"data: {{CHUNK.model_dump_json()}}\\n\\n"',
        f'{keyword} f"data: {{dump_chunk(CHUNK)}}\\n\\n"',
        each=each,
        since=since,
        until=until,
    )


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

_INCREMENTAL = "        incremental_logprobs=True,\n"

STREAMING: tuple[Edit, ...] = (
    Graft(
        SERVING_CHAT,
        _CHAT,
        ChatTokenTrace,
        note="token IDs and logprobs, kept until a chunk carries them",
    ),
    *(
        Insert(
            SERVING_CHAT,
            f"{_CHAT}._generate_chat_stream",
            "trace = None\n"
            "dump_chunk = ChatCompletionStreamResponse.model_dump_json\n"
            "if request.return_token_ids is not False:\n"
            f"{config}"
            "    trace = ChatTokenTrace(\n"
            f"        incremental={stream_output},\n"
            f"{logprobs}"
            "        build_logprobs=(\n"
            "            self._process_response_logprobs if request.logprobs else None\n"
            "        ),\n"
            "        choice_prompts=bool(request.return_token_ids),\n"
            "    )\n"
            f"    dump_chunk = trace.dump{as_it_is}",
            note="return_token_ids",
            since=since,
            until=until,
        )
        for (config, stream_output), logprobs, as_it_is, since, until in (
            (STREAM_OUTPUT_OF_ARGUMENTS, "", "", "", "0.5.10"),
            (STREAM_OUTPUT_OF_ARGUMENTS, _INCREMENTAL, "", "0.5.11", "0.5.19"),
            (STREAM_OUTPUT_OF_CONTEXT, _INCREMENTAL, "", "0.5.20", "0.5.21"),
            # From v0.5.22 on a chunk without tool calls leaves them out.
            (
                STREAM_OUTPUT_OF_CONTEXT,
                _INCREMENTAL,
                "\n    trace.is_plain = False",
                "0.5.22",
                "",
            ),
        )
    ),
    Insert(
        SERVING_CHAT,
        f"{_CHAT}._generate_chat_stream",
        "if trace is not None:\n    trace.push(index, content)",
        after='index = content.get("index", 0)',
    ),
    # v0.5.10 takes the new text for all of it, and every abort for an error.
    Replace(
        SERVING_CHAT,
        f"{_CHAT}._generate_chat_stream",
        'delta = content["text"][len(stream_buffer) :]',
        "delta = (\n"
        '    content["text"]\n'
        "    if trace is not None and trace.incremental\n"
        '    else content["text"][len(stream_buffer) :]\n'
        ")",
        note="under --stream-output it is the new text already",
        since="0.5.10",
        until="0.5.10",
    ),
    *aborts_that_are_no_error(SERVING_CHAT, f"{_CHAT}._generate_chat_stream"),
    # The trace has its own, for every token; these are only those of the last step.
    Narrow(
        SERVING_CHAT,
        f"{_CHAT}._generate_chat_stream",
        "if request.logprobs: ...",
        "trace is None",
    ),
    *(
        _dumped(f"{_CHAT}._generate_chat_stream", "yield", n_chunks, since, until)
        for n_chunks, since, until in (
            (6, "", "0.5.8"),
            (7, "0.5.9", "0.5.10"),
            (3, "0.5.11", "0.5.19"),
            (4, "0.5.20", ""),
        )
    ),
    *(
        edit
        for helper, keyword, n_chunks, last in (
            ("_process_tool_call_stream", "yield", 2, ""),
            ("_check_for_unstreamed_tool_args", "return", 1, "0.5.21"),
        )
        for edit in (
            *(
                AddKeyword(
                    SERVING_CHAT,
                    f"{_CHAT}.{caller}",
                    f"self.{helper}",
                    "dump_chunk=dump_chunk",
                    since=since,
                    until=until,
                )
                for caller, since, until in (
                    ("_generate_chat_stream", "", "0.5.12"),
                    ("_generate_stream_content", "0.5.13", last),
                )
            ),
            AddParameter(SERVING_CHAT, f"{_CHAT}.{helper}", _PARAMETER),
            _dumped(f"{_CHAT}.{helper}", keyword, each=n_chunks),
        )
    ),
    Replace(
        SERVING_CHAT,
        f"{_CHAT}._generate_stream_content",
        "remaining_chunk = self._check_for_unstreamed_tool_args(\n"
        "    parser, content, request, index, created=created\n"
        ")",
        "remaining_chunk = self._check_for_unstreamed_tool_args(\n"
        "    parser,\n"
        "    content,\n"
        "    request,\n"
        "    index,\n"
        "    created=created,\n"
        "    dump_chunk=dump_chunk,\n"
        ")",
        since="0.5.22",
    ),
    # From v0.5.13 on text and tool calls have a method of their own.
    *(
        edit
        for parameter, argument in (
            ("trace: Any = None", "trace=trace"),
            (_PARAMETER, "dump_chunk=dump_chunk"),
        )
        for edit in (
            AddParameter(
                SERVING_CHAT,
                f"{_CHAT}._generate_stream_content",
                parameter,
                since="0.5.13",
            ),
            AddKeyword(
                SERVING_CHAT,
                f"{_CHAT}._generate_chat_stream",
                "self._generate_stream_content",
                argument,
                since="0.5.13",
            ),
        )
    ),
    # Chunks that are structs are made and turned into text in one place.
    *(
        AddKeyword(
            SERVING_CHAT,
            f"{_CHAT}.{caller}",
            "_fast_sse_content",
            "trace=trace",
            each=n_chunks,
            since=since,
            until=until,
        )
        for caller, n_chunks, since, until in (
            ("_generate_chat_stream", 4, "0.5.11", "0.5.12"),
            ("_generate_chat_stream", 2, "0.5.13", ""),
            ("_generate_stream_content", 2, "0.5.13", "0.5.14"),
            ("_generate_stream_content", 3, "0.5.15", ""),
        )
    ),
    *(
        edit
        for file, parameter, since, until in (
            (SERVING_CHAT, "trace: Any = None", "0.5.11", "0.5.12"),
            (SSE_UTILS, "trace=None", "0.5.13", ""),
        )
        for edit in (
            *(
                Graft(
                    file,
                    "_fast_sse_content",
                    function,
                    note="chunks that are text and tokens alone",
                    since=since,
                    until=until,
                )
                for function in (_keep_template, _fill_template)
            ),
            AddParameter(
                file, "_fast_sse_content", parameter, since=since, until=until
            ),
            Insert(
                file,
                "_fast_sse_content",
                "is_text = (\n"
                "    trace is not None\n"
                "    and content\n"
                "    and role is None\n"
                "    and reasoning_content is None\n"
                "    and finish_reason is None\n"
                "    and logprobs is None\n"
                "    and matched_stop is None\n"
                "    and usage is None\n"
                ")\n"
                "if is_text:\n"
                "    line = _fill_template(trace, created, index, content)\n"
                "    if line is not None:\n"
                "        return line",
                note="return_token_ids",
                since=since,
                until=until,
            ),
            Insert(
                file,
                "_fast_sse_content",
                "if trace is not None:\n"
                "    trace.stamp(chunk)\n"
                "    if is_text:\n"
                "        _keep_template(trace, chunk)",
                after="chunk = ...",
                note="return_token_ids",
                since=since,
                until=until,
            ),
        )
    ),
)

# From v0.5.23 on the output of some models is parsed from its IDs, and the chunks of such a
# model are made elsewhere.
_ADAPTERS = (
    (SERVING_INKLING, "InklingChatEncodingAdapter"),
    (SERVING_DEEPSEEK_RECIPE, "DeepSeekRecipeChatEncodingAdapter"),
)
STREAMING_BY_ADAPTERS: tuple[Edit, ...] = (
    AddKeyword(
        SERVING_CHAT,
        f"{_CHAT}._generate_stream_content",
        "encoding_output.stream_chat_chunks",
        "trace=trace",
        since="0.5.23",
    ),
    *(
        edit
        for file, adapter in _ADAPTERS
        for edit in (
            AddParameter(
                file,
                f"{adapter}.stream_chat_chunks",
                "trace: Any = None",
                since="0.5.23",
            ),
            AddKeyword(
                file,
                f"{adapter}.stream_chat_chunks",
                "token_output_sse_chunks",
                "trace=trace",
                since="0.5.23",
            ),
        )
    ),
    AddParameter(
        CHAT_ENCODING_ADAPTERS,
        "token_output_sse_chunks",
        "trace: Any = None",
        since="0.5.23",
    ),
    Insert(
        CHAT_ENCODING_ADAPTERS,
        "token_output_sse_chunks",
        'fields["trace"] = trace',
        after="fields = dict(...)",
        note="return_token_ids",
        since="0.5.23",
    ),
    Insert(
        CHAT_ENCODING_ADAPTERS,
        "token_output_sse_chunks",
        "if trace is not None:\n    trace.stamp(chunk)",
        before='chunks.append(f"data: {chunk.model_dump_json()}\\n\\n")',
        note="return_token_ids",
        since="0.5.23",
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
    *STREAMING,
    *STREAMING_BY_ADAPTERS,
    *TOKENS_AS_TOKEN_IDS,
    *COMPLETIONS,
    *MESSAGES,
)
