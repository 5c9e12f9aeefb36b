"""Checks that tell a release from its neighbours if the edits alone would not.

They refuse an SGLang that reports another release's version,
whose code would match the forms of that release but be patched wrongly. Each check
looks at code that is different from a release on.
"""

from __future__ import annotations

from agentcore_patches.edits import (
    Expect,
    RefuseDefinition,
    RefuseField,
)
from agentcore_patches.patches.hooks import Hook
from agentcore_patches.patches.paths import (
    HTTP_SERVER,
    MULTI_TOKENIZER,
    PROTOCOL,
    SERVING_BASE,
    SERVING_CHAT,
    TOKENIZER_MANAGER,
)


def _defined_from(first: str, name: str, why: str, file: str, scope: str) -> Hook:
    """Return a check for a definition that exists from a release on."""
    return Hook(
        name,
        why,
        RefuseDefinition(file, scope),
        since={first: Expect(file, scope)},
    )


HOOKS: tuple[Hook, ...] = (
    _defined_from(
        "0.5.9",
        "release-checks/messages",
        "from 0.5.9 on there is /v1/messages",
        HTTP_SERVER,
        "anthropic_v1_messages",
    ),
    _defined_from(
        "0.5.10",
        "release-checks/first-line",
        "from 0.5.10 on a stream's first line precedes its status",
        SERVING_BASE,
        "OpenAIServingBase.extract_routed_dp_rank_from_header",
    ),
    _defined_from(
        "0.5.11",
        "release-checks/new-logprobs",
        "from 0.5.11 on --stream-output chunks hold only new logprobs",
        TOKENIZER_MANAGER,
        "TokenizerManager._coalesce_streaming_chunks",
    ),
    _defined_from(
        "0.5.12",
        "release-checks/workers-pause",
        "from 0.5.12 on a pause reaches all tokenizer workers",
        MULTI_TOKENIZER,
        "TokenizerWorker.pause_generation",
    ),
    Hook(
        "release-checks/abort-of-unknown",
        "from 0.5.14 on SGLang ignores a late abort",
        Expect(
            TOKENIZER_MANAGER,
            "TokenizerManager._handle_abort_req",
            "state = self.rid_to_state[recv_obj.rid]",
        ),
        since={
            "0.5.14": Expect(
                TOKENIZER_MANAGER,
                "TokenizerManager._handle_abort_req",
                "state = self.rid_to_state.get(recv_obj.rid)",
            ),
        },
    ),
    Hook(
        "release-checks/workers",
        "from 0.5.15 on a request knows its tokenizer worker",
        Expect(MULTI_TOKENIZER, "TokenizerWorker._attach_multi_http_worker_info"),
        since={
            "0.5.15": RefuseDefinition(
                MULTI_TOKENIZER, "TokenizerWorker._attach_multi_http_worker_info"
            ),
        },
    ),
    _defined_from(
        "0.5.17",
        "release-checks/server-in-rust",
        "from 0.5.17 on there is a Rust server",
        HTTP_SERVER,
        "ORJSONRoute",
    ),
    Hook(
        "release-checks/token-ids",
        "only 0.5.17 has token IDs under the names of this patch",
        RefuseField(PROTOCOL, "ChatCompletionResponseChoice", ("response_token_ids",)),
        since={
            "0.5.17": Expect(
                PROTOCOL,
                "ChatCompletionResponseChoice._serialize",
                "if self.token_ids is None: ...",
            ),
            "0.5.18": Expect(
                PROTOCOL,
                "ChatCompletionResponseChoice",
                "response_token_ids: Optional[List[int]] = None",
            ),
        },
    ),
    _defined_from(
        "0.5.19",
        "release-checks/spans",
        "from 0.5.19 on SGLang records weight versions",
        TOKENIZER_MANAGER,
        "TokenizerManager._stream_one_response",
    ),
    _defined_from(
        "0.5.20",
        "release-checks/dispatched",
        "from 0.5.20 on a session's prompt may be empty",
        TOKENIZER_MANAGER,
        "TokenizerManager._mark_state_dispatched",
    ),
    Hook(
        "release-checks/bytes-of-id",
        "from 0.5.21 on the bytes of a logprob come from its token ID",
        Expect(SERVING_CHAT, "OpenAIServingChat._process_logprobs_tokens"),
        since={
            "0.5.21": RefuseDefinition(
                SERVING_CHAT, "OpenAIServingChat._process_logprobs_tokens"
            ),
        },
    ),
    _defined_from(
        "0.5.22",
        "release-checks/aborts-release-lora",
        "from 0.5.22 on SGLang releases an aborted request's adapter",
        TOKENIZER_MANAGER,
        "TokenizerManager._release_lora_once",
    ),
    Hook(
        "release-checks/reported-info",
        "from 0.5.23 on SGLang hides some of a sampler's values",
        RefuseField(TOKENIZER_MANAGER, "ReqState", ("customized_info_reported_keys",)),
        since={
            "0.5.23": Expect(
                TOKENIZER_MANAGER, "ReqState", "customized_info_reported_keys: $T = ..."
            ),
        },
    ),
)
