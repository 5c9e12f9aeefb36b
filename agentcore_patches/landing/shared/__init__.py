"""Code that runs in several of SGLang's processes."""

from __future__ import annotations

from . import customized_info as customized_info
from . import request_ids as request_ids
