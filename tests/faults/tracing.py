"""Fault injection: a system call of another process fails, or kills it."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

DRIVER = Path(__file__).with_name("driver.py")
PATHS = f"{DRIVER.parents[2]}:{DRIVER.parent}"
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "PYTHONPATH": PATHS,
    "PYTHONDONTWRITEBYTECODE": "1",
}

# Not every processor architecture has all of these calls.
CHANGING = (
    *("write", "fsync", "ftruncate", "utimensat"),
    *("rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir"),
    *("mkdir", "mkdirat", "symlink", "symlinkat"),
    *("chmod", "fchmod", "fchmodat", "fchmodat2"),
    *("chown", "fchown", "lchown", "fchownat"),
)
READING = ("openat", "read", "readlink", "readlinkat", "flock")

_CALL = re.compile(r"^(?:\d+\s+)?(\w+)\((.*)$")


@dataclass(frozen=True)
class Call:
    """The `number`th call of this kind that a command makes, counted from one."""

    kind: str
    number: int
    line: str

    @property
    def changes(self) -> bool:
        """True if the call changes anything on the disk."""
        return self.kind in CHANGING or "O_CREAT" in self.line

    @property
    def paths(self) -> list[str]:
        """The files that the call names, or that its file descriptors are."""
        return re.findall('[<"](/[^>"]*)', self.line)


@dataclass(frozen=True)
class Ended:
    """The exit code of a command (negative: a signal) and what it printed."""

    returncode: int
    output: str


class _Starter:
    """A process of `driver.py` that forks commands, one at a time.

    It takes turns with strace, so both run on the same processor.
    """

    _processors = itertools.cycle(sorted(os.sched_getaffinity(0)))

    def __init__(self) -> None:
        self._processor = {next(self._processors)}
        self._process = subprocess.Popen(
            [sys.executable, str(DRIVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        os.sched_setaffinity(self._process.pid, self._processor)

    def run(self, package: Path, action: str, options: Sequence[str]) -> Ended:
        """Run a command under strace until it exits."""
        assert self._process.stdin and self._process.stdout
        with tempfile.NamedTemporaryFile(mode="r", errors="replace") as output:
            request = {"package": str(package), "action": action, "output": output.name}
            print(json.dumps(request), file=self._process.stdin, flush=True)
            child = int(self._process.stdout.readline())
            strace = subprocess.Popen(
                [require_strace(), "-p", str(child), *options],
                stderr=subprocess.PIPE,
                text=True,
            )
            os.sched_setaffinity(strace.pid, self._processor)
            assert strace.stderr
            attached = strace.stderr.readline()
            os.kill(child, signal.SIGCONT)
            returncode = int(self._process.stdout.readline())
            strace.communicate(timeout=60)
            assert attached.endswith("attached\n"), attached
            return Ended(returncode, output.read())


_idle: list[_Starter] = []


def _run(package: Path, action: str, options: Sequence[str]) -> Ended:
    # Each thread has its own starter.
    starter = _idle.pop() if _idle else _Starter()
    ended = starter.run(package, action, options)
    _idle.append(starter)
    return ended


def require_strace() -> str:
    """Return the path of strace; fail if it is not installed."""
    strace = shutil.which("strace")
    assert strace, "The fault tests need strace (apt-get install strace)."
    return strace


def command(package: Path, action: str) -> list[str]:
    """Return the command line that runs only a transaction."""
    return [sys.executable, "-S", str(DRIVER), str(package), action]


def start(*command: str | Path) -> subprocess.Popen[str]:
    """Start a program with pipes for its output and an empty environment."""
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


def calls(package: Path, action: str) -> list[Call]:
    """Run a command until it exits; return its calls on its package, in order."""
    kinds = ",".join(f"?{kind}" for kind in (*CHANGING, *READING))
    with tempfile.NamedTemporaryFile(mode="r", errors="replace") as log:
        tracing = ["-y", "-s", "300", "-o", log.name, "-e", f"trace={kinds}"]
        _run(package, action, tracing)
        lines = log.read().splitlines()
    counts: Counter[str] = Counter()
    found = []
    for line in lines:
        if match := _CALL.match(line):
            kind, rest = match.groups()
            counts[kind] += 1
            if str(package) in rest:
                found.append(Call(kind, counts[kind], line))
    return found


def kill_at(call: Call, package: Path, action: str) -> None:
    """Run a command and kill it just before a call."""
    ended = _inject(call, f"signal=SIGKILL:when={call.number}", package, action)
    assert ended.returncode == -signal.SIGKILL, (call, ended)


def fail_at(
    call: Call, error: str, package: Path, action: str, for_good: bool = False
) -> Ended:
    """Run a command whose call fails; `for_good`: all later ones of its kind, too."""
    when = f"{call.number}{'+' if for_good else ''}"
    return _inject(call, f"error={error}:when={when}", package, action)


def _inject(call: Call, what: str, package: Path, action: str) -> Ended:
    kind = call.kind
    injection = ["-e", f"trace={kind}", "-e", f"inject={kind}:{what}"]
    return _run(package, action, ["-o", "/dev/null", *injection])
