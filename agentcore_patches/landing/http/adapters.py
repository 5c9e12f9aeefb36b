"""The LoRA adapter that a request's model name means; SGLang needs `base:adapter`."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from ..shared.decorators import wrapping

if TYPE_CHECKING:
    from sglang.srt.entrypoints.openai.protocol import ModelCard
    from sglang.srt.entrypoints.openai.serving_base import OpenAIServingBase
    from sglang.srt.managers.tokenizer_manager import TokenizerManager

    from .answers import Json


@wrapping
def by_name(
    resolve: Callable[..., Any],
    self: OpenAIServingBase,
    request_model: Json,
    explicit_lora_path: Json,
) -> Any:
    """Decorate `_resolve_lora_path`: the bare name of an adapter means the adapter.

    An adapter may have the served name, which then no longer means the base model.

    The decorated function raises:
        HTTPException: 404, the name is neither an adapter's nor the base model's;
            400, `lora_path` names no adapter.
    """
    from fastapi import HTTPException

    manager = self.tokenizer_manager
    # SGLang's unit tests pass mocks, which have every attribute.
    if manager.server_args.enable_lora is not True:
        return resolve(self, request_model, explicit_lora_path)
    adapter = resolve(self, request_model or "", None)
    # An adapter that SGLang has evicted is loaded again when it is used.
    known = manager.lora_ref_cache
    if adapter is None and explicit_lora_path:
        # A stream of /v1/responses would end without a word.
        if isinstance(explicit_lora_path, str) and explicit_lora_path not in known:
            raise HTTPException(
                HTTPStatus.BAD_REQUEST,
                f"lora_path {explicit_lora_path!r} is no loaded adapter.",
            )
        return explicit_lora_path
    name = request_model if adapter is None else adapter
    if name in known:
        return name
    if adapter is None and (not name or name in base_names(manager)):
        return None
    raise HTTPException(
        HTTPStatus.NOT_FOUND,
        f"The model {request_model!r} does not exist: see /v1/models.",
    )


def list_once(model_cards: list[ModelCard]) -> None:
    """Remove an adapter that has the served name from the list of models."""
    first = {card.id: card for card in reversed(model_cards)}
    model_cards[:] = reversed(first.values())


def base_names(manager: TokenizerManager) -> set[str]:
    """Return the names of the base model, which an update from disk renames.

    SGLang's clients write "default" if any model will do.
    """
    server_args = manager.server_args
    started = {server_args.served_model_name, manager.model_config.model_path}
    return {"default", manager.served_model_name, manager.model_path, *started}
