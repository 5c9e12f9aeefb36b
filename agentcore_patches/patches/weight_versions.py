"""which weights sampled which token; no prompt from another version's cache

What new weights do to a server that answers: an update never ends it, a prompt prefilled
after it takes no keys and values that other weights computed, and each token says whose
it is. SGLang has versions of finished answers from 0.5.19 on, by what it knows when a
result is handled, and flushes a cache that is in use by an assertion.
"""

from __future__ import annotations

from agentcore_patches.edits import (
    AddCondition,
    AddField,
    AddKeyword,
    AddMethod,
    Decorate,
    Expect,
    Insert,
    RefuseField,
    Replace,
)
from agentcore_patches.patches import token_ids
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import (
    DETOKENIZER,
    DISAGGREGATED_DECODE,
    HTTP_SERVER,
    IO_STRUCT,
    MULTI_TOKENIZER,
    OUTPUT_STREAMER,
    PROTOCOL,
    SCHEDULE_BATCH,
    SCHEDULER,
    SERVING_CHAT,
    SERVING_COMPLETIONS,
    TOKENIZER_MANAGER,
)

RESPONSE_FIELDS = ("weight_version", "weight_versions")
REQUEST_FLAGS = (*token_ids.REQUEST_FLAGS, "return_weight_versions")

_NATIVE = absent("SGLang has it")
_UPSTREAM = "weight_versions of finished answers, 0.5.19"

UPDATES: tuple[Hook, ...] = (
    Hook(
        "weight-versions/update",
        "no cache of other weights; no assertion that ends the server",
        Decorate(
            "$weight_updater",
            "$weight_updater_class.update_weights_from_disk",
            "agentcore.weight_versions.update",
        ),
        also=("$weight_updater_class.update_weights_from_distributed",),
    ),
    Hook(
        "weight-versions/update-with-barrier",
        "a rank that fails enters the barrier, too",
        Decorate(
            "$weight_updater",
            "$weight_updater_class.update_weights_from_tensor",
            "agentcore.weight_versions.update_with_barrier",
        ),
        also=("$weight_updater_class.update_weights_from_ipc",),
    ),
    Hook(
        "weight-versions/barrier",
        "the ranks that succeed wait for those that fail",
        Expect(
            "$weight_updater",
            "$weight_updater_class.update_weights_from_tensor",
            "torch.distributed.barrier(...)",
        ),
        also=("$weight_updater_class.update_weights_from_ipc",),
    ),
    Hook(
        "weight-versions/end-update",
        "only now the weights are whole",
        absent("each update is whole"),
        since={
            "0.5.21": Decorate(
                "$weight_updater",
                "$weight_updater_class.end_weight_update",
                "agentcore.weight_versions.end_update",
            ),
        },
    ),
    Hook(
        "weight-versions/lock",
        "an update does not wait for paused requests",
        Replace(
            TOKENIZER_MANAGER,
            "TokenizerManager.init_weight_update",
            "self.model_update_lock = RWLock()",
            "self.model_update_lock = agentcore.weight_versions.update_lock(self)",
        ),
    ),
    Hook(
        "weight-versions/one-at-a-time",
        "under a pause SGLang answers only the last of several",
        Decorate(
            TOKENIZER_MANAGER,
            "TokenizerManager._wait_for_model_update_from_disk",
            "agentcore.weight_versions.one_at_a_time",
        ),
    ),
    Hook(
        "weight-versions/attach-storage",
        "it may hold what other weights computed",
        absent("storage is there from the start, or never"),
        since={
            "0.5.9": Decorate(
                SCHEDULER,
                "Scheduler.attach_hicache_storage_wrapped",
                "agentcore.weight_versions.attach_storage",
            ),
        },
    ),
)

MEMORY: tuple[Hook, ...] = (
    Hook(
        "weight-versions/release-memory",
        "an assertion ends the server where requests are open",
        Decorate(
            "$weight_updater",
            "$weight_updater_class.release_memory_occupation",
            "agentcore.weight_versions.release_memory",
        ),
    ),
    Hook(
        "weight-versions/resume-memory",
        "what was not released ends the server",
        Decorate(
            "$weight_updater",
            "$weight_updater_class.resume_memory_occupation",
            "agentcore.weight_versions.resume_memory",
        ),
    ),
    Hook(
        "weight-versions/refusal",
        "why nothing was released or resumed",
        Insert(
            IO_STRUCT,
            "ReleaseMemoryOccupationReqOutput",
            "refusal: Optional[str] = None",
        ),
        also=("ResumeMemoryOccupationReqOutput",),
    ),
    Hook(
        "weight-versions/tell-refusal",
        "400 with the reason",
        Replace(
            "$control",
            "$control_class.release_memory_occupation",
            "await $COMMUNICATOR(obj)",
            "agentcore.weight_versions.raise_refusal(\n    await $COMMUNICATOR(obj)\n)",
        ),
        also=("$control_class.resume_memory_occupation",),
    ),
)

VERSION: tuple[Hook, ...] = (
    Hook(
        "weight-versions/start",
        "whose weights they are, and --weight-version",
        Insert(
            SCHEDULER,
            "Scheduler.__init__",
            "agentcore.weight_versions.start(self, server_args.weight_version)",
        ),
    ),
    Hook(
        "weight-versions/endpoint",
        "the scheduler gives tokens their versions",
        Insert(
            HTTP_SERVER,
            "update_weight_version",
            "_global_state.tokenizer_manager.$send_to_scheduler(obj)",
            after="_global_state.tokenizer_manager.server_args.weight_version = "
            "obj.new_version",
        ),
        since={
            "0.5.16": Insert(
                HTTP_SERVER,
                "update_weight_version",
                "_global_state.tokenizer_manager.$send_to_scheduler(obj)",
                after="_global_state.tokenizer_manager.server_args.override(...)",
            ),
            "0.5.17": Insert(
                HTTP_SERVER,
                "update_weight_version",
                "_global_state.tokenizer_manager.$send_to_scheduler(obj)",
                after="_global_state.tokenizer_manager.record_config_updates(...)",
            ),
            "0.5.19": absent("the scheduler's request has an answer of its own"),
        },
        upstream=_UPSTREAM,
    ),
    Hook(
        "weight-versions/dispatch",
        "/update_weight_version",
        Insert(
            SCHEDULER,
            "Scheduler.init_request_dispatcher",
            "self._request_dispatcher += agentcore.weight_versions.dispatcher()",
            after="self._request_dispatcher = TypeBasedDispatcher(...)",
        ),
        since={
            "0.5.19": Insert(
                SCHEDULER,
                "Scheduler.handle_update_weight_version",
                "agentcore.weight_versions.set_version(recv_req.new_version)",
            ),
        },
        upstream=_UPSTREAM,
    ),
)

# A result is handled after the next batch was launched, and maybe after an update.
TOKENS: tuple[Hook, ...] = (
    Hook(
        "weight-versions/batch",
        "the weights that it runs on",
        AddField(
            SCHEDULE_BATCH, "ScheduleBatch", "weight_version: Optional[str] = None"
        ),
    ),
    Hook(
        "weight-versions/batch-copy",
        "the copy waits for its result",
        AddKeyword(
            SCHEDULE_BATCH,
            "ScheduleBatch.copy",
            "ScheduleBatch",
            "weight_version=self.weight_version",
        ),
    ),
    Hook(
        "weight-versions/mark",
        "the weights that it runs on",
        Insert(
            SCHEDULER, "Scheduler.run_batch", "agentcore.weight_versions.mark(batch)"
        ),
    ),
    Hook(
        "weight-versions/handle",
        "the weights that it ran on",
        Insert(
            SCHEDULER,
            "Scheduler.process_batch_result",
            "agentcore.weight_versions.handle(batch)",
        ),
    ),
    Hook(
        "weight-versions/record",
        "whose tokens they are",
        Insert(
            "$output_streamer",
            "$output_streamer_class.stream_output",
            "agentcore.weight_versions.record(reqs)",
        ),
    ),
    Hook(
        "weight-versions/request",
        "the versions of its tokens; what is ours in its key",
        Insert(
            SCHEDULE_BATCH,
            "Req.__init__",
            'self.weights_namespace = ""\nself.weight_versions = []',
            after="self.extra_key = extra_key",
        ),
    ),
    Hook(
        "weight-versions/renew",
        "no keys and values that other weights computed",
        Insert(
            SCHEDULE_BATCH,
            "Req.init_next_round_input",
            "if tree_cache is not None:\n    agentcore.weight_versions.renew(self)",
        ),
    ),
    Hook(
        "weight-versions/renew-decode",
        "a server for decoding looks in its cache first",
        absent("a server for decoding has no prefix cache"),
        since={
            "0.5.11": Insert(
                DISAGGREGATED_DECODE,
                "DecodePreallocQueue._match_prefix_and_lock",
                "agentcore.weight_versions.renew(req)",
            ),
        },
    ),
)

WIRE: tuple[Hook, ...] = (
    Hook(
        "weight-versions/spans",
        "for each request its spans",
        AddField(
            IO_STRUCT,
            "BatchTokenIDOutput",
            "weight_versions: Optional[List[Any]] = None",
        ),
        since={
            "0.5.19": _NATIVE,
        },
        upstream=_UPSTREAM,
        also=("BatchStrOutput",),
    ),
    Hook(
        "weight-versions/send",
        "recorded where the tokens were sampled",
        AddKeyword(
            "$output_streamer",
            "$stream_output_generation",
            "BatchTokenIDOutput",
            "weight_versions=agentcore.weight_versions.of_output(rids, reqs)",
        ),
        since={
            "0.5.13": Insert(
                OUTPUT_STREAMER,
                "SchedulerOutputStreamer._stream_output_generation",
                "$OUTPUT.weight_versions = agentcore.weight_versions.of_output(\n"
                "    $OUTPUT.rids, reqs\n"
                ")",
                before="self.send_to_detokenizer.send_output($OUTPUT)",
            ),
        },
        upstream=_UPSTREAM,
    ),
    Hook(
        "weight-versions/detokenize",
        "for each request its spans",
        AddKeyword(
            DETOKENIZER,
            "DetokenizerManager.handle_batch_token_id_out",
            "BatchStrOutput",
            "weight_versions=recv_obj.weight_versions",
        ),
        since={
            "0.5.19": _NATIVE,
        },
        upstream=_UPSTREAM,
    ),
    Hook(
        "weight-versions/worker",
        "a batch of one for a tokenizer worker",
        Insert(
            MULTI_TOKENIZER,
            "_handle_output_by_index",
            "if isinstance(output, (BatchTokenIDOutput, BatchStrOutput)):\n"
            "    new_output.weight_versions = _extract_field_by_index(\n"
            '        output, "weight_versions", i, check_length=False\n'
            "    )",
            before="return new_output",
        ),
        since={
            "0.5.19": _NATIVE,
        },
        upstream=_UPSTREAM,
    ),
)

ANSWERS: tuple[Hook, ...] = (
    Hook(
        "weight-versions/take",
        "the versions of its tokens",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager._handle_batch_output",
            "agentcore.weight_versions.take(state, meta_info, recv_obj, i)",
            before="if not isinstance(recv_obj, BatchEmbeddingOutput): ...",
        ),
        upstream=_UPSTREAM,
    ),
    Hook(
        "weight-versions/take-finished",
        "the same, once the request is finished",
        absent("SGLang has no versions"),
        since={
            "0.5.19": AddCondition(
                TOKENIZER_MANAGER,
                "TokenizerManager._handle_batch_output",
                "if (\n"
                "    recv_obj.weight_versions is not None\n"
                "    and (spans := recv_obj.weight_versions[i]) is not None\n"
                "): ...",
                "recv_obj.finished_reasons[i] is not None",
            ),
        },
    ),
    # Those of an aborted request: ended-requests/finish.
    Hook(
        "weight-versions/flag",
        "choices[i].weight_versions",
        AddField(
            PROTOCOL,
            "ChatCompletionRequest",
            "return_weight_versions: Optional[bool] = None",
        ),
        also=("CompletionRequest",),
    ),
    Hook(
        "weight-versions/choice",
        "return_weight_versions",
        AddField(
            PROTOCOL,
            "ChatCompletionResponseChoice",
            "weight_versions: Optional[List[Dict[str, Any]]] = None",
        ),
        also=("CompletionResponseChoice",),
    ),
    Hook(
        "weight-versions/answer",
        "the version of its last token, where gateways look",
        AddField(
            PROTOCOL, "ChatCompletionResponse", "weight_version: Optional[str] = None"
        ),
        also=("CompletionResponse",),
    ),
    # That of chat is left out by token-ids/prompt-json.
    Hook(
        "weight-versions/answer-json",
        "a field that is None is left out",
        AddMethod(
            PROTOCOL,
            "CompletionResponse",
            '@model_serializer(mode="wrap")\n'
            "def _serialize(self, handler):\n"
            '    return agentcore.prompts.drop_none(handler(self), "weight_version")',
        ),
        since={
            "0.5.9": Insert(
                PROTOCOL,
                "CompletionResponse._serialize",
                'agentcore.prompts.drop_none(data, "weight_version")',
                before="return data",
            ),
        },
    ),
    Hook(
        "weight-versions/whole-chat",
        "who sampled its tokens",
        Decorate(
            SERVING_CHAT,
            "OpenAIServingChat._build_chat_response",
            "agentcore.weight_versions.whole",
        ),
    ),
    Hook(
        "weight-versions/whole-completion",
        "who sampled its tokens",
        Decorate(
            SERVING_COMPLETIONS,
            "OpenAIServingCompletion._build_completion_response",
            "agentcore.weight_versions.whole",
        ),
    ),
    Hook(
        "weight-versions/no-field-of-ours",
        "stamped lines would have the field twice",
        RefuseField(
            PROTOCOL, "ChatCompletionResponseStreamChoice", ("weight_versions",)
        ),
    ),
)

HOOKS: tuple[Hook, ...] = (
    *token_ids.HOOKS,
    *UPDATES,
    *MEMORY,
    *VERSION,
    *TOKENS,
    *WIRE,
    *ANSWERS,
)
