"""Prompts of token IDs with images: hooks in SGLang."""

from __future__ import annotations

from agentcore_patches.edits import AddField, AddKeyword, Decorate, Insert, Replace
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import (
    HTTP_SERVER,
    MM_PROCESSOR,
    SERVING_CHAT,
    TOKENIZER_MANAGER,
)

HOOKS: tuple[Hook, ...] = (
    # SGLang's processors decode a prompt of IDs and tokenize its text again, and expand
    # the image tokens of a second turn a second time. From 0.5.13 on, they keep such a
    # prompt beside its text, but still prefill the text.
    Hook(
        "images/token-ids",
        "keep the prompt if the request gave it as token IDs",
        AddField(
            MM_PROCESSOR,
            "BaseMultiModalProcessorOutput",
            "token_ids: Optional[List[int]] = None",
        ),
    ),
    Hook(
        "images/load",
        "keep a prompt of token IDs: its text would tokenize differently",
        Decorate(
            MM_PROCESSOR,
            "BaseMultimodalProcessor.load_mm_data",
            "agentcore.http.images.keep_token_ids",
        ),
    ),
    Hook(
        "images/fast-load",
        "keep the token IDs with which some processors call this",
        absent("it takes no prompt of token IDs beside the text"),
        since={
            "0.5.13": AddKeyword(
                MM_PROCESSOR,
                "BaseMultimodalProcessor.fast_load_mm_data",
                "BaseMultiModalProcessorOutput",
                "token_ids=input_ids",
            ),
        },
    ),
    Hook(
        "images/check-loaded",
        "reject a prompt that has more placeholders than images",
        Insert(
            MM_PROCESSOR,
            "BaseMultimodalProcessor.process_and_combine_mm_data",
            "agentcore.http.images.check_loaded(base_output, all_loaded_data, mm_tokens)",
            after="all_loaded_data = base_output.organize_results()",
        ),
    ),
    Hook(
        "images/restore",
        "restore the request's token IDs; expand only the placeholders",
        Insert(
            MM_PROCESSOR,
            "BaseMultimodalProcessor.process_and_combine_mm_data",
            "input_ids = agentcore.http.images.restore_token_ids(\n"
            "    base_output, input_ids, mm_tokens\n"
            ")",
            before="for mm_item in all_collected_items: ...",
        ),
    ),
    Hook(
        "images/no-text",
        "ignore the text that the request log added to the request",
        Replace(
            TOKENIZER_MANAGER,
            "TokenizerManager._tokenize_one_request",
            "input_text = obj.text",
            "input_text = obj.text if obj.input_ids is None else None",
        ),
    ),
    Hook(
        "images/check-prefilled",
        "reject a prompt whose token IDs the processor changed",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager._tokenize_one_request",
            "agentcore.http.images.check_prefilled(self, obj, input_ids)",
            before="self._validate_one_request(obj, input_ids)",
        ),
    ),
    Hook(
        "images/own",
        "copy the images: sending strips pixels, and n > 1 shares them",
        absent("sending leaves the images alone"),
        since={
            "0.5.9": Insert(
                TOKENIZER_MANAGER,
                "TokenizerManager._send_one_request",
                "agentcore.http.images.own_images(tokenized_obj)",
                before="tokenized_obj = wrap_shm_features(tokenized_obj)",
            ),
            "0.5.13": absent("each request of n > 1 has its own"),
        },
        upstream="PR 19784, closed; 0.5.13",
    ),
    # Without these, a stream sends its status before its images are processed.
    Hook(
        "images/go-on",
        "continue the stream that images.start_stream started",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager.generate_request",
            "if agentcore_stream := agentcore.http.images.take_started(obj):\n"
            "    async for agentcore_output in agentcore_stream:\n"
            "        yield agentcore_output\n"
            "    return",
        ),
    ),
    Hook(
        "images/end",
        "close a started stream that a disconnected client never read",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager.create_abort_task",
            "background_tasks.add_task(agentcore.http.images.end_stream, obj)",
            before="background_tasks.add_task(abort_request)",
        ),
    ),
    Hook(
        "images/refuse-generate",
        "reject bad image placeholders before a stream sends its status",
        Insert(
            HTTP_SERVER,
            "$generate_request",
            "agentcore_image_error = await agentcore.http.images.start_stream(\n"
            "    _global_state.tokenizer_manager, obj, request\n"
            ")\n"
            "if agentcore_image_error is not None:\n"
            "    return _create_error_response(agentcore_image_error)",
            before="if obj.stream: ...",
        ),
    ),
    Hook(
        "images/refuse-chat",
        "reject bad image placeholders before a stream sends its status",
        Insert(
            SERVING_CHAT,
            "OpenAIServingChat._handle_streaming_request",
            "agentcore_image_error = await agentcore.http.images.start_stream(\n"
            "    self.tokenizer_manager, adapted_request, raw_request\n"
            ")\n"
            "if agentcore_image_error is not None:\n"
            "    return self.create_error_response(agentcore_image_error)",
        ),
        since={
            "0.5.10": absent("chat waits for the first line itself"),
        },
    ),
)
