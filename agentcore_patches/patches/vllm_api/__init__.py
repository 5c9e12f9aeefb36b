"""vLLM's token-in, token-out endpoint, for trainers written for it

prime-rl, verifiers, SkyRL, vime and others send token IDs to vLLM's
`/inference/v1/generate`, which SGLang does not have. Here it becomes a request to
SGLang's own engine, so that such a trainer runs unchanged.
"""

from __future__ import annotations

from agentcore_patches.edits import (
    AddField,
    AddMethod,
    Decorate,
    Insert,
    RefuseField,
)
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import (
    HTTP_SERVER,
    PROTOCOL,
    SCHEDULER,
    SERVING_CHAT,
    SERVING_COMPLETIONS,
    SERVING_TOKENIZE,
    TOKENIZER_MANAGER,
)

RESPONSE_FIELDS = ("prompt_logprobs",)

HOOKS: tuple[Hook, ...] = (
    Hook(
        "vllm-api/check-environment",
        "reject a bad shape of routed experts before the model loads",
        Insert(HTTP_SERVER, "launch_server", "agentcore.vllm_api.generate.shape()"),
    ),
    Hook(
        "vllm-api/routes",
        "serve trainers written for vLLM's endpoints",
        Insert(
            HTTP_SERVER,
            "lifespan",
            "agentcore.vllm_api.generate.add_routes(\n"
            "    fast_api_app,\n"
            "    _global_state.tokenizer_manager,\n"
            "    _global_state.scheduler_info,\n"
            "    (\n"
            "        abort_request,\n"
            "        continue_generation,\n"
            "        flush_cache,\n"
            "        load_lora_adapter,\n"
            "        model_info,\n"
            "        pause_generation,\n"
            "        release_memory_occupation,\n"
            "        resume_memory_occupation,\n"
            "        unload_lora_adapter,\n"
            "        update_weights_from_disk,\n"
            "    ),\n"
            ")",
            after="fast_api_app.state.openai_serving_completion = "
            "OpenAIServingCompletion(...)",
        ),
    ),
    Hook(
        "vllm-api/salt",
        "pass extra_key on: without it the prefix cache is shared",
        Insert(
            SCHEDULER,
            "Scheduler.handle_generate_request",
            "agentcore.vllm_api.salts.salt(recv_req, req)",
            before="if self.disaggregation_mode != DisaggregationMode.NULL: ...",
        ),
        since={
            "0.5.11": absent("SGLang passes it on"),
        },
    ),
    Hook(
        "vllm-api/adapter",
        "replace a loaded adapter: trainers load one name in each step",
        Decorate(
            "$control",
            "$control_class.load_lora_adapter",
            "agentcore.vllm_api.admin.replacing",
        ),
    ),
    Hook(
        "vllm-api/adapter-unload",
        "reject the unload of an adapter whose requests are paused",
        Decorate(
            "$control",
            "$control_class._unload_lora_adapter_locked",
            "agentcore.vllm_api.admin.unloading",
        ),
    ),
    Hook(
        "vllm-api/adapter-lookup",
        "wait for an adapter that is being replaced",
        Decorate(
            TOKENIZER_MANAGER,
            "TokenizerManager._resolve_lora_path",
            "agentcore.vllm_api.admin.resolving",
        ),
    ),
    Hook(
        "vllm-api/pause-mode",
        "record the mode: a wait for paused requests would never end",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager.pause_generation",
            'vars(self)["pause_mode"] = obj.mode',
            after="self.is_pause = True",
        ),
    ),
    Hook(
        "vllm-api/detokenized",
        "hold the text under vLLM's name, too",
        AddField(
            PROTOCOL,
            "DetokenizeResponse",
            "prompt: Optional[Union[str, List[str]]] = None",
        ),
    ),
    Hook(
        "vllm-api/detokenize",
        "return the text under vLLM's name, too",
        Decorate(
            SERVING_TOKENIZE,
            "OpenAIServingDetokenize._handle_non_streaming_request",
            "agentcore.vllm_api.generate.detokenized",
        ),
    ),
    Hook(
        "vllm-api/tokenize-flag",
        "return each token as text",
        AddField(
            PROTOCOL,
            "TokenizeRequest",
            "return_token_strs: Optional[bool] = None",
        ),
    ),
    Hook(
        "vllm-api/tokenized",
        "hold each token as text if the request asks for it",
        AddField(
            PROTOCOL,
            "TokenizeResponse",
            "token_strs: Optional[Union[List[str], List[List[str]]]] = None",
        ),
    ),
    Hook(
        "vllm-api/tokenize",
        "return each token as text if the request asks for it",
        Decorate(
            SERVING_TOKENIZE,
            "OpenAIServingTokenize._handle_non_streaming_request",
            "agentcore.vllm_api.generate.tokenized",
        ),
    ),
    # SGLang ignores these fields. The types are checked where the values are read.
    Hook(
        "vllm-api/chat-fields",
        "read the fields of vLLM's clients, which are ignored otherwise",
        AddField(
            PROTOCOL,
            "ChatCompletionRequest",
            "structured_outputs: Any = None\n"
            "prompt_logprobs: Any = None\n"
            "chat_template: Any = None\n"
            "vllm_fields: Any = None",
        ),
    ),
    Hook(
        "vllm-api/keep-fields",
        "keep fields that only vLLM has: ignored, some change the tokens",
        AddMethod(
            PROTOCOL,
            "ChatCompletionRequest",
            '@model_validator(mode="before")\n'
            "@classmethod\n"
            "def _keep_vllm_fields(cls, values):\n"
            "    return agentcore.vllm_api.fields.keep(cls, values)",
        ),
        also=("CompletionRequest",),
    ),
    Hook(
        "vllm-api/chat",
        "honour vLLM's fields, or answer 400",
        Insert(
            SERVING_CHAT,
            "OpenAIServingChat._convert_to_internal_request",
            "agentcore.vllm_api.fields.ask_chat(request, adapted_request)",
            before="return adapted_request, request",
        ),
    ),
    Hook(
        "vllm-api/completion-fields",
        "read the fields of vLLM's clients, which are ignored otherwise",
        AddField(
            PROTOCOL,
            "CompletionRequest",
            "structured_outputs: Any = None\n"
            "prompt_logprobs: Any = None\n"
            "vllm_fields: Any = None",
        ),
    ),
    Hook(
        "vllm-api/completion-choice",
        "hold the logprobs of the prompt if the request asks for them",
        AddField(
            PROTOCOL,
            "CompletionResponseChoice",
            "prompt_logprobs: Optional[List[Optional[Dict[str, Any]]]] = None",
        ),
    ),
    Hook(
        "vllm-api/stop-reason",
        "hold the stop string or token ID that ended this choice",
        AddField(
            PROTOCOL,
            "ChatCompletionResponseChoice",
            "stop_reason: Union[None, int, str] = None",
        ),
        also=("CompletionResponseChoice",),
    ),
    Hook(
        "vllm-api/no-such-field",
        "the patch writes this field itself; lines would have it twice",
        RefuseField(PROTOCOL, "ChatCompletionResponseStreamChoice", ("stop_reason",)),
        also=("CompletionResponseStreamChoice",),
    ),
    Hook(
        "vllm-api/completion",
        "honour vLLM's fields, or answer 400",
        Insert(
            SERVING_COMPLETIONS,
            "OpenAIServingCompletion._convert_to_internal_request",
            "agentcore.vllm_api.fields.ask_completion(self, request, adapted_request)",
            before="return adapted_request, request",
        ),
    ),
    Hook(
        "vllm-api/finished",
        "return the logprobs of the prompt if the request asks for them",
        Decorate(
            SERVING_COMPLETIONS,
            "OpenAIServingCompletion._build_completion_response",
            "agentcore.vllm_api.fields.finished",
        ),
    ),
)
