"""Streams of chat, for `token-ids`: each chunk is stamped before it becomes text."""

from __future__ import annotations

from agentcore_patches.edits import (
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
from agentcore_patches.patches._ended_requests import aborts_that_are_no_error
from agentcore_patches.patches._files import (
    CHAT_ENCODING_ADAPTERS,
    SERVING_CHAT,
    SERVING_DEEPSEEK_RECIPE,
    SERVING_INKLING,
    SSE_UTILS,
)
from agentcore_patches.patches._stream_output import (
    STREAM_OUTPUT_OF_ARGUMENTS,
    STREAM_OUTPUT_OF_CONTEXT,
)

_CHAT = "OpenAIServingChat"
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


_REST_OF_TOOL_CALL = "_check_for_unstreamed_tool_args"
_INCREMENTAL = "        incremental_logprobs=True,\n"

_TRACED: tuple[Edit, ...] = (
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
            (_REST_OF_TOOL_CALL, "return", 1, "0.5.21"),
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
            AddParameter(SERVING_CHAT, f"{_CHAT}.{helper}", _PARAMETER, until=last),
            _dumped(f"{_CHAT}.{helper}", keyword, each=n_chunks, until=last),
        )
    ),
    AddKeyword(
        SERVING_CHAT,
        f"{_CHAT}._generate_stream_content",
        f"self.{_REST_OF_TOOL_CALL}",
        "trace=trace",
        since="0.5.22",
    ),
    AddParameter(
        SERVING_CHAT,
        f"{_CHAT}.{_REST_OF_TOOL_CALL}",
        "trace: Any = None",
        since="0.5.22",
    ),
    Insert(
        SERVING_CHAT,
        f"{_CHAT}.{_REST_OF_TOOL_CALL}",
        "if trace is not None:\n    trace.stamp(chunk)",
        before='return f"data: {chunk.model_dump_json()}\\n\\n"',
        note="return_token_ids",
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
_TRACED_BY_ADAPTERS: tuple[Edit, ...] = (
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

CHAT_STREAMS: tuple[Edit, ...] = (*_TRACED, *_TRACED_BY_ADAPTERS)
