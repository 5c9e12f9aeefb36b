"""Defects for each check of `verify` to find."""

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
