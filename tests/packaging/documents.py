"""Run a document: check that each fenced block works, or shows real output.

The language of a block says how it is run or checked:

    console   run each `$ command` with bash, in order, in one environment per document;
              lines below a command are its output. A command must exit with 0, except
              the last one of a block with the word `exit=N`, or one before `echo $?`.
              `agentcore-patch serve ... &` or `python -m sglang.launch_server ... &`
              launches a server of the environment's SGLang on the CPU, which is the
              document's live server from then on. Before a document installs the
              package, `agentcore-patch serve --model scripted &` is a patched server
              that such documents share
    bash      run the whole block, which must exit with 0 (or `exit=N`)
    python    run the whole block as a file, likewise
    text      the output of the last run
    json request=PATH     send it to the live server, which must answer 200 (or
                          `status=N`); PATH is /v1/chat/completions by default
    json answer           the response to the last request
    json chunk            one event of the last response's stream; if it is missing, the
                          request is repeated, since a busy machine joins chunks
    json output           the output of the last run, as JSON
    dockerfile, yaml      an excerpt of one file in examples/; so is `bash excerpt`

Any other block fails, including one without a language. A block in an HTML comment,
which readers do not see, is run like any other.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agentcore_patches.errors import ServerError
from agentcore_verify import client, cpu
from agentcore_verify.client import Json
from agentcore_verify.launching import SCRIPTED, SCRIPTED_PARSERS
from agentcore_verify.server import Server, ServerOptions
from tests.helpers.forking import ForkedServer, ForkServer
from tests.packaging.comparing import unlike, unlike_excerpt, unlike_json
from tests.packaging.fences import Block, blocks, commands
from tests.packaging.scratch import Ran, Scratch
from tests.packaging.shell import Shell

CHAT = "/v1/chat/completions"
SERVE = "agentcore-patch serve "
SHARED = f"{SERVE}--model {SCRIPTED} &"
SERVED_WITH = ("--tool-call-parser", SCRIPTED_PARSERS.tool_call or "")
"""Options that `serve` adds for a server with the scripted model."""
TINY_MODEL = "Qwen/Qwen3-0.6B"
"""The model in documents in place of which the scripted one is served."""
STREAMS = 5
"""Attempts to get a stream with an event like the one that is shown."""


class Failed(Exception):
    """A block does not do what the document says."""


ERRORS = (
    Failed,
    client.ClientError,
    ServerError,
    ValueError,
    subprocess.TimeoutExpired,
)


@dataclass
class Document:
    """A document, run block by block.

    `fork_server` starts the server that it launches; `places` is for the `Shell` in which
    it is run. From document to document, `ran` remembers runs of `verify`.
    """

    scratch: Scratch
    tree: Path
    fork_server: ForkServer
    server: Callable[[], str]
    places: Mapping[str, Callable[[], str]]
    ran: dict[tuple[str, str], Ran]

    def __post_init__(self) -> None:
        places = {"http://127.0.0.1:30000": lambda: self._url, **self.places}
        self._shell = Shell(self.scratch, places)
        self._answer: list[Json] = []
        self._request: Callable[[], list[Json]] | None = None
        self._launched: Server | None = None
        (self.scratch.folder / "examples").symlink_to(self.tree / "examples")

    def stop(self) -> None:
        """Stop the server that the document launched."""
        if self._launched:
            self._launched.stop()

    def failures(self, markdown: str) -> list[str]:
        """Run all blocks; return the failure of each, by row."""
        found = []
        for block in blocks(markdown):
            run = getattr(self, f"_run_{block.language}", None)
            try:
                if run is None:
                    raise Failed(f"nothing runs blocks of the language {block.info!r}")
                run(block)
            except ERRORS as error:
                found.append(f"row {block.row}: {error}")
        return found

    def _run_console(self, block: Block) -> None:
        parts = list(commands(block.text))
        if not parts or not block.text.startswith("$ "):
            raise Failed("a console block starts with `$ ` and a command")
        following = [*[part.script for part in parts[1:]], ""]
        for command, after in zip(parts, following, strict=True):
            expected = block.words.get("exit", "0") if not after else "0"
            ran = self._command(command.script)
            if str(ran.code) != expected and "$?" not in after:
                raise Failed(f"exit {ran.code}: {command.script}\n{ran.out}")
            if command.shown and (found := unlike(command.shown, ran.out)):
                raise Failed(f"{command.script}\n{found}")

    def _run_bash(self, block: Block) -> None:
        if "excerpt" in block.words:
            self._run_dockerfile(block)
            return
        self._script(block, f"set -e\n{block.text}")

    def _run_python(self, block: Block) -> None:
        file = self.scratch.folder / "block.py"
        file.write_text(self._shell.here(block.text))
        self._script(block, "python block.py")

    def _script(self, block: Block, script: str) -> None:
        ran = self._shell.run(script)
        if str(ran.code) != block.words.get("exit", "0"):
            raise Failed(f"exit {ran.code}: {block.text}\n{ran.out}")

    def _run_text(self, block: Block) -> None:
        if found := unlike(block.text, self._output):
            raise Failed(found)

    def _run_json(self, block: Block) -> None:
        shown, words = json.loads(block.text), block.words
        if "request" in words:
            self._request = partial(self._ask, words["request"] or CHAT, shown, words)
            self._answer = self._request()
        elif "answer" in words:
            [seen] = self._answered()
            if found := unlike_json(shown, seen):
                raise Failed(found)
        elif "chunk" in words:
            self._check_event(shown)
        elif "output" in words:
            if found := unlike_json(shown, json.loads(self._output)):
                raise Failed(found)
        else:
            raise Failed("this JSON needs a word that says what it is")

    def _check_event(self, shown: Json) -> None:
        for attempt in range(STREAMS):
            if attempt and self._request:
                self._answer = self._request()
            found = [unlike_json(shown, event) for event in self._answered()]
            if not all(found):
                return
        raise Failed("\n".join(["no event is like this one:", *found]))

    def _run_dockerfile(self, block: Block) -> None:
        files = sorted((self.tree / "examples").iterdir())
        found = [unlike_excerpt(block.text, file.read_text()) for file in files]
        if all(found):
            raise Failed("no file in examples/ has these lines")

    _run_yaml = _run_dockerfile

    @property
    def _output(self) -> str:
        if self._shell.last is None:
            raise Failed("nothing was run before this")
        return self._shell.last.out

    def _command(self, script: str) -> Ran:
        if target := re.fullmatch(r"make ([\w-]+)\s*(#.*)?", script):
            return self._make(target[1])
        if script == SHARED and not self.scratch.has_command("agentcore-patch"):
            return Ran(0, "")
        if "sglang.launch_server" in script or re.match(rf"{SERVE}[^#]*&", script):
            return self._launch(script)
        if not script.startswith("agentcore-patch verify --model") or re.search(
            r"--(json|junit|svg|log)\b", script
        ):
            return self._shell.run(script)
        key = self._as_patched(script)
        if key not in self.ran:
            self.ran[key] = self._shell.run(script)
        self._shell.last = self.ran[key]
        return self.ran[key]

    def _as_patched(self, script: str) -> tuple[str, str]:
        """Return a command without its comment, and the patches that are in place."""
        status = self.scratch.run("agentcore-patch status --json")
        patches = json.loads(status.out).get("patches") if status.code == 0 else None
        return re.sub(r"\s+#.*", "", script), str(patches)

    def _launch(self, script: str) -> Ran:
        """Launch a server like the document, but on another port and on the CPU."""
        one_line = self._shell.here(script).replace("\\\n", " ")
        words = shlex.split(one_line, comments=True)
        told = argparse.ArgumentParser()
        told.add_argument("--model-path", "--model")
        told.add_argument("--port")
        serves = one_line.startswith(SERVE)
        start = serves or words[:3] == ["python", "-m", "sglang.launch_server"]
        known, rest = told.parse_known_args(words[2 if serves else 3 : -1])
        if not (start and known.model_path and words[-1] == "&") or self._launched:
            raise Failed(
                "a server is launched once, by `agentcore-patch serve --model ... &` or "
                "`python -m sglang.launch_server --model-path ... &`"
            )
        if serves:
            rest = [*SERVED_WITH, *(arg for arg in rest if arg != "--")]
        if known.model_path == SCRIPTED:
            known.model_path = self.places[TINY_MODEL]()
        self._launched = ForkedServer(
            ServerOptions(
                python=self.scratch.python,
                model=known.model_path,
                log=self.scratch.folder / "server.log",
                args=tuple(rest),
                cpu=True,
                pythonpath=(self.scratch.site,),
                env={**cpu.TINY_MODEL_ENV, **self.scratch.env},
            ),
            self.fork_server,
        )
        self._launched.start()
        return Ran(0, "")

    def _make(self, target: str) -> Ran:
        """Run the commands of a target in the existing environment.

        For targets that run this suite or read the sources, only check that their
        programs exist.
        """
        ready = ("--old-file=.venv/.ready", "--old-file=build/lowest/.ready")
        told = subprocess.run(
            ["make", "--dry-run", *ready, target],
            cwd=self.tree,
            # Make may run this suite, and passes its settings to child processes.
            env={k: v for k, v in os.environ.items() if not k.startswith("MAKE")},
            capture_output=True,
            text=True,
        )
        ran = Ran(told.returncode, told.stdout + told.stderr)
        for script in told.stdout.splitlines() if target == "demo" else ():
            ran = self._command(script.replace(".venv/bin/", ""))
            if ran.code:
                break
        for program in re.findall(r"^\.venv/bin/(\S+)", told.stdout, re.MULTILINE):
            if not Path(sys.executable).with_name(program).exists():
                raise Failed(f"make {target} runs {program}, which is missing")
        return ran

    @property
    def _url(self) -> str:
        return self._launched.base_url if self._launched else self.server()

    def _ask(self, path: str, body: Json, words: Mapping[str, str]) -> list[Json]:
        """Send a request; return the response object, or the events of a stream."""
        url = self._url + path
        try:
            with client.post(url, body) as response:
                text = response.content.decode()
        except client.HttpError as error:
            if str(error.status) != words.get("status", "200"):
                raise
            return [json.loads(error.body)]
        if "status" in words:
            raise Failed(f"answered with 200, not {words['status']}")
        if not body.get("stream"):
            return [json.loads(text)]
        data = re.findall(r"^data: (\{.*\})$", text, re.MULTILINE)
        return [json.loads(event) for event in data]

    def _answered(self) -> list[Json]:
        if not self._answer:
            raise Failed("nothing was asked before this")
        return self._answer
