"""Lands in `managers/tokenizer_manager.py`: what a prompt may be, and how it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple, Union

if TYPE_CHECKING:
    from sglang.srt.managers.io_struct import EmbeddingReqInput, GenerateReqInput


def _check_token_ids(
    token_ids: List[Any],
    name: str,
    vocab_size: int,
    max_len: Optional[int],
    placeholders: Tuple[Any, ...],
) -> Optional[str]:
    """What is wrong with the token IDs of one prompt, None if nothing is.

    Args:
        token_ids: the IDs as the request gives them.
        name: what the request calls them.
        vocab_size: IDs are from 0 to this, exclusive.
        max_len: how many IDs the engine takes, None if any number.
        placeholders: IDs beyond the vocabulary that stand for images and the like.
    """
    if len(token_ids) == 0:
        return f"{name} cannot be empty."
    if set(map(type, token_ids)) != {int}:
        for position, value in enumerate(token_ids):
            # What counts as an integer without being an `int`: numpy's.
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                return (
                    f"{name} must be a flat list of integers, but {name}[{position}] "
                    f"is of type {type(value).__name__}."
                )
    if min(token_ids) < 0 or max(token_ids) >= vocab_size:
        for position, value in enumerate(token_ids):
            if not 0 <= value < vocab_size and value not in placeholders:
                return (
                    f"{name} must be from 0 to {vocab_size - 1} (the vocabulary has "
                    f"{vocab_size} tokens), but {name}[{position}] is not."
                )
    if max_len is not None and len(token_ids) > max_len:
        return (
            f"{name} has {len(token_ids)} tokens, which is longer than the {max_len} "
            "that the model's context length or the KV cache leaves for a prompt."
        )
    return None


def check_token_ids(
    self, token_ids: List[Any], name: str = "input_ids", has_media: bool = False
) -> Optional[str]:
    """What is wrong with one prompt given as token IDs, None if nothing is.

    Args:
        token_ids: the prompt.
        name: what the request calls it.
        has_media: whether images, videos or audio come with it.
    """
    max_len = None
    if not self.server_args.allow_auto_truncate:
        max_len = self.context_len - self.num_reserved_tokens - 1
        # The scheduler holds only prompts to generate from against its own limit.
        if self.is_generation and self.max_req_input_len is not None:
            max_len = min(max_len, self.max_req_input_len - 1)
    placeholders: Tuple[Any, ...] = ()
    if has_media and self.mm_processor is not None:
        tokens = getattr(self.mm_processor, "mm_tokens", None)
        placeholders = (
            self.model_config.image_token_id,
            getattr(tokens, "image_token_id", None),
            getattr(tokens, "video_token_id", None),
            getattr(tokens, "audio_token_id", None),
        )
    vocab_size = self.model_config.vocab_size
    return _check_token_ids(token_ids, name, vocab_size, max_len, placeholders)


def check_prompt(
    self, prompt: List[Any], name: str = "input_ids", has_media: bool = False
) -> Optional[str]:
    """What is wrong with a prompt, or a batch of them, None if nothing is.

    Args:
        prompt: token IDs, or a list of these for each prompt of a batch.
        name: what the request calls it.
        has_media: whether images, videos or audio come with it.
    """
    prompts = {name: prompt}
    if len(prompt) > 0 and isinstance(prompt[0], list):
        prompts = {f"{name}[{i}]": one for i, one in enumerate(prompt)}
    checked = set()
    for one, token_ids in prompts.items():
        if id(token_ids) in checked:
            continue  # One prompt, several samples.
        checked.add(id(token_ids))
        if token_ids is not prompt and not isinstance(token_ids, list):
            return f"{one} must be a list of integers, as {name}[0] is."
        error: Optional[str] = self.check_token_ids(token_ids, one, has_media)
        if error is not None:
            return error
    return None


def check_request(
    self, obj: Union[GenerateReqInput, EmbeddingReqInput]
) -> Optional[str]:
    """What forbids a request that cannot be answered, None if nothing does."""
    if getattr(obj, "return_prompt_token_ids", None) and getattr(
        obj, "session_params", None
    ):
        return (
            "return_prompt_token_ids is not supported with session_params: the "
            "prompt of a session is made by the scheduler."
        )
    if obj.input_ids is None:
        return None
    error: Optional[str] = self.check_prompt(
        obj.input_ids, has_media=obj.contains_mm_input()
    )
    return error


def check_session_request(
    self, obj: Union[GenerateReqInput, EmbeddingReqInput]
) -> Optional[str]:
    """What `check_request` says, unless the request's session has the prompt."""
    session = getattr(obj, "session_params", None)
    has_session = isinstance(session, dict) and session.get("id")
    asks_for_prompt = getattr(obj, "return_prompt_token_ids", None)
    if obj.input_ids == [] and has_session and not asks_for_prompt:
        return None
    error: Optional[str] = self.check_request(obj)
    return error


def _keep_prompt(
    state: Any, input_ids: Optional[List[int]], max_len: Optional[int]
) -> None:
    """Keep with the state of a request what its answers say about its prompt.

    Args:
        state: the request's.
        input_ids: the prompt, None if it is none of token IDs.
        max_len: what is longer is cut off by the scheduler (--allow-auto-truncate).
    """
    if input_ids is None:
        return
    if max_len is not None and len(input_ids) > max_len:
        input_ids = input_ids[:max_len]
    state.prompt_tokens = len(input_ids)
    if state.obj.return_prompt_token_ids:
        state.prompt_token_ids = input_ids


def _count_prompt(state: Any, input_ids: Any, max_len: Optional[int]) -> None:
    """Keep with the state of a request how many tokens of its prompt are prefilled.

    Args:
        state: the request's.
        input_ids: the prompt, None if it is none of token IDs.
        max_len: what is longer is cut off by the scheduler (--allow-auto-truncate).
    """
    if input_ids is not None:
        state.prompt_tokens = min(len(input_ids), max_len or len(input_ids))


def _add_prompt(state: Any, out: Dict[str, Any], is_stream: bool) -> None:
    """Put the prompt's IDs on an answer, in a stream on the first chunk only.

    From v0.5.13 on SGLang puts them on every chunk, uncut where the scheduler cuts
    them off. Where the scheduler makes the prompt longer, as for LLaVA's images, these
    are not the IDs that were prefilled: then there are none.
    """
    prompt = state.prompt_token_ids[: state.prompt_tokens]
    out.pop("prompt_token_ids", None)
    if len(prompt) == out["meta_info"]["prompt_tokens"]:
        out["prompt_token_ids"] = prompt
    if is_stream:
        state.prompt_token_ids = None
