"""Bash that keeps its state between scripts, and knows the documents' paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.packaging.scratch import Ran, Scratch


@dataclass
class Shell:
    """Runs scripts one by one; each continues with the last one's folder and variables.

    `places` maps names in documents to functions that return the local ones. Scripts
    use the local names, and output shows the documents' names; nothing else changes.
    """

    scratch: Scratch
    places: Mapping[str, Callable[[], str]]
    last: Ran | None = None
    _used: dict[str, str] = field(default_factory=dict)

    def run(self, script: str) -> Ran:
        """Run a script; `$?` is the exit code of the last one."""
        state = self.scratch.folder / "state"
        code = self.last.code if self.last else 0
        ran = self.scratch.run(
            f"[ -f '{state}' ] && . '{state}'\n(exit {code})\n{self.here(script)}\n"
            f"code=$?; export -p > '{state}'; printf 'cd %q\\n' \"$PWD\" >> '{state}'\n"
            "exit $code",
            shell=("bash", "-c"),
        )
        out = ran.out
        for name, place in self._used.items():
            out = out.replace(place, name)
        self.last = Ran(ran.code, out)
        return self.last

    def here(self, text: str) -> str:
        """Replace the documents' paths in a text by local ones."""
        for name, place in self.places.items():
            if name in text:
                self._used[name] = place()
                text = text.replace(name, self._used[name])
        return text
