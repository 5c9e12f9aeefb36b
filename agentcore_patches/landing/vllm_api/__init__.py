"""vLLM's token-in, token-out endpoints."""

from __future__ import annotations

from .. import traces
from . import admin as admin
from . import fields as fields
from . import generate as generate

traces.ENDS.append(fields.stop_reason)
