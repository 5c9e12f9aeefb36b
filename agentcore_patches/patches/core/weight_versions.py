"""The weight version of each token; no prompt cache of another version.

A weight update never crashes a busy server. A prompt that is prefilled afterwards
reuses no KV cache of other weights, and each token has the version of the weights that
sampled it. From 0.5.19 on, SGLang itself has versions on finished responses, by the
version at the time a result is handled. It asserts that a cache is unused when it is
flushed.
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

_NATIVE = absent("SGLang has it")
_UPSTREAM = "weight_versions of finished answers, 0.5.19"

HOOKS: tuple[Hook, ...] = (
    Hook(
        "weight-versions/update",
        "keep old and new KV cache apart; turn assertions into failures",
        Decorate(
            "$weight_updater",
            "$weight_updater_class.update_weights_from_disk",
            "agentcore.scheduler.weight_updates.update",
        ),
        also=("$weight_updater_class.update_weights_from_distributed",),
    ),
    Hook(
        "weight-versions/update-with-barrier",
        "let a failed rank enter the barrier where the others wait",
        Decorate(
            "$weight_updater",
            "$weight_updater_class.update_weights_from_tensor",
            "agentcore.scheduler.weight_updates.update_with_barrier",
        ),
        also=("$weight_updater_class.update_weights_from_ipc",),
    ),
    Hook(
        "weight-versions/barrier",
        "a failed rank must enter this barrier, where the others wait",
        Expect(
            "$weight_updater",
            "$weight_updater_class.update_weights_from_tensor",
            "torch.distributed.barrier(...)",
        ),
        also=("$weight_updater_class.update_weights_from_ipc",),
    ),
    Hook(
        "weight-versions/end-update",
        "start a new cache namespace: only now all weights are new",
        absent("each update is whole"),
        since={
            "0.5.21": Decorate(
                "$weight_updater",
                "$weight_updater_class.end_weight_update",
                "agentcore.scheduler.weight_updates.end_update",
            ),
        },
    ),
    Hook(
        "weight-versions/lock",
        "do not let a weight update wait for paused requests",
        Replace(
            TOKENIZER_MANAGER,
            "TokenizerManager.init_weight_update",
            "self.model_update_lock = RWLock()",
            "self.model_update_lock = agentcore.http.weight_versions.update_lock(self)",
        ),
        upstream="PR 25319, open",
    ),
    Hook(
        "weight-versions/one-at-a-time",
        "take the lock in a pause, too: SGLang keeps one update's result",
        Replace(
            TOKENIZER_MANAGER,
            "TokenizerManager.update_weights_from_disk",
            "is_paused = self.is_pause",
            "is_paused = False",
        ),
        upstream="issue 33698; PR 33701, open",
    ),
    Hook(
        "weight-versions/one-at-a-time-lock",
        "take the lock exactly if is_paused is false",
        Expect(
            TOKENIZER_MANAGER,
            "TokenizerManager.update_weights_from_disk",
            "lock_context = (\n"
            "    self.model_update_lock.writer_lock if not is_paused else nullcontext()\n"
            ")",
        ),
    ),
    Hook(
        "weight-versions/count-from-disk",
        "count weight updates, for /metrics",
        Decorate(
            TOKENIZER_MANAGER,
            "TokenizerManager.update_weights_from_disk",
            "agentcore.http.weight_versions.counted",
        ),
    ),
    Hook(
        "weight-versions/count",
        "count weight updates, for /metrics",
        Decorate(
            "$control",
            "$control_class.update_weights_from_distributed",
            "agentcore.http.weight_versions.counted",
        ),
        also=(
            "$control_class.update_weights_from_tensor",
            "$control_class.update_weights_from_ipc",
        ),
    ),
    Hook(
        "weight-versions/attach-storage",
        "reject storage that may hold KV cache of other weights",
        absent("storage is attached at the start or never"),
        since={
            "0.5.9": Decorate(
                SCHEDULER,
                "Scheduler.attach_hicache_storage_wrapped",
                "agentcore.scheduler.weight_updates.attach_storage",
            ),
        },
        upstream="issue 26792",
    ),
    Hook(
        "weight-versions/start",
        "register this scheduler; all its ranks must run the same patches",
        Insert(
            SCHEDULER,
            "Scheduler.__init__",
            "agentcore.scheduler.weight_versions.register(self, server_args)",
            after="self.init_request_dispatcher()",
        ),
    ),
    Hook(
        "weight-versions/endpoint",
        "tell the scheduler, which assigns versions to tokens",
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
            "0.5.19": absent("the scheduler's request has its own response"),
        },
        upstream=_UPSTREAM,
    ),
    Hook(
        "weight-versions/dispatch",
        "handle /update_weight_version in the scheduler",
        Insert(
            SCHEDULER,
            "Scheduler.init_request_dispatcher",
            "self._request_dispatcher += agentcore.scheduler.weight_versions.dispatcher()",
            after="self._request_dispatcher = TypeBasedDispatcher(...)",
        ),
        since={
            "0.5.19": Insert(
                SCHEDULER,
                "Scheduler.handle_update_weight_version",
                "agentcore.scheduler.weight_versions.set_version(recv_req.new_version)",
            ),
        },
        upstream=_UPSTREAM,
    ),
    Hook(
        "weight-versions/adapter-field",
        "let the request that loads an adapter name the new weights",
        AddField(
            IO_STRUCT, "LoadLoRAAdapterReqInput", "weight_version: Optional[str] = None"
        ),
        also=("LoadLoRAAdapterFromTensorsReqInput",),
    ),
    Hook(
        "weight-versions/load-adapter",
        "assign later tokens to the new adapter's version",
        Decorate(
            SCHEDULER,
            "Scheduler.load_lora_adapter",
            "agentcore.scheduler.weight_versions.load_adapter",
        ),
        also=("Scheduler.load_lora_adapter_from_tensors",),
    ),
    Hook(
        "weight-versions/name-adapter",
        "report the new adapter's version",
        Decorate(
            "$control",
            "$control_class.load_lora_adapter",
            "agentcore.http.weight_versions.name_adapter",
        ),
        also=("$control_class.load_lora_adapter_from_tensors",),
    ),
    # A result is handled after the launch of the next batch, and maybe after an update.
    Hook(
        "weight-versions/batch",
        "hold the weight version that the batch runs on",
        AddField(
            SCHEDULE_BATCH, "ScheduleBatch", "weight_version: Optional[str] = None"
        ),
    ),
    Hook(
        "weight-versions/batch-copy",
        "keep the weight version until the copy's result is handled",
        AddKeyword(
            SCHEDULE_BATCH,
            "ScheduleBatch.copy",
            "ScheduleBatch",
            "weight_version=self.weight_version",
        ),
    ),
    Hook(
        "weight-versions/mark",
        "record the weight version that the batch runs on",
        Insert(
            SCHEDULER,
            "Scheduler.run_batch",
            "agentcore.scheduler.weight_versions.record_batch(batch)",
        ),
    ),
    Hook(
        "weight-versions/handle",
        "assign the new tokens to the weights that sampled them",
        Insert(
            SCHEDULER,
            "Scheduler.process_batch_result",
            "agentcore.scheduler.weight_versions.assign_tokens(batch)",
        ),
    ),
    Hook(
        "weight-versions/request",
        "record the weight version of each token; prefix the cache key",
        Insert(
            SCHEDULE_BATCH,
            "Req.__init__",
            'self.weights_namespace = ""\n'
            "self.weight_version = None\n"
            "self.weight_versions = []",
            after="self.extra_key = extra_key",
        ),
    ),
    Hook(
        "weight-versions/renew",
        "skip KV cache that other weights computed",
        Insert(
            SCHEDULE_BATCH,
            "Req.init_next_round_input",
            "if tree_cache is not None:\n    agentcore.scheduler.weight_versions.set_cache_key(self)",
        ),
    ),
    Hook(
        "weight-versions/renew-decode",
        "skip KV cache of other weights in the lookup before decoding",
        absent("a decoding server has no prefix cache"),
        since={
            "0.5.11": Insert(
                DISAGGREGATED_DECODE,
                "DecodePreallocQueue._match_prefix_and_lock",
                "agentcore.scheduler.weight_versions.set_cache_key(req)",
            ),
        },
    ),
    Hook(
        "weight-versions/spans",
        "hold the weight versions of each request's tokens",
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
        "send the weight versions recorded when tokens were sampled",
        AddKeyword(
            "$output_streamer",
            "$stream_output_generation",
            "BatchTokenIDOutput",
            "weight_versions=agentcore.scheduler.weight_versions.new_spans(rids)",
        ),
        since={
            "0.5.13": Insert(
                OUTPUT_STREAMER,
                "SchedulerOutputStreamer._stream_output_generation",
                "$OUTPUT.weight_versions = agentcore.scheduler.weight_versions.new_spans(\n"
                "    $OUTPUT.rids\n"
                ")",
                before="self.send_to_detokenizer.send_output($OUTPUT)",
            ),
        },
        upstream=_UPSTREAM,
    ),
    Hook(
        "weight-versions/detokenize",
        "pass the weight versions through the detokenizer",
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
        "cut the weight versions to the one request of the worker",
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
    Hook(
        "weight-versions/take",
        "add the weight versions of the request's tokens",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager._handle_batch_output",
            "agentcore.http.weight_versions.record(state, meta_info, recv_obj, i)",
            before="if not isinstance(recv_obj, BatchEmbeddingOutput): ...",
        ),
        upstream=_UPSTREAM,
    ),
    Hook(
        "weight-versions/take-finished",
        "add SGLang's own spans only once the request is finished",
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
    # For aborted requests, see ended-requests/finish.
    Hook(
        "weight-versions/flag",
        "return the weight versions of each choice",
        AddField(
            PROTOCOL,
            "ChatCompletionRequest",
            "return_weight_versions: Optional[bool] = None",
        ),
        also=("CompletionRequest",),
    ),
    Hook(
        "weight-versions/choice",
        "hold the weight versions of this choice's tokens",
        AddField(
            PROTOCOL,
            "ChatCompletionResponseChoice",
            "weight_versions: Optional[List[Dict[str, Any]]] = None",
        ),
        also=("CompletionResponseChoice",),
    ),
    Hook(
        "weight-versions/answer",
        "hold the last token's weight version where gateways read it",
        AddField(
            PROTOCOL, "ChatCompletionResponse", "weight_version: Optional[str] = None"
        ),
        also=("CompletionResponse",),
    ),
    # In chat, token-ids/prompt-json drops the field.
    Hook(
        "weight-versions/answer-json",
        "omit weight_version from the JSON if it is None",
        AddMethod(
            PROTOCOL,
            "CompletionResponse",
            '@model_serializer(mode="wrap")\n'
            "def _serialize(self, handler):\n"
            '    return agentcore.http.prompts.drop_none(handler(self), "weight_version")',
        ),
        since={
            "0.5.9": Insert(
                PROTOCOL,
                "CompletionResponse._serialize",
                'agentcore.http.prompts.drop_none(data, "weight_version")',
                before="return data",
            ),
        },
    ),
    Hook(
        "weight-versions/whole-chat",
        "report the weights that sampled each token",
        Decorate(
            SERVING_CHAT,
            "OpenAIServingChat._build_chat_response",
            "agentcore.http.weight_versions.add_to_response",
        ),
    ),
    Hook(
        "weight-versions/whole-completion",
        "report the weights that sampled each token",
        Decorate(
            SERVING_COMPLETIONS,
            "OpenAIServingCompletion._build_completion_response",
            "agentcore.http.weight_versions.add_to_response",
        ),
    ),
    Hook(
        "weight-versions/no-such-field",
        "the patch writes this field itself; lines would have it twice",
        RefuseField(
            PROTOCOL, "ChatCompletionResponseStreamChoice", ("weight_versions",)
        ),
    ),
)
