"""`/v1/completions` with `return_token_ids`, a part of the patch `token-ids`.

Every output of the engine is a chunk here, whether it has text or not, so nothing waits;
but the engine's logprobs may be ahead of the IDs, so they are cut by the same trace.
"""

from __future__ import annotations

from agentcore_patches.edits import (
    AddField,
    AddKeyword,
    Edit,
    Graft,
    Insert,
    Narrow,
    Replace,
)
from agentcore_patches.grafts.completion_logprobs import _completion_logprobs
from agentcore_patches.grafts.response_fields import _serialize_chunk
from agentcore_patches.patches._ended_requests import aborts_that_are_no_error
from agentcore_patches.patches._files import PROTOCOL, SERVING_COMPLETIONS
from agentcore_patches.patches._stream_output import (
    STREAM_OUTPUT_OF_ARGUMENTS,
    STREAM_OUTPUT_OF_CONTEXT,
)

_COMPLETION = "OpenAIServingCompletion"

# From v0.5.17 on SGLang has the flag itself, with `token_ids` and `prompt_token_ids`.
FIELDS: tuple[Edit, ...] = (
    AddField(
        PROTOCOL,
        "CompletionRequest",
        "return_token_ids: Optional[bool] = None",
        note="whether to answer with the token IDs of prompt and completion",
        until="0.5.16",
    ),
    Replace(
        PROTOCOL,
        "CompletionRequest",
        "return_token_ids: bool = False",
        "return_token_ids: Optional[bool] = None",
        note="a flag that is null is one that is not there",
        since="0.5.17",
    ),
    *(
        edit
        for choice in ("CompletionResponseChoice", "CompletionResponseStreamChoice")
        for edit in (
            AddField(
                PROTOCOL,
                choice,
                "prompt_token_ids: Optional[List[int]] = None",
                note="the IDs that the engine prefilled for this choice",
                until="0.5.16",
            ),
            AddField(
                PROTOCOL,
                choice,
                "token_ids: Optional[List[int]] = None",
                note="the IDs generated for this choice",
                until="0.5.16",
            ),
            Insert(
                PROTOCOL,
                f"{choice}._serialize",
                'for key in ("prompt_token_ids", "token_ids"):\n'
                "    if data.get(key) is None:\n"
                "        data.pop(key, None)",
                before="return data",
                until="0.5.16",
            ),
        )
    ),
    AddField(
        PROTOCOL,
        "CompletionStreamResponse",
        "metadata: Optional[Dict[str, Any]] = None",
        note="the weight version, on the first chunk and where it is another",
    ),
    Insert(
        PROTOCOL,
        "CompletionStreamResponse._serialize",
        'if self.metadata is None:\n    data.pop("metadata", None)',
        before="return data",
        since="0.5.9",
    ),
    Graft(
        PROTOCOL,
        "CompletionStreamResponse",
        _serialize_chunk,
        inside=True,
        note="a field that is None is left out",
        until="0.5.8",
    ),
)

REQUEST: tuple[Edit, ...] = (
    Insert(
        SERVING_COMPLETIONS,
        f"{_COMPLETION}._convert_to_internal_request",
        "if request.return_token_ids:\n"
        "    adapted_request.return_prompt_token_ids = True",
        before="return adapted_request, request",
        note="return_token_ids",
        until="0.5.16",
    ),
)

NON_STREAMING: tuple[Edit, ...] = (
    AddKeyword(
        SERVING_COMPLETIONS,
        f"{_COMPLETION}._build_completion_response",
        "CompletionResponseChoice",
        "prompt_token_ids=(\n"
        '    ret_item.get("prompt_token_ids")\n'
        "    if request.return_token_ids\n"
        "    else None\n"
        ")",
        until="0.5.16",
    ),
    AddKeyword(
        SERVING_COMPLETIONS,
        f"{_COMPLETION}._build_completion_response",
        "CompletionResponseChoice",
        'token_ids=ret_item["output_ids"] if request.return_token_ids else None',
        until="0.5.16",
    ),
)

_INCREMENTAL = "        incremental_logprobs=True,\n"
_BUILD = "(lambda ret_item: _completion_logprobs(ret_item, request.echo))"
# From v0.5.21 on a part of a character is told by the bytes of its token, and a request
# for no logprobs but those of the tokens has none of the prompt.
_BUILD_LOSSLESS = """(
                lambda ret_item: _completion_logprobs(
                    ret_item,
                    bool(request.echo and request.logprobs),
                    tokenizer=self.tokenizer_manager.tokenizer,
                )
            )"""

STREAMING: tuple[Edit, ...] = (
    Graft(
        SERVING_COMPLETIONS,
        _COMPLETION,
        _completion_logprobs,
        note="return_token_ids in a stream",
    ),
    *(
        Insert(
            SERVING_COMPLETIONS,
            f"{_COMPLETION}._generate_completion_stream",
            "trace = None\n"
            "if request.return_token_ids:\n"
            "    from sglang.srt.entrypoints.openai.serving_chat import ChatTokenTrace\n"
            "\n"
            f"{config}"
            "    trace = ChatTokenTrace(\n"
            f"        incremental={stream_output},\n"
            f"{logprobs}"
            "        build_logprobs=(\n"
            f"            {build}\n"
            "            if request.logprobs is not None\n"
            "            else None\n"
            "        ),\n"
            "        chunk_prompt=False,\n"
            "        choice_prompts=True,\n"
            "    )",
            note="return_token_ids",
            since=since,
            until=until,
        )
        for (config, stream_output), logprobs, build, since, until in (
            (STREAM_OUTPUT_OF_ARGUMENTS, "", _BUILD, "", "0.5.10"),
            (STREAM_OUTPUT_OF_ARGUMENTS, _INCREMENTAL, _BUILD, "0.5.11", "0.5.19"),
            (STREAM_OUTPUT_OF_CONTEXT, _INCREMENTAL, _BUILD, "0.5.20", "0.5.20"),
            (STREAM_OUTPUT_OF_CONTEXT, _INCREMENTAL, _BUILD_LOSSLESS, "0.5.21", ""),
        )
    ),
    # From v0.5.10 on the text is the new one alone under --stream-output, and is taken
    # for all of it up to v0.5.16; v0.5.10 takes every abort for an error.
    *(
        Replace(
            SERVING_COMPLETIONS,
            f"{_COMPLETION}._generate_completion_stream",
            f"delta = {cut}",
            f"delta = (\n{new})",
            note="under --stream-output it is the new text already",
            since=since,
            until=until,
        )
        for cut, new, since, until in (
            (
                "text[len(stream_buffer) :]",
                "    text\n"
                "    if trace is not None and trace.incremental\n"
                "    else text[len(stream_buffer) :]\n",
                "0.5.10",
                "0.5.10",
            ),
            (
                "text[offset:]",
                "    text if trace is not None and trace.incremental else text[offset:]\n",
                "0.5.11",
                "0.5.16",
            ),
        )
    ),
    # A chunk without new IDs has none, as in chat.
    *(
        Replace(
            SERVING_COMPLETIONS,
            f"{_COMPLETION}._generate_completion_stream",
            f"chunk_token_ids = {new}",
            f"chunk_token_ids = {new} or None",
            note="left out if there are none",
            since="0.5.17",
        )
        for new in ("output_ids", "output_ids[n_prev_token_id:]")
    ),
    *aborts_that_are_no_error(
        SERVING_COMPLETIONS, f"{_COMPLETION}._generate_completion_stream"
    ),
    Insert(
        SERVING_COMPLETIONS,
        f"{_COMPLETION}._generate_completion_stream",
        "if trace is not None:\n    trace.push(index, content)",
        after='index = content.get("index", 0)',
    ),
    # The trace cuts its own, in step with the IDs.
    Narrow(
        SERVING_COMPLETIONS,
        f"{_COMPLETION}._generate_completion_stream",
        "if request.logprobs is not None: ...",
        "trace is None",
    ),
    Insert(
        SERVING_COMPLETIONS,
        f"{_COMPLETION}._generate_completion_stream",
        "if trace is not None:\n    trace.stamp(chunk)",
        before='yield f"data: {chunk.model_dump_json()}\\n\\n"',
    ),
)

COMPLETIONS = (*FIELDS, *REQUEST, *NON_STREAMING, *STREAMING)
