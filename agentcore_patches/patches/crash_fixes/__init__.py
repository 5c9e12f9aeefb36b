"""crashes and hangs of SGLang that change no token, each with its public report

A hook ends with the release that fixes the fault: `upstream` names it, or the issue or
pull request to watch. Faults without a report are in docs/reference/sglang-faults.md.
"""

from __future__ import annotations

from agentcore_patches.edits import Decorate, Insert, Replace
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import (
    HTTP_SERVER,
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
            "max_model_len = agentcore.prefix.context_length(self)",
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
        "crash-fixes/answer-first",
        "start the handle loop now; control requests hang until it runs",
        Insert(
            HTTP_SERVER,
            "lifespan",
            "_global_state.tokenizer_manager.auto_create_handle_loop()",
            after="fast_api_app.state.openai_serving_chat = OpenAIServingChat(...)",
        ),
        since={
            "0.5.10": absent("SGLang does it in each method that needs it"),
        },
        upstream="PR 19610, 0.5.10",
    ),
    # With several tokenizer workers, any of them may be asked, but only one has the request.
    # A batch creates its requests before it knows its tokenizer worker. Without this,
    # no worker gets the outputs, and the batch hangs.
    Hook(
        "crash-fixes/worker-of-batch",
        "set the worker first: the batch's requests are copies of it",
        absent("the requests of a batch are made later"),
        since={
            "0.5.11": Insert(
                TOKENIZER_MANAGER,
                "TokenizerManager.generate_request",
                "if not obj.is_single and self.server_args.tokenizer_worker_num > 1:\n"
                "    self._attach_multi_http_worker_info(obj)",
                before="self._init_req_state(...)",
            ),
            "0.5.13": absent("SGLang does it"),
        },
        upstream="issue 29024, in part; 0.5.13",
    ),
    Hook(
        "crash-fixes/abort-elsewhere",
        "abort a request even if another tokenizer worker owns it",
        Insert(
            HTTP_SERVER,
            "abort_request",
            "agentcore.crash_fixes.guards.abort_elsewhere(\n"
            "    _global_state.tokenizer_manager, obj.rid\n"
            ")",
            before="_global_state.tokenizer_manager.abort_request(...)",
        ),
        since={
            "0.5.13": absent("a worker passes on the aborts of unknown requests"),
        },
        upstream="PR 25561, 0.5.13",
    ),
    Hook(
        "crash-fixes/address",
        "send the abort to the tokenizer worker that owns the request",
        Insert(
            "$output_sender",
            "SenderWrapper.send_output",
            "agentcore.crash_fixes.guards.address(output, recv_obj)",
            after="if self.socket is None: ...",
        ),
        since={
            "0.5.18": absent("SGLang addresses the outputs of every request"),
        },
        upstream="issue 33858; PR 33940, 0.5.18",
    ),
    Hook(
        "crash-fixes/pause-with-workers",
        "reject the pause: the other tokenizer workers would not see it",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager.pause_generation",
            "agentcore.crash_fixes.guards.refuse_pause(self)",
        ),
        since={
            "0.5.12": absent("a pause reaches all tokenizer workers"),
        },
        upstream="issue 21235; PR 24462, 0.5.12",
        also=("TokenizerManager.continue_generation",),
    ),
    Hook(
        "crash-fixes/workers-hear",
        "start the handle loop now, or a worker misses an early pause",
        absent("with several tokenizer workers, pauses are rejected"),
        since={
            "0.5.12": Insert(
                HTTP_SERVER,
                "init_multi_tokenizer",
                "tokenizer_manager.auto_create_handle_loop()",
                before="return server_args",
            ),
        },
        upstream="issue 39689; PR 39693, open",
    ),
    Hook(
        "crash-fixes/one-at-a-time",
        "run updates one by one: SGLang answers only the last of several",
        Decorate(
            TOKENIZER_MANAGER,
            "TokenizerManager._wait_for_model_update_from_disk",
            "agentcore.crash_fixes.guards.one_at_a_time",
        ),
        upstream="issue 33698; PR 33701, open",
    ),
    Hook(
        "crash-fixes/release-memory",
        "reject this while requests are open: it would crash the server",
        Decorate(
            "$weight_updater",
            "$weight_updater_class.release_memory_occupation",
            "agentcore.crash_fixes.guards.release_memory",
        ),
        upstream=_MEMORY,
    ),
    Hook(
        "crash-fixes/resume-memory",
        "reject tags that were not released: they crash the server",
        Decorate(
            "$weight_updater",
            "$weight_updater_class.resume_memory_occupation",
            "agentcore.crash_fixes.guards.resume_memory",
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
