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
from agentcore_patches.patches._files import PROTOCOL, SERVING_CHAT
from agentcore_patches.patches._shared import PROMPT_TOKEN_IDS, WHOLE_STREAM_OUTPUT

RESPONSE_FIELDS = ("prompt_token_ids", "token_ids")

_CHAT = "OpenAIServingChat"
_PARAMETER = "dump_chunk: Any = ChatCompletionStreamResponse.model_dump_json"


def _dumped(scope: str, keyword: str, each: int = 1) -> Edit:
    """Have a scope turn its chunks into text with `dump_chunk`."""
    return Replace(
        SERVING_CHAT,
        scope,
        f'{keyword} f"data: {{CHUNK.model_dump_json()}}\\n\\n"',
        f'{keyword} f"data: {{dump_chunk(CHUNK)}}\\n\\n"',
        each=each,
    )


FIELDS: tuple[Edit, ...] = (
    AddField(
        PROTOCOL,
        "ChatCompletionRequest",
        "return_token_ids: bool = True",
        note="whether to answer with the token IDs of prompt and completion",
    ),
    AddField(
        PROTOCOL,
        "ChatCompletionResponseChoice",
        "token_ids: Optional[List[int]] = None",
        note="the IDs generated for this choice",
    ),
    Insert(
        PROTOCOL,
        "ChatCompletionResponseChoice._serialize",
        'if self.token_ids is None:\n    data.pop("token_ids", None)',
        before="return data",
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
    # One serializer for chunk and choices: a second one would run on every chunk.
    Insert(
        PROTOCOL,
        "ChatCompletionStreamResponse._serialize",
        'if self.prompt_token_ids is None:\n    data.pop("prompt_token_ids", None)\n'
        'for choice in data.get("choices", ()):\n'
        '    if choice.get("token_ids") is None:\n'
        '        choice.pop("token_ids", None)',
        before="return data",
    ),
)

REQUEST: tuple[Edit, ...] = (
    Insert(
        SERVING_CHAT,
        f"{_CHAT}._convert_to_internal_request",
        "if request.return_token_ids:\n"
        "    adapted_request.return_prompt_token_ids = True",
        before="return adapted_request, request",
        note="return_token_ids",
    ),
)

NON_STREAMING: tuple[Edit, ...] = (
    AddKeyword(
        SERVING_CHAT,
        f"{_CHAT}._build_chat_response",
        "ChatCompletionResponseChoice",
        'token_ids=ret_item["output_ids"] if request.return_token_ids else None',
    ),
    AddKeyword(
        SERVING_CHAT,
        f"{_CHAT}._build_chat_response",
        "ChatCompletionResponse",
        "prompt_token_ids=(\n"
        '    ret[0]["prompt_token_ids"] if request.return_token_ids else None\n'
        ")",
    ),
)

STREAMING: tuple[Edit, ...] = (
    Graft(
        SERVING_CHAT,
        _CHAT,
        ChatTokenTrace,
        note="token IDs and logprobs, kept until a chunk carries them",
    ),
    Insert(
        SERVING_CHAT,
        f"{_CHAT}._generate_chat_stream",
        "trace = None\n"
        "dump_chunk = ChatCompletionStreamResponse.model_dump_json\n"
        "if request.return_token_ids:\n"
        "    trace = ChatTokenTrace(\n"
        "        incremental=self.tokenizer_manager.server_args.stream_output,\n"
        "        build_logprobs=(\n"
        "            self._process_response_logprobs if request.logprobs else None\n"
        "        ),\n"
        "    )\n"
        "    dump_chunk = trace.dump",
        note="return_token_ids",
    ),
    Insert(
        SERVING_CHAT,
        f"{_CHAT}._generate_chat_stream",
        "if trace is not None:\n    trace.push(index, content)",
        after='index = content.get("index", 0)',
    ),
    # The trace has its own, for every token; these are only those of the last step.
    Narrow(
        SERVING_CHAT,
        f"{_CHAT}._generate_chat_stream",
        "if request.logprobs: ...",
        "trace is None",
    ),
    _dumped(f"{_CHAT}._generate_chat_stream", "yield", each=7),
    *(
        edit
        for helper, keyword, n_chunks in (
            ("_process_tool_call_stream", "yield", 2),
            ("_check_for_unstreamed_tool_args", "return", 1),
        )
        for edit in (
            AddKeyword(
                SERVING_CHAT,
                f"{_CHAT}._generate_chat_stream",
                f"self.{helper}",
                "dump_chunk=dump_chunk",
            ),
            AddParameter(SERVING_CHAT, f"{_CHAT}.{helper}", _PARAMETER),
            _dumped(f"{_CHAT}.{helper}", keyword, each=n_chunks),
        )
    ),
)

EDITS: tuple[Edit, ...] = (
    *PROMPT_TOKEN_IDS,
    *WHOLE_STREAM_OUTPUT,
    *FIELDS,
    *REQUEST,
    *NON_STREAMING,
    *STREAMING,
)
