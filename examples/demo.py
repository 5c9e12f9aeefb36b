"""Show what patching changes: the same requests to an unpatched and a patched server.

    python examples/demo.py

Reverts the SGLang of this interpreter, starts it with the scripted model (on the CPU if
there is no GPU), sends the requests, applies the patches, and does the same again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

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
Next: .venv/bin/agentcore-patch serve --model scripted    a server to try things on
      .venv/bin/agentcore-patch docs tutorial             from here to a rollout
"""


@dataclass(frozen=True)
class Seen:
    """The responses of one server.

    Attributes:
        text: the cut answer.
        sampled: token IDs of the cut answer, None if the response has none.
        again: token IDs of its text, tokenized again.
        call: the streamed tool call.
        turn: token IDs of the whole first turn, None if the response has none.
        prompts: token IDs of the second turn's prompt, by the way of sending the first.
    """

    text: str
    sampled: Sequence[int] | None
    again: Sequence[int]
    call: Answer
    turn: Sequence[int] | None
    prompts: dict[str, Sequence[int]]


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
        show_verify(console)
        console.print(NEXT, end="", soft_wrap=True)
    except AgentcoreError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def seen(console: Console, name: str) -> Seen:
    with (
        tempfile.TemporaryDirectory(prefix="agentcore-demo-") as folder,
        console.status(f"starting {name}") as shown,
    ):
        server = Server(
            launching.server_options(
                launching.Launching(launching.SCRIPTED, reasoning_parser=""),
                log=Path(folder) / "server.log",
                notify=shown.update,
            )
        )
        try:
            server.start(
                lambda seconds, _: shown.update(f"starting {name}, {seconds:.0f} s")
            )
            shown.update(f"sending requests to {name}")
            return _ask(server)
        finally:
            server.stop()


def _ask(server: Server) -> Seen:
    cut = _chat(server, messages=line("emoji").messages, max_tokens=CUT)
    [choice] = cut.completions
    call = _chat(server, messages=line("tool").messages, tools=TOOLS, stream=True)
    first = line("reasoning_then_tool")
    thinking = _chat(server, messages=first.messages, tools=TOOLS)
    turn: list[int] | None = None
    prompts: dict[str, Sequence[int]] = {}
    if thinking.prompt_token_ids and thinking.completions[0].token_ids:
        turn = [*thinking.prompt_token_ids, *thinking.completions[0].token_ids]
        second = [*first.messages, *_history(thinking)]
        ways: dict[str, Json] = {
            "messages": {},
            "tokens": {"required_prefix_token_ids": turn},
        }
        for way, more in ways.items():
            answer = _chat(server, messages=second, tools=TOOLS, max_tokens=1, **more)
            prompts[way] = answer.prompt_token_ids or ()
    text = choice.content
    return Seen(text, choice.token_ids, _tokenized(server, text), call, turn, prompts)


def _chat(server: Server, **body: Any) -> Answer:
    body = {"temperature": 0, "max_tokens": 200, "logprobs": True, **body}
    return client.ask(server.base_url, **body)


def _history(answer: Answer) -> list[Json]:
    """The assistant's message as agents keep it, without its thinking, and a result."""
    message = message_of(answer.completions[0])
    message["content"] = message["content"].rpartition("</think>")[2].strip()
    [call] = message["tool_calls"]
    return [message, {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}]


def _tokenized(server: Server, text: str) -> list[int]:
    body = {"prompt": text, "add_special_tokens": False}
    tokens: list[int] = client.post(server.base_url + "/tokenize", body).json()[
        "tokens"
    ]
    return tokens


def show(console: Console, version: str, before: Seen, after: Seen) -> None:
    """Print the responses of both servers side by side, or raise ServerError."""
    if after.sampled is None or after.turn is None:
        raise ServerError("The patched server returned no token IDs.")
    table = Table(box=SIMPLE_HEAD, title_justify="left", padding=(0, 1, 0, 0))
    table.add_column("")
    table.add_column(f"SGLang {version}")
    table.add_column("after apply")
    table.add_row(
        f"answer cut at {CUT} tokens",
        _marked(before.again, after.sampled, "red"),
        _marked(after.sampled, before.again, "green"),
    )
    table.add_row(
        "",
        Text("the text, tokenized again", "dim"),
        Text("the sampled token IDs", "dim"),
    )
    total = len(after.call.completions[0].token_ids or ())
    table.add_row("", "", "")
    table.add_row(
        "streamed tool call",
        *(_received(one.call, total) for one in (before, after)),
    )
    table.add_row("", "", "")
    table.add_row(
        "second turn's prompt",
        _kept(after.turn, after.prompts["messages"]),
        _kept(after.turn, after.prompts["tokens"]),
    )
    table.add_row(
        "",
        Text("history sent as messages", "dim"),
        Text("required_prefix_token_ids", "dim"),
    )
    console.print(table)


def _marked(ids: Sequence[int], other: Sequence[int], colour: str) -> Text:
    """Colour the token IDs that differ from another sequence."""
    text = Text()
    for kind, start, end, *_ in SequenceMatcher(None, ids, other, False).get_opcodes():
        for token_id in ids[start:end]:
            text.append(f"{token_id} ", "" if kind == "equal" else f"bold {colour}")
    return text


def _received(answer: Answer, total: int) -> Text:
    """Count the token IDs and logprobs of a stream."""
    [choice] = answer.completions
    text = Text()
    for name, values in (("IDs", choice.token_ids), ("logprobs", choice.logprobs)):
        count = len(values or ())
        colour = "green" if count == total else "red"
        text.append(f"{count} of {total} {name}\n", f"bold {colour}")
    text.right_crop(1)
    return text


def _kept(turn: Sequence[int], prompt: Sequence[int]) -> Text:
    """Count the tokens of the first turn with which the second turn's prompt starts."""
    pairs = zip(turn, prompt, strict=False)
    same = next((i for i, (a, b) in enumerate(pairs) if a != b), len(turn))
    if same == len(turn):
        return Text(f"starts with all {same}\ntokens of the first turn", "bold green")
    return Text(
        f"leaves the first turn\nafter {same} of {len(turn)} tokens", "bold red"
    )


def show_verify(console: Console) -> None:
    """Run `verify`, and print one line about it; raise ServerError if a check fails."""
    command = [sys.executable, "-m", "agentcore_patches", "verify", "--json"]
    # Its progress is on stderr.
    ran = subprocess.run(
        [*command, "--model", launching.SCRIPTED], stdout=subprocess.PIPE, text=True
    )
    if ran.returncode:
        raise ServerError(f"verify failed: {ran.stdout}")
    report = json.loads(ran.stdout)
    outcomes = Counter(check["outcome"] for check in report["checks"])
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    console.print(f"[green]verify[/]: {counts} ({report['seconds']:.0f} s)\n")


if __name__ == "__main__":
    sys.exit(main())
