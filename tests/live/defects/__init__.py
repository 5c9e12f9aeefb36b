"""Defects that the checks of `verify` must find."""

from tests.live.defects import conditions, special_requests, traces
from tests.live.defects.planting import PLANTED, ChatStream, Planted

__all__ = [
    "PLANTED",
    "ChatStream",
    "Planted",
    "conditions",
    "special_requests",
    "traces",
]
