"""Guards against crashes and hangs of SGLang that change no token."""

from __future__ import annotations

from . import guards as guards
from . import memory as memory
