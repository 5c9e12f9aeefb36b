"""Prompts of token IDs with images, for `tito`."""

from __future__ import annotations

from agentcore_patches.edits import AddField, AddKeyword, Edit, Graft, Insert, Replace
from agentcore_patches.grafts.media_prompt import (
    _check_loaded,
    _collapse_placeholders,
    _copy_lists,
    _is_expanded,
    _load_token_ids,
    _restore_token_ids,
    _split_at_placeholders,
    end_stream,
    start_stream,
)
from agentcore_patches.patches._files import (
    HTTP_SERVER,
    MM_PROCESSOR,
    SERVING_CHAT,
    TOKENIZER_MANAGER,
)

_CHAT = "OpenAIServingChat"
_IMAGES = "a prompt of token IDs stays as it is, images or not"

# The processors of v0.5.9 decode a prompt of IDs and tokenize its text again, and expand
# the image tokens of a second turn once more.
_PROCESSORS: tuple[Edit, ...] = (
    AddField(
        MM_PROCESSOR,
        "BaseMultiModalProcessorOutput",
        "token_ids: Optional[List[int]] = None",
        note="the prompt, if it was given as token IDs",
    ),
    *(
        Graft(MM_PROCESSOR, "BaseMultimodalProcessor", definition, note=_IMAGES)
        for definition in (
            _split_at_placeholders,
            _collapse_placeholders,
            _check_loaded,
            _restore_token_ids,
        )
    ),
    Graft(
        MM_PROCESSOR,
        "BaseMultimodalProcessor",
        _load_token_ids,
        inside=True,
        note=_IMAGES,
        until="0.5.12",
    ),
    Insert(
        MM_PROCESSOR,
        "BaseMultimodalProcessor.load_mm_data",
        "if isinstance(prompt, list) and return_text:\n"
        "    return self._load_token_ids(\n"
        "        prompt,\n"
        "        self._processor.tokenizer,\n"
        "        multimodal_tokens,\n"
        "        image_data,\n"
        "        video_data,\n"
        "        audio_data,\n"
        "        discard_alpha_channel=discard_alpha_channel,\n"
        "        audio_sample_rate=audio_sample_rate,\n"
        "    )",
        note=_IMAGES,
        until="0.5.12",
    ),
    # From v0.5.13 on a prompt of IDs stays beside its text, but not in its place.
    Insert(
        MM_PROCESSOR,
        "BaseMultimodalProcessor.load_mm_data",
        "if isinstance(prompt, list) and return_text:\n"
        "    text_ids = _collapse_placeholders(\n"
        "        prompt,\n"
        "        multimodal_tokens,\n"
        "        [*(image_data or ()), *(video_data or ()), *(audio_data or ())],\n"
        "    )",
        note=_IMAGES,
        since="0.5.13",
    ),
    Replace(
        MM_PROCESSOR,
        "BaseMultimodalProcessor.load_mm_data",
        "prompt = self._tokenizer.decode(prompt)",
        "prompt = self._tokenizer.decode(text_ids)",
        note="one placeholder for each image",
        since="0.5.13",
    ),
    *(
        AddKeyword(
            MM_PROCESSOR,
            f"BaseMultimodalProcessor.{loader}",
            "BaseMultiModalProcessorOutput",
            "token_ids=input_ids",
            since="0.5.13",
        )
        for loader in ("fast_load_mm_data", "legacy_load_mm_data")
    ),
    Insert(
        MM_PROCESSOR,
        "BaseMultimodalProcessor.process_and_combine_mm_data",
        "if base_output.token_ids is not None:\n"
        "    _check_loaded(base_output.token_ids, all_loaded_data, mm_tokens)",
        after="all_loaded_data = base_output.organize_results()",
        note=_IMAGES,
    ),
    Insert(
        MM_PROCESSOR,
        "BaseMultimodalProcessor.process_and_combine_mm_data",
        "if base_output.token_ids is not None:\n"
        "    input_ids = _restore_token_ids(base_output, input_ids, mm_tokens)",
        before="for mm_item in all_collected_items: ...",
        note=_IMAGES,
    ),
    *(
        Graft(TOKENIZER_MANAGER, "TokenizerManager", definition, note=_IMAGES)
        for definition in (_split_at_placeholders, _is_expanded)
    ),
    *(
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager._tokenize_one_request",
            "if obj.input_ids is not None:\n    input_text = None",
            before=before,
            note="the request log has set the text, too",
            since=since,
            until=until,
        )
        for before, since, until in (
            ("if self.mm_processor and obj.contains_mm_input(): ...", "", "0.5.10"),
            ("if should_run_mm_processor: ...", "0.5.11", ""),
        )
    ),
    *(
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager._tokenize_one_request",
            "if obj.input_ids is not None and not _is_expanded(\n"
            '    obj.input_ids, input_ids, getattr(self.mm_processor, "mm_tokens", None)\n'
            "):\n"
            "    raise ValueError(\n"
            '        "input_ids cannot be taken as they are with these images: the "\n'
            '        "processor of this model makes other token IDs of their text."\n'
            "    )",
            after=after,
            note=_IMAGES,
            since=since,
            until=until,
        )
        for after, since, until in (
            ('if mm_inputs and "input_ids" in mm_inputs: ...', "", "0.5.9"),
            ("if mm_inputs and mm_inputs.input_ids is not None: ...", "0.5.10", ""),
        )
    ),
)

# Sending a request takes the pixels out of its images, and the requests of `n` > 1 have
# the same ones: the second ends the scheduler. From v0.5.13 on each has its own.
_OWN_IMAGES = "the requests of n > 1 have the same ones"
_PARALLEL_SAMPLES: tuple[Edit, ...] = (
    Insert(
        TOKENIZER_MANAGER,
        "TokenizerManager._send_one_request",
        'if getattr(tokenized_obj, "mm_inputs", None):\n'
        "    tokenized_obj.mm_inputs = dict(tokenized_obj.mm_inputs)\n"
        '    tokenized_obj.mm_inputs["mm_items"] = [\n'
        "        copy.copy(item) for item in "
        'tokenized_obj.mm_inputs.get("mm_items", [])\n'
        "    ]",
        before="tokenized_obj = wrap_shm_features(tokenized_obj)",
        note=_OWN_IMAGES,
        since="0.5.9",
        until="0.5.9",
    ),
    Insert(
        TOKENIZER_MANAGER,
        "TokenizerManager._send_one_request",
        'if getattr(tokenized_obj, "mm_inputs", None):\n'
        "    tokenized_obj.mm_inputs = copy.copy(tokenized_obj.mm_inputs)\n"
        "    tokenized_obj.mm_inputs.mm_items = [\n"
        "        copy.copy(item) for item in tokenized_obj.mm_inputs.mm_items\n"
        "    ]",
        before="tokenized_obj = wrap_shm_features(tokenized_obj)",
        note=_OWN_IMAGES,
        since="0.5.10",
        until="0.5.12",
    ),
)

# A stream would have sent its status before its images are processed. From v0.5.10 on
# chat waits for the first chunk itself.
_REFUSED = "images without a place among the token IDs are a 400"
_REFUSALS: tuple[Edit, ...] = (
    Graft(TOKENIZER_MANAGER, "TokenizerManager", _copy_lists, note=_REFUSED),
    *(
        Graft(TOKENIZER_MANAGER, "TokenizerManager", method, inside=True, note=_REFUSED)
        for method in (start_stream, end_stream)
    ),
    Insert(
        TOKENIZER_MANAGER,
        "TokenizerManager.generate_request",
        'if "started" in obj.__dict__:\n'
        '    first, outputs = obj.__dict__.pop("started")\n'
        "    yield first\n"
        "    async for output in outputs:\n"
        "        yield output\n"
        "    return",
        note="a stream that `start_stream` began",
    ),
    Insert(
        TOKENIZER_MANAGER,
        "TokenizerManager.create_abort_task",
        "background_tasks.add_task(self.end_stream, obj)",
        before="background_tasks.add_task(abort_request)",
        note="a client that left may never have read",
    ),
    *(
        Insert(
            HTTP_SERVER,
            endpoint,
            "if obj.stream and obj.input_ids is not None:\n"
            "    error = await _global_state.tokenizer_manager.start_stream(obj, request)\n"
            "    if error is not None:\n"
            "        return _create_error_response(error)",
            before="if obj.stream: ...",
            note=_REFUSED,
            since=since,
            until=until,
        )
        for endpoint, since, until in (
            ("generate_request", "", "0.5.21"),
            ("serve_generate_request", "0.5.22", ""),
        )
    ),
    Insert(
        SERVING_CHAT,
        f"{_CHAT}._handle_streaming_request",
        "error = await self.tokenizer_manager.start_stream(adapted_request, raw_request)\n"
        "if error is not None:\n"
        "    return self.create_error_response(error)",
        note=_REFUSED,
        until="0.5.9",
    ),
)

IMAGES: tuple[Edit, ...] = (*_PROCESSORS, *_PARALLEL_SAMPLES, *_REFUSALS)
