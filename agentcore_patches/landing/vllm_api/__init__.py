"""vLLM's token-in, token-out endpoints."""

from __future__ import annotations

from ..http import traces
from . import admin as admin
from . import fields as fields
from . import generate as generate
from . import salts as salts

traces.ENDS.append(fields.stop_reason)
