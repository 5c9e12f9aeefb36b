"""Run a document: check that each fenced block works, or shows real output.

The language of a block says how it is run or checked:

    console   run each `$ command` with bash, in order, in one environment per document;
              lines below a command are its output. A command must exit with 0, except
              one before `echo $?`.
              `agentcore-patch serve --model scripted &` launches a server of the
              environment's SGLang on the CPU, which is the document's live server from
              then on. Before a document installs the package, it is a patched server
              that such documents share
    bash      run the whole block, which must exit with 0
    python    run the whole block as a file, likewise
    text      the output of the last run
    json      the same, as JSON
    dockerfile, yaml      an excerpt of one file in examples/

Any other block fails, including one without a language. A block in an HTML comment,
which readers do not see, is run like any other.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from agentcore_patches.errors import ServerError
from agentcore_verify import cpu
from agentcore_verify.launching import SCRIPTED, SCRIPTED_PARSERS
from agentcore_verify.server import Server, ServerOptions
from tests.helpers.forking import ForkedServer, ForkServer
from tests.packaging.comparing import is_excerpt, unlike, unlike_json
from tests.packaging.fences import Block, blocks, commands
from tests.packaging.scratch import Ran, Scratch

SERVE = f"agentcore-patch serve --model {SCRIPTED} &"
VERIFY = f"agentcore-patch verify --model {SCRIPTED}"
"""Run for the first of the documents that show it, all of which apply the core first."""
URL = "http://127.0.0.1:30000"


class Failed(Exception):
    """A block does not do what the document says."""


ERRORS = (Failed, ServerError, ValueError, subprocess.TimeoutExpired)


@dataclass
class Document:
    """A document, run block by block.

    `fork_server` starts the server of `model` that it launches. `places` maps names in documents
    to functions that return the local ones: scripts use the local names, and output
    shows the documents'. From document to document, `ran` remembers the run of `verify`.
    """

    scratch: Scratch
    tree: Path
    fork_server: ForkServer
    model: Path
    server: Callable[[], str]
    places: dict[str, Callable[[], str]]
    ran: dict[str, Ran]
    _launched: Server | None = None
    _used: dict[str, str] = field(default_factory=dict)
    _last: Ran = field(default_factory=lambda: Ran(0, ""))

    def __post_init__(self) -> None:
        self.places[URL] = lambda: self._url
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
                    raise Failed(f"nothing runs blocks of {block.language!r}")
                run(block)
            except ERRORS as error:
                found.append(f"row {block.row}: {error}")
        return found

    def _run_console(self, block: Block) -> None:
        if not block.text.startswith("$ "):
            raise Failed("a console block starts with `$ ` and a command")
        for (script, shown), (after, _) in pairwise([*commands(block.text), ("", "")]):
            ran = self._command(script)
            if ran.code and "$?" not in after:
                raise Failed(f"exit {ran.code}: {script}\n{ran.out}")
            if shown and (found := unlike(shown, ran.out)):
                raise Failed(f"{script}\n{found}")

    def _run_bash(self, block: Block) -> None:
        if (ran := self._shell(f"set -e\n{block.text}")).code:
            raise Failed(f"exit {ran.code}: {block.text}\n{ran.out}")

    def _run_python(self, block: Block) -> None:
        (self.scratch.folder / "block.py").write_text(self._here(block.text))
        self._run_bash(Block(block.row, "bash", "python block.py"))

    def _run_text(self, block: Block) -> None:
        if found := unlike(block.text, self._last.out):
            raise Failed(found)

    def _run_json(self, block: Block) -> None:
        shown, seen = json.loads(block.text), json.loads(self._last.out)
        if found := unlike_json(shown, seen):
            raise Failed(found)

    def _run_dockerfile(self, block: Block) -> None:
        files = [file for file in (self.tree / "examples").iterdir() if file.is_file()]
        if not any(is_excerpt(block.text, file.read_text()) for file in files):
            raise Failed("no file in examples/ has these lines")

    _run_yaml = _run_dockerfile

    def _command(self, script: str) -> Ran:
        if target := re.match(r"make ([\w-]+)", script):
            return self._make(target[1])
        if script.startswith(SERVE):
            if self.scratch.has_command("agentcore-patch"):
                self._launch()
            return Ran(0, "")
        if script.partition("#")[0].strip() != VERIFY:
            return self._shell(script)
        if VERIFY not in self.ran:
            self.ran[VERIFY] = self._shell(script)
        self._last = self.ran[VERIFY]
        return self._last

    def _shell(self, script: str) -> Ran:
        """Run a script with the last one's folder, variables and exit code."""
        state = self.scratch.folder / "state"
        ran = self.scratch.run(
            f"[ -f '{state}' ] && . '{state}'\n(exit {self._last.code})\n"
            f"{self._here(script)}\n"
            f"code=$?; export -p > '{state}'; printf 'cd %q\\n' \"$PWD\" >> '{state}'\n"
            "exit $code",
            shell=("bash", "-c"),
        )
        out = ran.out
        for name, place in self._used.items():
            out = out.replace(place, name)
        self._last = Ran(ran.code, out)
        return self._last

    def _here(self, text: str) -> str:
        """Replace the documents' paths in a text by local ones."""
        for name, place in self.places.items():
            if name in text:
                self._used[name] = place()
                text = text.replace(name, self._used[name])
        return text

    def _launch(self) -> None:
        """Launch a server like the document, but on another port and on the CPU."""
        if self._launched:
            raise Failed("a server is launched once")
        self._launched = ForkedServer(
            ServerOptions(
                python=self.scratch.python,
                model=self.model,
                log=self.scratch.folder / "server.log",
                args=("--tool-call-parser", SCRIPTED_PARSERS.tool_call or ""),
                cpu=True,
                pythonpath=(self.scratch.site,),
                env={**cpu.TINY_MODEL_ENV, **self.scratch.env},
            ),
            self.fork_server,
        )
        self._launched.start()

    def _make(self, target: str) -> Ran:
        """Run the demo; only check that any other target exists.

        Other targets run this suite, or read the sources.
        """
        if target == "demo":
            return self._shell("python examples/demo.py")
        # Make may run this suite, and passes its settings to child processes.
        apart = ["env", "-u", "MAKEFLAGS", "-u", "MAKELEVEL", "make", "--dry-run"]
        return Ran(subprocess.run([*apart, target], cwd=self.tree).returncode, "")

    @property
    def _url(self) -> str:
        return self._launched.base_url if self._launched else self.server()
