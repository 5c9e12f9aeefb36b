"""Requests and responses of vLLM's endpoints: their JSON, fields and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from ..http import request_fields

if TYPE_CHECKING:
    from fastapi import Request
    from sglang.srt.managers.tokenizer_manager import TokenizerManager

    from ..http.answers import Json

# vLLM's names for errors, by status.
_ERRORS = {
    404: "NotFoundError",
    500: "InternalServerError",
    501: "NotImplementedError",
    503: "ServiceUnavailableError",
}


class BadRequest(ValueError):
    """A request that cannot be served as it is; all code that reads one raises this.

    Attributes:
        field: the name of the request's field, None if the engine rejected the request.
        status: status of the HTTP response.
    """

    def __init__(self, field: str | None, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.field = field
        self.status = status


def is_off(value: Json) -> bool:
    """True if a field's value requests nothing, such as null or an empty list."""
    return value is None or value is False or (not value and not is_number(value))


def is_number(value: Json) -> bool:
    """True for an integer or a float of JSON."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def integer(name: str, value: Json, least: int, most: int) -> int:
    """Check an integer; 5.0 is 5, as in SGLang's own fields."""
    number: int = request_fields.as_integer(value)
    error = request_fields.find_range_error(name, number, least, most)
    if error is not None:
        raise BadRequest(name, error)
    return number


def flag(name: str, value: Json) -> bool:
    """Check a boolean; null is false."""
    if value not in (None, True, False) or is_number(value):
        raise BadRequest(name, f"{name} must be true or false.")
    return bool(value)


def in_vllm_order(manager: TokenizerManager, priority: int) -> int:
    """Translate a priority from or to vLLM, which serves the lowest one first."""
    is_same: bool = manager.server_args.schedule_low_priority_values_first
    return priority if is_same else -priority


def find_stop_reason(
    manager: TokenizerManager, ignores_eos: bool, meta_info: dict[str, Any]
) -> int | str | None:
    """Return the stop string or token ID that ended a choice; None for EOS.

    Args:
        ignores_eos: the request has `ignore_eos`; its EOS token is a stop token.
    """
    matched: int | str | None = (meta_info["finish_reason"] or {}).get("matched")
    eos = manager.tokenizer and manager.tokenizer.eos_token_id
    return None if matched == eos and not ignores_eos else matched


def json_response(content: Json, status: int = 200) -> Any:
    from fastapi import Response

    return Response(
        orjson.dumps(content), status_code=status, media_type="application/json"
    )


def error_response(error: ValueError) -> Any:
    """Write an error as vLLM does."""
    content = error_content(error)
    return json_response(content, content["error"]["code"])


def error_content(error: ValueError) -> dict[str, Any]:
    """Return the JSON object of an error, as vLLM has it; SGLang's errors are 400s."""
    if not isinstance(error, BadRequest):
        error = BadRequest(None, str(error))
    return {
        "error": {
            "message": str(error),
            "type": _ERRORS.get(error.status, "BadRequestError"),
            "param": error.field,
            "code": error.status,
        }
    }


async def read_json(request: Request) -> dict[str, Any]:
    """Read the JSON object in a request's body; an empty body has no fields."""
    body = await request.body()
    try:
        fields = orjson.loads(body) if body else {}
    except orjson.JSONDecodeError as error:
        raise BadRequest("body", f"The body is not valid JSON: {error}.") from None
    if not isinstance(fields, dict):
        raise BadRequest("body", "The body must be a JSON object.")
    return fields
