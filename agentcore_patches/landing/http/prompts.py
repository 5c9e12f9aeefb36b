"""Prompts of token IDs: validate them, and return them in responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import release
from ..shared.decorators import wrapping
from . import (
    exchanges,
    images,
    logprobs,
    metrics,
    request_fields,
    request_ids,
    routed_experts,
)

if TYPE_CHECKING:
    from sglang.srt.entrypoints.openai.protocol import (
        ChatCompletionRequest,
        CompletionRequest,
        MessageProcessingResult,
    )
    from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat
    from sglang.srt.managers.io_struct import GenerateReqInput
    from sglang.srt.managers.tokenizer_manager import ReqState, TokenizerManager

    from .request_fields import EngineRequest

# Fields that patches add to a choice of a non-streaming response.
_CHOICE_FIELDS = (
    "prompt_token_ids",
    "token_ids",
    "token_logprobs",
    "prompt_logprobs",
    "meta_info",
    "routed_experts",
    "routed_experts_start_len",
    "weight_versions",
    "stop_reason",
)

# Fields of a batch that some releases do not pass on to its requests.
_OF_BATCH = {"return_prompt_token_ids", "routed_experts_start_len"}


def check_token_ids(
    manager: TokenizerManager,
    token_ids: list[Any],
    name: str = "input_ids",
    has_media: bool = False,
) -> str | None:
    """Return the error in a prompt, None if it is valid; count an error."""
    found = find_token_error(manager, token_ids, name, has_media)
    if found is None:
        return None
    reason, message = found
    metrics.count(metrics.REFUSED_PROMPTS, reason)
    return message


def find_token_error(
    manager: TokenizerManager, token_ids: list[Any], name: str, has_media: bool
) -> tuple[str, str] | None:
    """Return the kind of error in one prompt and a message, None if it is valid.

    The kind is a reason of the metric of refused prompts. Placeholders of images,
    videos or audio that come with the prompt may lie beyond the vocabulary.
    """
    if len(token_ids) == 0:
        return "empty", f"{name} cannot be empty."
    if set(map(type, token_ids)) != {int}:
        for position, value in enumerate(token_ids):
            if not request_fields.is_integer(value):
                return (
                    "type",
                    f"{name} must be a flat list of integers, but {name}[{position}] "
                    f"is of type {type(value).__name__}.",
                )
    vocab_size = manager.model_config.vocab_size
    if min(token_ids) < 0 or max(token_ids) >= vocab_size:
        placeholders: set[Any] = set()
        if has_media and manager.mm_processor is not None:
            placeholders = images.placeholders_of(manager)
            placeholders.add(manager.model_config.image_token_id)
        for position, value in enumerate(token_ids):
            if not 0 <= value < vocab_size and value not in placeholders:
                return (
                    "vocabulary",
                    f"{name} must be from 0 to {vocab_size - 1} (the vocabulary has "
                    f"{vocab_size} tokens), but {name}[{position}] is not.",
                )
    if manager.server_args.allow_auto_truncate:
        return None
    max_len = manager.context_len - manager.num_reserved_tokens - 1
    # The scheduler applies its own limit only to generation requests.
    if manager.is_generation and manager.max_req_input_len is not None:
        max_len = min(max_len, manager.max_req_input_len - 1)
    if len(token_ids) > max_len:
        return (
            "length",
            f"{name} has {len(token_ids)} tokens, which is longer than the {max_len} "
            "that the model's context length or the KV cache leaves for a prompt.",
        )
    return None


def check_prompt(
    manager: TokenizerManager,
    prompt: list[Any],
    name: str = "input_ids",
    has_media: bool = False,
) -> str | None:
    """Return the error in a prompt or a batch of prompts, None if all are valid.

    Args:
        prompt: token IDs, or a list of token IDs for each prompt of a batch.
    """
    prompts = {name: prompt}
    if len(prompt) > 0 and isinstance(prompt[0], list):
        prompts = {f"{name}[{i}]": one for i, one in enumerate(prompt)}
    checked = set()
    for one, token_ids in prompts.items():
        if id(token_ids) in checked:
            continue  # Several samples share one prompt.
        checked.add(id(token_ids))
        if token_ids is not prompt and not isinstance(token_ids, list):
            metrics.count(metrics.REFUSED_PROMPTS, "type")
            return f"{one} must be a list of integers, as {name}[0] is."
        error = check_token_ids(manager, token_ids, one, has_media)
        if error is not None:
            return error
    return None


def check(manager: TokenizerManager, obj: EngineRequest) -> str | None:
    """Return why the engine cannot accept a request, None if it can."""
    return (
        request_fields.find_error(manager, obj)
        or _check_input_ids(manager, obj)
        or routed_experts.check(manager, obj)
    )


def _check_input_ids(manager: TokenizerManager, obj: EngineRequest) -> str | None:
    session = request_fields.read(obj, "session_params")
    if session and request_fields.read(obj, "return_prompt_token_ids"):
        return (
            "return_prompt_token_ids is not supported with session_params: the "
            "scheduler builds the prompt of a session."
        )
    if obj.input_ids is None or (obj.input_ids == [] and _may_be_empty(obj)):
        return None
    return check_prompt(manager, obj.input_ids, has_media=obj.contains_mm_input())


def _may_be_empty(obj: EngineRequest) -> bool:
    """True if the request may have an empty prompt: its session provides the prompt."""
    session = request_fields.read(obj, "session_params")
    has_session = isinstance(session, dict) and session.get("id")
    return bool(has_session and release.SESSIONS_HAVE_PROMPTS)


def refuse(manager: TokenizerManager, obj: EngineRequest) -> None:
    """Reject a request that the engine cannot accept."""
    error = check(manager, obj)
    if error is not None:
        raise ValueError(error)


def has_media(messages: list[Any]) -> bool:
    """True if the messages contain images, videos or audio."""
    return any(
        part.type != "text"
        for message in messages
        if isinstance(message.content, list)
        for part in message.content
    )


def check_flags(request: ChatCompletionRequest) -> str | None:
    """Return which flag of a request streams do not support, None if none is set."""
    for flag, is_set in (
        ("return_prompt_token_ids", request.return_prompt_token_ids),
        ("return_meta_info", request.return_meta_info),
    ):
        if request.stream and is_set:
            return f"{flag} is not supported while streaming: set stream=false."
    return None


def check_chat(manager: TokenizerManager, request: ChatCompletionRequest) -> str | None:
    """Return why a chat request is rejected, None if it is accepted."""
    if error := logprobs.check(manager, request):
        return error
    if request.input_ids is None:
        return None
    if manager.server_args.skip_tokenizer_init:
        return (
            "input_ids in chat completions need a tokenizer for the answer, but "
            "the server runs with --skip-tokenizer-init. Send them to /generate."
        )
    return check_token_ids(
        manager, request.input_ids, has_media=has_media(request.messages)
    )


def check_completion(
    manager: TokenizerManager, request: CompletionRequest
) -> str | None:
    """Return why a request for completions is rejected, None if it is accepted."""
    error = logprobs.check(manager, request)
    prompt = request.prompt
    if error is None and isinstance(prompt, list) and not isinstance(prompt[0], str):
        return check_prompt(manager, prompt, "prompt")
    return error


def check_generate(manager: TokenizerManager, obj: GenerateReqInput) -> str | None:
    """Return why a request of /generate is rejected, None if it is accepted."""
    return (
        check(manager, obj)
        or logprobs.refusal_of(manager, obj)
        or request_ids.check(manager, obj)
    )


def without_null(body: dict[str, Any]) -> dict[str, Any]:
    """Drop `return_prompt_token_ids` from a body if it is null: null means absent."""
    if body.get("return_prompt_token_ids", "") is not None:
        return body
    return {k: v for k, v in body.items() if k != "return_prompt_token_ids"}


def process_token_ids(
    serving: OpenAIServingChat, request: ChatCompletionRequest, constraint: Any
) -> MessageProcessingResult:
    """Build the processing result of a chat request that has `input_ids`."""
    from sglang.srt.entrypoints.openai.protocol import MessageProcessingResult

    result = MessageProcessingResult(
        prompt="",
        prompt_ids=request.input_ids,
        image_data=None,
        audio_data=None,
        video_data=None,
        modalities=[],
        stop=[],
        tool_call_constraint=constraint,
    )
    take_images_and_stops(serving, request, result)
    return result


def take_images_and_stops(
    serving: OpenAIServingChat,
    request: ChatCompletionRequest,
    result: MessageProcessingResult,
) -> None:
    """Add images, audio, videos and stop strings to a prompt of token IDs."""
    from sglang.srt.parser.conversation import chat_templates, generate_chat_conv
    from sglang.srt.parser.jinja_template_utils import (
        process_content_for_template_format,
    )

    image_data: list[Any] = []
    video_data: list[Any] = []
    audio_data: list[Any] = []
    modalities: list[str] = []
    stops = flat_stops(request.stop)
    template = serving.template_manager
    name = template.chat_template_name
    if name is not None:
        if has_media(request.messages):
            conv = generate_chat_conv(request, name)
            image_data, video_data = conv.image_data, conv.video_data
            audio_data, modalities = conv.audio_data, conv.modalities or []
        # Named chat templates have a stop string of their own.
        if name in chat_templates and not request.ignore_eos:
            named = chat_templates[name]
            stops += flat_stops(named.stop_str)
    else:
        for message in request.messages:
            process_content_for_template_format(
                message.model_dump(),
                template.jinja_template_content_format,
                image_data,
                video_data,
                audio_data,
                modalities,
            )
    result.image_data = image_data or None
    result.video_data = video_data or None
    result.audio_data = audio_data or None
    result.modalities = modalities
    result.stop = stops


def flat_stops(*given: str | list[str] | None) -> list[str]:
    """Return stop strings that are each given as one string, a list or None."""
    return [
        stop
        for stops in given
        for stop in ([stops] if isinstance(stops, str) else stops or ())
    ]


@wrapping
def inherit_fields(get: Any, self: EngineRequest, *args: Any) -> Any:
    """Decorate `__getitem__`: each request of a batch inherits the batch's fields."""
    obj = get(self, *args)
    for name in _OF_BATCH & vars(self).keys():
        setattr(obj, name, getattr(self, name))
    return obj


def record(
    manager: TokenizerManager, obj: EngineRequest, input_ids: list[int] | None
) -> None:
    """Record the number of prompt tokens that are prefilled, and their IDs.

    Args:
        obj: the tokenized request. In a batch of 0.5.10, the state may get another
            object for the same request later.

    Raises:
        ValueError: the prompt is empty, which would crash the engine.
    """
    if input_ids is None:
        return
    if len(input_ids) == 0 and not _may_be_empty(obj):
        metrics.count(metrics.REFUSED_PROMPTS, "empty")
        raise ValueError("The prompt cannot be empty: its text has no tokens.")
    limit = manager.max_req_input_len
    if limit is not None and len(input_ids) > limit:
        input_ids = input_ids[:limit]
    prompt = None
    if request_fields.read(obj, "return_prompt_token_ids"):
        prompt = input_ids if isinstance(input_ids, list) else list(input_ids)
        # From 0.5.13 on, SGLang would copy the prompt for each sample of a request.
        obj.return_prompt_token_ids = False
    prefilled = exchanges.Prefilled(len(input_ids), prompt)
    # Copies of the request for `n` > 1 inherit it.
    exchanges.note(obj, prefilled=prefilled)
    state = manager.rid_to_state.get(obj.rid)
    if state is not None:
        exchanges.run_of(state).prefilled = prefilled


def _prefilled(state: ReqState) -> exchanges.Prefilled | None:
    """Return what `record` recorded: in 0.5.9 and for samples, only on the request."""
    known = exchanges.run_of(state).prefilled
    return known or exchanges.call_of(state.obj).prefilled


def count(state: ReqState) -> int:
    """Return the number of prefilled prompt tokens, 0 if it is unknown."""
    prefilled = _prefilled(state)
    return 0 if prefilled is None else prefilled.n_tokens


def add_to_output(state: ReqState, out: dict[str, Any], is_stream: bool) -> None:
    """Add the prompt's token IDs to an output if requested; in a stream to one chunk.

    If the scheduler makes the prompt longer, as for LLaVA's images, these are not the
    IDs that were prefilled: then none are returned.
    """
    out.pop("prompt_token_ids", None)
    prefilled = _prefilled(state)
    if prefilled is None or prefilled.token_ids is None:
        return
    if prefilled.n_tokens == out["meta_info"]["prompt_tokens"]:
        out["prompt_token_ids"] = prefilled.token_ids
    if is_stream or state.finished:
        # The request lives as long as its answer: free the IDs.
        without_ids = exchanges.Prefilled(prefilled.n_tokens)
        exchanges.run_of(state).prefilled = without_ids
        exchanges.note(state.obj, prefilled=without_ids)


def drop_absent(data: dict[str, Any]) -> dict[str, Any]:
    """Drop the fields that patches add to a choice, if they are None.

    SGLang does the same for those of the fields that it has itself.
    """
    return drop_none(data, *_CHOICE_FIELDS)


def drop_none(data: dict[str, Any], *names: str) -> dict[str, Any]:
    """Drop the named fields of a model's JSON data that are None."""
    for name in names:
        if data.get(name) is None:
            data.pop(name, None)
    return data
