"""Send requests with the official `openai` client; run by file path.

Reads {"base_url": ..., "api_key": ..., "requests": [chat completion bodies]} from
standard input and prints {"version": ..., "answers": [{"non-streaming": IDS,
"streaming": IDS}]}, where IDS is what the client read: a list of the IDs of the prompt
and of each choice, null where there are none. This package cannot be imported there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

NO_OPENAI = 77
"""Exit code if `openai` is not installed."""

# Parameters of the client's methods; everything else is sent as extra_body.
_PARAMETERS = {
    *("messages", "model", "temperature", "max_tokens", "tools", "n"),
    *("logprobs", "top_logprobs"),
}


def _read(client: Any, body: dict[str, Any]) -> dict[str, list[Any]]:
    known = {key: value for key, value in body.items() if key in _PARAMETERS}
    extra = {key: value for key, value in body.items() if key not in _PARAMETERS}
    whole = client.chat.completions.create(**known, extra_body=extra)
    ids: dict[int, list[int]] = {}
    prompt = None
    for chunk in client.chat.completions.create(**known, stream=True, extra_body=extra):
        prompt = prompt or getattr(chunk, "prompt_token_ids", None)
        for choice in chunk.choices:
            ids.setdefault(choice.index, [])
            ids[choice.index] += getattr(choice, "token_ids", None) or []
    return {
        "non-streaming": [
            getattr(whole, "prompt_token_ids", None),
            *(getattr(choice, "token_ids", None) for choice in whole.choices),
        ],
        "streaming": [prompt, *(ids[index] for index in sorted(ids))],
    }


def main() -> None:
    try:
        import openai
    except ImportError:
        raise SystemExit(NO_OPENAI) from None
    task = json.load(sys.stdin)
    client = openai.OpenAI(
        base_url=task["base_url"],
        api_key=task["api_key"] or "none",
        max_retries=0,
    )
    answers = [_read(client, body) for body in task["requests"]]
    json.dump({"version": openai.__version__, "answers": answers}, sys.stdout)


if __name__ == "__main__":
    # Python puts this file's folder first; openai must not import from it.
    _HERE = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != _HERE]
    main()
