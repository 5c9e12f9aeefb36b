"""The official openai client reads the token IDs of every answer.

Its models keep unknown fields, so `token_ids` and `prompt_token_ids` are there with and
without streaming, with tools and with n > 1, and equal those that were sent. If not, a
trainer cannot use code written for the OpenAI API for its rollouts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from agentcore_verify import openai_script
from agentcore_verify.checks.registry import check
from agentcore_verify.results import Failed, Skipped
from agentcore_verify.subject import Subject

REQUESTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("plain", {}),
    ("tool", {"tools": True}),
    ("emoji", {"n": 2}),
)


@check(through_router=True)
def openai_client(subject: Subject) -> str:
    references = [
        subject.reference(question, **options) for question, options in REQUESTS
    ]
    task = {
        "base_url": f"{subject.base_url}/v1",
        "api_key": subject.api_key,
        "requests": [reply.body for reply in references],
    }
    version, read = _run(subject, task)
    for reply, answers in zip(references, read, strict=True):
        expected = {"prompt_token_ids": reply.prompt_ids} | {
            f"token_ids of choice {i}": reply.ids(i)
            for i in range(len(reply.completions))
        }
        for mode, answer in answers.items():
            for (name, sent), got in zip(expected.items(), answer, strict=False):
                message = f"openai {version}, {mode}: {name} differ from what the server sent."
                subject.assert_ids(message, "sent", sent, "read", got or [])
    return f"openai {version}: {2 * len(references)} answers"


def _run(subject: Subject, task: dict[str, Any]) -> tuple[str, Any]:
    """Run the client in the first interpreter that has it; return its version and result."""
    script = Path(openai_script.__file__)
    for python in dict.fromkeys(filter(None, [subject.python, Path(sys.executable)])):
        done = subprocess.run(
            [python, script],
            input=json.dumps(task),
            capture_output=True,
            text=True,
            env={**os.environ, "NO_PROXY": "*"},
        )
        if done.returncode == openai_script.NO_OPENAI:
            continue
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise Failed(f"The openai client of {python} failed: {last}")
        output = json.loads(done.stdout)
        return output["version"], output["answers"]
    raise Skipped(
        "The openai package is not installed.",
        advice=f"Install it: `{sys.executable} -m pip install openai`.",
    )
