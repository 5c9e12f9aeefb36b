"""Images on vLLM's endpoint: `content_parts`, and `mm_placeholders` of responses.

The prompt has one placeholder for each image, as the chat template writes it. The
response repeats the prompt as it was prefilled, with a placeholder for each embedding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..http import images
from .bodies import BadRequest, is_off

if TYPE_CHECKING:
    from sglang.srt.managers.tokenizer_manager import TokenizerManager

    from ..http.answers import Json

_NAME = "content_parts"


def read(manager: TokenizerManager, parts: Json) -> list[str]:
    """Return the URLs of a request's images, in the order of their placeholders."""
    if is_off(parts):
        return []
    if not isinstance(parts, list):
        raise BadRequest(_NAME, f"{_NAME} must be a list of objects.")
    if manager.mm_processor is None:
        raise BadRequest(
            _NAME, f"{_NAME}: this model does not support images. Omit it."
        )
    return [_url(f"{_NAME}[{i}]", part) for i, part in enumerate(parts)]


def _url(place: str, part: Json) -> str:
    """Return the URL of an image: in `image_url` (OpenAI), or beside the type."""
    if not isinstance(part, dict) or part.get("type") != "image_url":
        raise BadRequest(
            _NAME,
            f'{place} must be an object with the type "image_url". Send videos and '
            "audio to /v1/chat/completions, with input_ids.",
        )
    image = part.get("image_url")
    if not isinstance(image, dict):
        image = {} if image is None else {"url": image}
    given = {**part, **image}
    del given["type"]
    given.pop("image_url", None)
    url = given.pop("url", None)
    if not isinstance(url, str) or not url:
        raise BadRequest(_NAME, f"{place} must have the image's url, a string.")
    for name, value in given.items():
        if not is_off(value) and (name, value) != ("detail", "auto"):
            raise BadRequest(_NAME, f"{place}: {name} is not supported. Omit it.")
    return url


def placeholders(
    manager: TokenizerManager, token_ids: list[int], count: int
) -> dict[str, Any] | None:
    """Return where the images are in a prompt.

    Returns: for "image", a list of `offset` and `length` in tokens; None if two images
        are adjacent, so that their boundary is unknown.
    """
    ranges = images.ranges_of(manager, token_ids)
    if len(ranges) != count:
        return None
    return {"image": [{"offset": start, "length": n} for start, n in ranges]}
