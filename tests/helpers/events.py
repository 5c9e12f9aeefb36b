"""Streams of server-sent events, as the landing modules see them."""

from __future__ import annotations

import asyncio
import json
from typing import Any


def event(data: str, kind: str = "x") -> str:
    return f"event: {kind}\ndata: {data}\n\n"


def data_of(event: str) -> Any:
    return json.loads(event.partition("data: ")[2])


def collected(lines: Any, n_lines: int = 100) -> list[str]:
    """Return the first lines of a stream, then close it."""

    async def collect() -> list[str]:
        found: list[str] = []
        async for line in lines:
            found.append(line)
            if len(found) == n_lines:
                break
        await lines.aclose()
        return found

    return asyncio.run(collect())
