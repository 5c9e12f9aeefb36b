"""Prompt IDs: recorded for responses, checked in requests."""

from __future__ import annotations

from agentcore_patches.edits import AddField, Decorate, Insert, Replace
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import (
    CHAT_AND_COMPLETIONS,
    HTTP_SERVER,
    IO_STRUCT,
    PROTOCOL,
    REQUEST_LOGGER,
    TOKENIZER_MANAGER,
)

_UPSTREAM = "return_prompt_token_ids, PR 23751, 0.5.13"

HOOKS: tuple[Hook, ...] = (
    # The IDs of the prompt, taken once, where a request is tokenized: only there are
    # they known whatever way the prompt came (text, IDs, images).
    Hook(
        "prompts/keep",
        "record the prompt that the engine prefills",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager._create_tokenized_object",
            "agentcore.http.prompts.record(self, obj, input_ids)",
        ),
    ),
    Hook(
        "prompts/keep-of-batch",
        "record the prompt again: obj[i] creates a new object each time",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager._send_batch_request",
            "agentcore.http.prompts.record(self, tmp_obj, tokenized_obj.input_ids)",
            before="self.rid_to_state[tmp_obj.rid] = state",
        ),
        since={
            "0.5.10": absent("the state has its object before it is tokenized"),
        },
    ),
    Hook(
        "prompts/flag",
        "return the prompt's token IDs; null counts as absent",
        AddField(
            IO_STRUCT,
            "GenerateReqInput",
            "return_prompt_token_ids: Optional[bool] = None",
            native="return_prompt_token_ids: bool = False",
        ),
        upstream=_UPSTREAM,
        also=("EmbeddingReqInput",),
    ),
    Hook(
        "prompts/of-batch",
        "pass the batch's fields on to each of its requests",
        Decorate(
            IO_STRUCT,
            "GenerateReqInput.__getitem__",
            "agentcore.http.prompts.inherit_fields",
        ),
        since={
            "0.5.13": absent("SGLang passes all fields on"),
        },
        upstream=_UPSTREAM,
        also=("EmbeddingReqInput.__getitem__",),
    ),
    Hook(
        "prompts/add",
        "add the prompt's token IDs to the output if requested",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager.$wait_one_response",
            "agentcore.http.prompts.add_to_output(state, out, is_stream)",
            before="if $finished: ...",
        ),
    ),
    # From 0.5.22 on, SGLang also validates the request against a schema.
    Hook(
        "prompts/contract",
        "drop the flag if it is null: null counts as absent",
        absent("SGLang compares no schema with requests"),
        since={
            "0.5.22": Replace(
                HTTP_SERVER,
                "generate_request",
                "contract_error = generate_contract_error(await request.json())",
                "contract_error = generate_contract_error(\n"
                "    agentcore.http.prompts.without_null(await request.json())\n"
                ")",
            ),
        },
    ),
    Hook(
        "prompts/log",
        "hide the prompt's token IDs where the log hides output_ids",
        Insert(
            REQUEST_LOGGER,
            "RequestLogger._compute_metadata",
            'if out_skip_names is not None:\n    out_skip_names.add("prompt_token_ids")',
            before="return max_length, skip_names, out_skip_names",
        ),
    ),
    Hook(
        "prompts/choice-json",
        "omit the added fields from the JSON if they are None",
        Insert(
            PROTOCOL,
            "ChatCompletionResponseChoice._serialize",
            "agentcore.http.prompts.drop_absent(data)",
            before="return data",
        ),
        also=("CompletionResponseChoice._serialize",),
    ),
    # A token ID outside the vocabulary crashes the engine in the embedding lookup, from
    # any endpoint. A stream is rejected before its status is sent.
    # A batch creates its requests before it knows its tokenizer worker. Without this,
    # no worker gets the outputs, and the batch hangs.
    Hook(
        "prompts/worker-of-batch",
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
        "prompts/check",
        "reject token IDs beyond the vocabulary: they crash the engine",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager.generate_request",
            "agentcore.http.prompts.refuse(self, obj)",
            before="obj.normalize_batch_and_arguments()",
        ),
    ),
    *(
        Hook(
            f"prompts/check-{endpoint}",
            "reject bad prompts and logprobs before a stream sends its status",
            Insert(
                file,
                f"{serving}._validate_request",
                f"agentcore_error = agentcore.http.prompts.check_{endpoint}(\n"
                "    self.tokenizer_manager, request\n"
                ")\n"
                "if agentcore_error is not None:\n"
                "    return agentcore_error",
                before="return None",
            ),
        )
        for endpoint, file, serving in CHAT_AND_COMPLETIONS
    ),
    Hook(
        "prompts/check-generate",
        "reject bad requests before a stream sends its status",
        Insert(
            HTTP_SERVER,
            "$generate_request",
            "agentcore_error = agentcore.http.prompts.check_generate(\n"
            "    _global_state.tokenizer_manager, obj\n"
            ")\n"
            "if agentcore_error is not None:\n"
            "    return _create_error_response(agentcore_error)",
            before="if obj.stream: ...",
        ),
    ),
)
