"""exact token IDs, logprobs and weight versions, in SGLang's own API

Without one of these hooks, a response could carry a wrong, missing or foreign token ID,
logprob, prompt ID, weight version or per-token value, or be as slow as stock SGLang's.
"""

from __future__ import annotations

from agentcore_patches.patches.core import (
    adapters,
    chat_streams,
    completions,
    customized_info,
    defaults,
    ended_requests,
    fast_answers,
    images,
    logprobs,
    messages,
    prefix,
    prompts,
    release_checks,
    request_ids,
    requests,
    responses,
    routed_experts,
    server,
    stream_output,
    tito,
    token_ids,
    token_names,
    weight_versions,
)
from agentcore_patches.patches.hooks import Hook

RESPONSE_FIELDS = (
    "prompt_token_ids",
    "token_ids",
    "token_logprobs",
    "meta_info",
    "routed_experts_start_len",
    "weight_version",
    "weight_versions",
)

_MODULES = (
    release_checks,
    server,
    prompts,
    request_ids,
    requests,
    customized_info,
    stream_output,
    fast_answers,
    ended_requests,
    images,
    prefix,
    defaults,
    tito,
    routed_experts,
    adapters,
    logprobs,
    token_ids,
    chat_streams,
    token_names,
    completions,
    messages,
    responses,
    weight_versions,
)

HOOKS: tuple[Hook, ...] = tuple(hook for module in _MODULES for hook in module.HOOKS)
