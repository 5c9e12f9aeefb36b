"""exact token IDs, logprobs and weight versions, in SGLang's own API

Without one of these hooks, a response could carry a wrong, missing or foreign token ID,
logprob, prompt ID, weight version or per-token value, or be as slow as stock SGLang's.
"""

from __future__ import annotations

from agentcore_patches.patches.core import (
    adapters,
    customized_info,
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
    streams,
    tito,
    token_ids,
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
    fast_answers,
    ended_requests,
    images,
    prefix,
    tito,
    routed_experts,
    adapters,
    logprobs,
    token_ids,
    streams,
    messages,
    responses,
    weight_versions,
)

HOOKS: tuple[Hook, ...] = tuple(hook for module in _MODULES for hook in module.HOOKS)
