"""Shows the answers of a patched server: token IDs next to the text they decode to.

    python -m agentcore_verify.demo

Starts the SGLang of this interpreter with the scripted model (on the CPU if there is no
GPU), sends a plain, a tool-call and a streamed request, and ends the server.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from agentcore_patches.errors import AgentcoreError
from agentcore_verify import client, cpu
from agentcore_verify.client import Answer
from agentcore_verify.scripted_model import TOOLS, ensure_scripted_model, line
from agentcore_verify.server import Server, ServerOptions

REQUESTS: dict[str, client.Json] = {
    "a plain request": {"messages": line("plain").messages},
    "a request with tools": {"messages": line("tool").messages, "tools": list(TOOLS)},
    "a streamed request": {"messages": line("emoji").messages, "stream": True},
}


def main() -> int:
    """Run the demo; returns the exit code."""
    console = Console()
    python = Path(sys.executable)
    try:
        with console.status("preparing the scripted model (once, about 20 s)"):
            model = ensure_scripted_model(python)
        with tempfile.TemporaryDirectory(prefix="agentcore-demo-") as folder:
            server = Server(
                ServerOptions(
                    python=python,
                    model=model,
                    log=Path(folder) / "server.log",
                    args=("--tool-call-parser", "qwen25"),
                    cpu=cpu.is_needed(python),
                    env=cpu.TINY_MODEL_ENV,
                )
            )
            try:
                with console.status("starting SGLang"):
                    server.start()
                for title, body in REQUESTS.items():
                    show(console, server, title, body)
            finally:
                server.stop()
    except AgentcoreError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def show(console: Console, server: Server, title: str, body: client.Json) -> None:
    """Send a request and show the IDs and the text of its answer side by side."""
    answer = client.ask(
        server.base_url, **body, temperature=0, max_tokens=200, logprobs=True
    )
    [choice] = answer.completions
    if answer.prompt_token_ids is None or choice.token_ids is None:
        raise AgentcoreError(
            "The answer has no token IDs. Run `agentcore-patch apply` first."
        )
    table = Table(title=title, title_justify="left", box=SIMPLE, expand=True)
    table.add_column("")
    table.add_column("token IDs", ratio=1)
    table.add_column("the text they decode to", ratio=1)
    rows = {"prompt": answer.prompt_token_ids, **_completion(answer)}
    for name, ids in rows.items():
        table.add_row(name, " ".join(map(str, ids)), _text(server, ids))
    console.print(table)


def _completion(answer: Answer) -> dict[str, Sequence[int]]:
    """The IDs of the only choice; if it was streamed, by chunk."""
    [choice] = answer.completions
    if len(choice.pieces) == 1:
        return {"completion": choice.token_ids or ()}
    return {
        f"chunk {piece.position}": piece.token_ids
        for piece in choice.pieces
        if piece.token_ids
    }


def _text(server: Server, ids: Sequence[int]) -> str:
    response = client.post(server.base_url + "/detokenize", {"tokens": list(ids)})
    return str(response.json()["text"])


if __name__ == "__main__":
    sys.exit(main())
