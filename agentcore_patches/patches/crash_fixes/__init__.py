"""guards against crashes and hangs that change no token, each with its public report

A hook ends with the release that fixes the fault: `upstream` names it, or the issue or
pull request to watch. Faults without a report are in docs/reference/sglang-faults.md.
"""

from __future__ import annotations

from agentcore_patches.edits import Decorate, Insert, Replace
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import (
    IO_STRUCT,
    SERVING_TOKENIZE,
    TOKENIZER_MANAGER,
)

_MEMORY = "PR 24123, closed without a fix"

RESPONSE_FIELDS: tuple[str, ...] = ()

HOOKS: tuple[Hook, ...] = (
    Hook(
        "crash-fixes/fields",
        "reject values of fields that crash the engine",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager.generate_request",
            "agentcore.crash_fixes.guards.refuse(self, obj)",
            before="obj.normalize_batch_and_arguments()",
        ),
        upstream="issue 40076, open; issue 31972, 0.5.17; PR 28153, 0.5.15; "
        "PR 24874, 0.5.12; PR 13582 and PR 30723, closed",
    ),
    Hook(
        "crash-fixes/tokenize-length",
        "report the model's limit: JSON cannot hold the default 10^30",
        Insert(
            SERVING_TOKENIZE,
            "OpenAIServingTokenize._handle_non_streaming_request",
            "max_model_len = agentcore.http.prefix.context_length(self)",
            after='max_model_len = getattr(tokenizer, "model_max_length", -1)',
        ),
        since={
            "0.5.19": absent("SGLang does it for limits beyond 64 bits"),
        },
        upstream="issue 16718; PR 37054, 0.5.19",
    ),
    Hook(
        "crash-fixes/discard",
        "abort the discarded request in the engine as well",
        absent("a request is aborted before it is forgotten"),
        since={
            "0.5.18": Insert(
                TOKENIZER_MANAGER,
                "TokenizerManager._discard_pending_req_states",
                "if rid in self.rid_to_state:\n"
                "    self._dispatch_to_scheduler(AbortReq(rid=rid))",
                before="self.rid_to_state.pop(rid, None)",
            ),
            "0.5.20": absent("SGLang aborts it"),
        },
        upstream="PR 34894; 0.5.20",
    ),
    Hook(
        "crash-fixes/release-memory",
        "reject this while requests are open: it would crash the server",
        Decorate(
            "$weight_updater",
            "$weight_updater_class.release_memory_occupation",
            "agentcore.crash_fixes.memory.release_memory",
        ),
        upstream=_MEMORY,
    ),
    Hook(
        "crash-fixes/resume-memory",
        "reject tags that were not released: they crash the server",
        Decorate(
            "$weight_updater",
            "$weight_updater_class.resume_memory_occupation",
            "agentcore.crash_fixes.memory.resume_memory",
        ),
        upstream=_MEMORY,
    ),
    Hook(
        "crash-fixes/refusal",
        "hold the reason why nothing was released or resumed",
        Insert(
            IO_STRUCT,
            "ReleaseMemoryOccupationReqOutput",
            "refusal: Optional[str] = None",
        ),
        upstream=_MEMORY,
        also=("ResumeMemoryOccupationReqOutput",),
    ),
    Hook(
        "crash-fixes/tell-refusal",
        "turn the scheduler's refusal into a 400",
        Replace(
            "$control",
            "$control_class.release_memory_occupation",
            "await $COMMUNICATOR(obj)",
            "agentcore.crash_fixes.guards.raise_refusal(\n    await $COMMUNICATOR(obj)\n)",
        ),
        upstream=_MEMORY,
        also=("$control_class.resume_memory_occupation",),
    ),
)
