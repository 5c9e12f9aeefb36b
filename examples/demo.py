"""Show what patching changes: the same requests to an unpatched and a patched server.

    python examples/demo.py

Reverts the SGLang of this interpreter, starts it with the scripted model (on the CPU if
there is no GPU), sends the requests, applies the patches, and does the same again.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from agentcore_patches import api
from agentcore_patches.errors import AgentcoreError, ServerError
from agentcore_verify import client, launching
from agentcore_verify.checks.prefix import message_of
from agentcore_verify.client import Answer, Json
from agentcore_verify.scripted_model import TOOLS, line
from agentcore_verify.server import Server

CUT = 8
"""Tokens of the first answer: it ends in the middle of an emoji."""

NEXT = """\
Next: .venv/bin/agentcore-patch verify --model scripted   check it, request by request
      .venv/bin/agentcore-patch serve --model scripted    a server to try things on
      .venv/bin/agentcore-patch docs tutorial             from here to a rollout
"""


@dataclass(frozen=True)
class Seen:
    """The responses of one server.

    Attributes:
        sampled: token IDs of the cut answer; none from an unpatched server.
        again: token IDs of its text, tokenized again.
        call: the streamed tool call.
        turn: token IDs of the whole first turn.
        as_messages: the second turn's prompt, if the history is sent as messages.
        as_prefix: the same, if the token IDs of the first turn are sent, too.
    """

    sampled: Sequence[int]
    again: Sequence[int]
    call: Answer
    turn: Sequence[int]
    as_messages: Sequence[int]
    as_prefix: Sequence[int]


def main() -> int:
    console = Console(highlight=False)
    try:
        with console.status("reverting the patches"):
            api.revert()
        before = seen(console, "SGLang without patches")
        with console.status("applying the patches"):
            applied = api.apply()
        after = seen(console, "SGLang with patches")
        show(console, applied.install.version, before, after)
        console.print(NEXT, end="", soft_wrap=True)
    except AgentcoreError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def seen(console: Console, name: str) -> Seen:
    with (
        tempfile.TemporaryDirectory(prefix="agentcore-demo-") as folder,
        console.status(f"starting {name}, and sending requests to it") as shown,
        Server(
            launching.server_options(
                launching.Launching(launching.SCRIPTED, reasoning_parser=""),
                log=Path(folder) / "server.log",
                notify=shown.update,
            )
        ) as server,
    ):
        return _ask(server.base_url)


def _ask(url: str) -> Seen:
    def chat(**body: Any) -> Answer:
        body = {"temperature": 0, "max_tokens": 200, "logprobs": True, **body}
        return client.ask(url, **body)

    cut = chat(messages=line("emoji").messages, max_tokens=CUT)
    text = {"prompt": cut.completions[0].content, "add_special_tokens": False}
    first = line("reasoning_then_tool").messages
    turn = chat(messages=first, tools=TOOLS)
    tokens = [*(turn.prompt_token_ids or ()), *(turn.completions[0].token_ids or ())]
    second = {"messages": [*first, *_history(turn)], "tools": TOOLS, "max_tokens": 1}
    return Seen(
        sampled=cut.completions[0].token_ids or (),
        again=client.post(f"{url}/tokenize", text).json()["tokens"],
        call=chat(messages=line("tool").messages, tools=TOOLS, stream=True),
        turn=tokens,
        as_messages=chat(**second).prompt_token_ids or (),
        as_prefix=chat(**second, required_prefix_token_ids=tokens).prompt_token_ids
        or (),
    )


def _history(answer: Answer) -> list[Json]:
    """The assistant's message as agents keep it, without its thinking, and a result."""
    message = message_of(answer.completions[0])
    message["content"] = message["content"].rpartition("</think>")[2].strip()
    [call] = message["tool_calls"]
    return [message, {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}]


def show(console: Console, version: str, before: Seen, after: Seen) -> None:
    """Print the responses of both servers side by side, or raise ServerError."""
    if not (after.sampled and after.turn):
        raise ServerError("The patched server returned no token IDs.")
    total = len(after.call.completions[0].token_ids or ())
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("")
    table.add_column(f"SGLang {version}", style="red")
    table.add_column("after apply", style="green", no_wrap=True)
    again, sampled = (" ".join(map(str, ids)) for ids in (before.again, after.sampled))
    table.add_row(f"answer cut at {CUT} tokens", again, sampled)
    table.add_row(
        "", "[dim]the text, tokenized again[/]\n", "[dim]the sampled token IDs[/]"
    )
    received = (_received(one.call, total) for one in (before, after))
    table.add_row("streamed tool call", *received)
    table.add_row(
        "second turn's prompt",
        f"{_kept(after.turn, after.as_messages)}\n[dim]history sent as messages[/]",
        f"{_kept(after.turn, after.as_prefix)}\n[dim]required_prefix_token_ids[/]",
    )
    console.print(table)


def _received(answer: Answer, total: int) -> str:
    """Count the token IDs and logprobs of a stream."""
    [choice] = answer.completions
    ids, logprobs = (len(got or ()) for got in (choice.token_ids, choice.logprobs))
    return f"{ids} of {total} IDs\n{logprobs} of {total} logprobs\n"


def _kept(turn: Sequence[int], prompt: Sequence[int]) -> str:
    """Count the tokens of the first turn with which the second turn's prompt starts."""
    pairs = zip(turn, prompt, strict=False)
    same = len([*takewhile(lambda pair: pair[0] == pair[1], pairs)])
    if same == len(turn):
        return f"starts with all {same}\ntokens of the first turn"
    return f"leaves the first turn\nafter {same} of {len(turn)} tokens"


if __name__ == "__main__":
    sys.exit(main())
