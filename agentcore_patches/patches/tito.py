"""token-in, token-out chat: `input_ids`, `return_prompt_token_ids`, `return_meta_info`

What upstream merged as its PR 23751. In v0.5.9 no token ID is checked before the
embedding lookup, and a streamed answer has sent its status before the engine can refuse
a prompt, so what is wrong with `input_ids` is found when the request is validated.
"""

from __future__ import annotations

from agentcore_patches.edits import (
    AddField,
    AddKeyword,
    Edit,
    Graft,
    Insert,
    Narrow,
    Replace,
)
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
from agentcore_patches.grafts.token_in import _process_input_ids
from agentcore_patches.patches._ended_requests import ENDED_REQUESTS
from agentcore_patches.patches._files import (
    HTTP_SERVER,
    MM_PROCESSOR,
    PROTOCOL,
    SERVING_CHAT,
    TOKENIZER_MANAGER,
)
from agentcore_patches.patches._shared import (
    CHECKED_PROMPTS,
    CHOICE_PROMPT_TOKEN_IDS,
    PROMPT_TOKEN_IDS,
    checked_input_ids,
)

RESPONSE_FIELDS = ("prompt_token_ids", "meta_info")

_CHAT = "OpenAIServingChat"
_IMAGES = "a prompt of token IDs stays as it is, images or not"

# From v0.5.13 on SGLang has the fields itself, but refuses null, and takes "7" for 7.
FIELDS: tuple[Edit, ...] = (
    # Elements are checked by hand: pydantic would take "7" and report every bad one.
    AddField(
        PROTOCOL,
        "ChatCompletionRequest",
        "input_ids: Optional[List[Any]] = None",
        note="the prompt as token IDs, taken as it is instead of the messages",
        until="0.5.12",
    ),
    AddField(
        PROTOCOL,
        "ChatCompletionRequest",
        "return_prompt_token_ids: Optional[bool] = None",
        note="whether each choice has the token IDs of the prompt",
        until="0.5.12",
    ),
    AddField(
        PROTOCOL,
        "ChatCompletionRequest",
        "return_meta_info: Optional[bool] = None",
        note="whether each choice has the engine's meta info",
        until="0.5.12",
    ),
    Replace(
        PROTOCOL,
        "ChatCompletionRequest",
        "input_ids: Optional[List[int]] = None",
        "input_ids: Optional[List[Any]] = None",
        note="checked when the request is validated",
        since="0.5.13",
    ),
    *(
        Replace(
            PROTOCOL,
            "ChatCompletionRequest",
            f"{field}: bool = False",
            f"{field}: Optional[bool] = None",
            note="a flag that is null is one that is not there",
            since="0.5.13",
        )
        for field in ("return_prompt_token_ids", "return_meta_info")
    ),
    AddField(
        PROTOCOL,
        "ChatCompletionResponseChoice",
        "meta_info: Optional[Dict[str, Any]] = None",
        note="return_meta_info",
        until="0.5.12",
    ),
    # The engine has it in v0.5.8, too; from v0.5.9 on chat requests do.
    AddField(
        PROTOCOL,
        "ChatCompletionRequest",
        "return_routed_experts: Optional[bool] = None",
        note="whether return_meta_info has the experts of each token",
        until="0.5.8",
    ),
    Insert(
        PROTOCOL,
        "ChatCompletionResponseChoice._serialize",
        'if self.meta_info is None:\n    data.pop("meta_info", None)',
        before="return data",
        until="0.5.12",
    ),
)

# From v0.5.13 on SGLang refuses the flags itself, and `CHECKED_PROMPTS` the IDs.
VALIDATION: tuple[Edit, ...] = (
    Insert(
        SERVING_CHAT,
        f"{_CHAT}._validate_request",
        'for field in ("return_prompt_token_ids", "return_meta_info"):\n'
        "    if request.stream and getattr(request, field):\n"
        '        return f"{field} is not supported while streaming: set stream=false."',
        before="return None",
        note="token-in, token-out requests",
        until="0.5.12",
    ),
    *checked_input_ids(until="0.5.12"),
)

PROMPT: tuple[Edit, ...] = (
    Graft(SERVING_CHAT, _CHAT, _process_input_ids, inside=True, note="input_ids"),
    Insert(
        SERVING_CHAT,
        f"{_CHAT}._process_messages",
        "if request.input_ids is not None:\n"
        "    result = self._process_input_ids(request)\n"
        "    result.tool_call_constraint = tool_call_constraint\n"
        "    return result",
        before="if self.template_manager.chat_template_name is None: ...",
        note="a prompt given as IDs has its template applied",
        until="0.5.12",
    ),
    Replace(
        SERVING_CHAT,
        f"{_CHAT}._process_messages",
        "result = MessageProcessingResult(...)",
        "result = self._process_input_ids(request)",
        note="images and the template's stop strings count",
        since="0.5.13",
    ),
    # What is left for a multimodal model is a text, and there is none.
    Narrow(
        SERVING_CHAT,
        f"{_CHAT}._convert_to_internal_request",
        "if is_multimodal: ...",
        "request.input_ids is None",
        until="0.5.12",
    ),
)

# The processors of v0.5.9 decode a prompt of IDs and tokenize its text again, and expand
# the image tokens of a second turn once more.
IMAGES: tuple[Edit, ...] = (
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
PARALLEL_SAMPLES: tuple[Edit, ...] = (
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
STREAMS: tuple[Edit, ...] = (
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

ANSWER: tuple[Edit, ...] = (
    AddKeyword(
        SERVING_CHAT,
        f"{_CHAT}._convert_to_internal_request",
        "GenerateReqInput",
        "return_routed_experts=bool(request.return_routed_experts)",
        until="0.5.8",
    ),
    Insert(
        SERVING_CHAT,
        f"{_CHAT}._convert_to_internal_request",
        "if request.return_prompt_token_ids:\n"
        "    adapted_request.return_prompt_token_ids = True",
        before="return adapted_request, request",
        note="return_prompt_token_ids",
        until="0.5.12",
    ),
    Insert(
        SERVING_CHAT,
        f"{_CHAT}._build_chat_response",
        "if request.return_meta_info and finish_reason:\n"
        "    finish_reason = dict(finish_reason)",
        after='finish_reason = ret_item["meta_info"]["finish_reason"]',
        note="_process_tool_calls writes into it",
    ),
    AddKeyword(
        SERVING_CHAT,
        f"{_CHAT}._build_chat_response",
        "ChatCompletionResponseChoice",
        "prompt_token_ids=(\n"
        '    ret_item.get("prompt_token_ids")\n'
        "    if request.return_prompt_token_ids\n"
        "    else None\n"
        ")",
        until="0.5.12",
    ),
    AddKeyword(
        SERVING_CHAT,
        f"{_CHAT}._build_chat_response",
        "ChatCompletionResponseChoice",
        'meta_info=ret_item["meta_info"] if request.return_meta_info else None',
        until="0.5.12",
    ),
    Insert(
        SERVING_CHAT,
        f"{_CHAT}._build_chat_response",
        "if choice_data.message.content is None and (\n"
        "    request.return_meta_info or request.input_ids is not None\n"
        "):\n"
        '    choice_data.message.content = ""',
        before="choices.append(choice_data)",
        note="trainers refuse null",
        until="0.5.12",
    ),
)

EDITS: tuple[Edit, ...] = (
    *CHECKED_PROMPTS,
    *PROMPT_TOKEN_IDS,
    *CHOICE_PROMPT_TOKEN_IDS,
    *ENDED_REQUESTS,
    *FIELDS,
    *VALIDATION,
    *PROMPT,
    *IMAGES,
    *PARALLEL_SAMPLES,
    *STREAMS,
    *ANSWER,
)
