"""The engine's answers whose logprobs are not as they should be."""

from __future__ import annotations

from typing import Any

BAD_LOGPROBS: list[dict[str, Any]] = [
    {"output_token_logprobs": [(None, 7, "a")]},
    {"output_token_logprobs": [(0, 7, "a")]},
    {"output_token_logprobs": [(-0.5, 7, "\ud83d")]},
    {
        "output_token_logprobs": [(-0.5, 7, "a"), (-0.5, 7, "a")],
        "output_top_logprobs": [[(-0.5, 7, "a")]],
    },
    {
        "output_token_logprobs": [(-0.5, 7, "a")],
        "output_top_logprobs": [None],
    },
]
NAN: dict[str, Any] = {"output_token_logprobs": [(float("nan"), 7, "a")]}
