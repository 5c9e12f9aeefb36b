"""Bash that goes on where it ended, and knows the names that documents use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.packaging.scratch import Ran, Scratch


@dataclass
class Shell:
    """Runs scripts one by one: each in the folder and with the variables of the last.

    `places` are names in documents, and what gives those that stand for them here.
    Nothing else is changed in a script; in its output they get their names back.
    """

    scratch: Scratch
    places: Mapping[str, Callable[[], str]]
    last: Ran | None = None
    _used: dict[str, str] = field(default_factory=dict)

    def run(self, script: str) -> Ran:
        """Run a script, which finds the exit code of the last one in `$?`."""
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
        """A text with what stands for the names in it."""
        for name, place in self.places.items():
            if name in text:
                self._used[name] = place()
                text = text.replace(name, self._used[name])
        return text
