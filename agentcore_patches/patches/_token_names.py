"""`return_tokens_as_token_ids`, a part of the patch `token-ids`."""

from __future__ import annotations

from agentcore_patches.edits import AddField, Edit, Graft, Insert, Replace
from agentcore_patches.grafts.token_names import _name_tokens_by_id
from agentcore_patches.patches._files import (
    OPENAI_UTILS,
    PROTOCOL,
    SERVING_CHAT,
    SERVING_COMPLETIONS,
)

# Without text in the logprobs, the engine leaves the place of the text empty.
TOKENS_AS_TOKEN_IDS: tuple[Edit, ...] = (
    *(
        edit
        for request, serving, scope in (
            ("ChatCompletionRequest", SERVING_CHAT, "OpenAIServingChat"),
            ("CompletionRequest", SERVING_COMPLETIONS, "OpenAIServingCompletion"),
        )
        for edit in (
            AddField(
                PROTOCOL,
                request,
                "return_tokens_as_token_ids: Optional[bool] = None",
                note='whether the tokens of logprobs are "token_id:N"',
            ),
            Insert(
                serving,
                f"{scope}._convert_to_internal_request",
                "if request.return_tokens_as_token_ids:\n"
                "    adapted_request.return_text_in_logprobs = False",
                before="return adapted_request, request",
                note="return_tokens_as_token_ids",
            ),
        )
    ),
    Graft(
        OPENAI_UTILS,
        "to_openai_style_logprobs",
        _name_tokens_by_id,
        note="return_tokens_as_token_ids",
    ),
    Insert(
        OPENAI_UTILS,
        "to_openai_style_logprobs.append_token_logprobs",
        "token_logprobs = _name_tokens_by_id(token_logprobs)",
        note="where the engine was asked for no text",
    ),
    Replace(
        OPENAI_UTILS,
        "to_openai_style_logprobs.append_top_logprobs",
        "ret_logprobs.top_logprobs.append({token[2]: token[0] for token in tokens})",
        "ret_logprobs.top_logprobs.append(\n"
        "    {token[2]: token[0] for token in _name_tokens_by_id(tokens)}\n"
        ")",
        note="where the engine was asked for no text",
        until="0.5.20",
    ),
    # From v0.5.21 on chat makes its logprobs itself, and a token without text has "".
    Insert(
        OPENAI_UTILS,
        "to_openai_style_logprobs.append_top_logprobs",
        "tokens = _name_tokens_by_id(tokens)",
        before="if tokens is not None: ...",
        note="where the engine was asked for no text",
        since="0.5.21",
    ),
    Insert(
        SERVING_CHAT,
        "OpenAIServingChat._build_token_logprobs_from_raw",
        "from sglang.srt.entrypoints.openai.utils import _name_tokens_by_id\n"
        "output_token_logprobs = _name_tokens_by_id(output_token_logprobs)\n"
        "if output_top_logprobs:\n"
        "    output_top_logprobs = [\n"
        "        _name_tokens_by_id(tokens) for tokens in output_top_logprobs\n"
        "    ]",
        note="where the engine was asked for no text",
        since="0.5.21",
    ),
)
