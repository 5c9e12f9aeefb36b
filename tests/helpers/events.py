"""Streams of server-sent events, as what lands in SGLang sees them."""

from __future__ import annotations

import asyncio
import json
from typing import Any


def event(data: str, kind: str = "x") -> str:
    return f"event: {kind}\ndata: {data}\n\n"


def data_of(event: str) -> Any:
    return json.loads(event.partition("data: ")[2])


def collected(lines: Any, n_lines: int = 100) -> list[str]:
    """The first lines of a stream, which is closed then."""

    async def collect() -> list[str]:
        found: list[str] = []
        async for line in lines:
            found.append(line)
            if len(found) == n_lines:
                break
        await lines.aclose()
        return found

    return asyncio.run(collect())
