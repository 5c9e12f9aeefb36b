"""Faults from outside: a system call of another process fails, or is its last."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

DRIVER = Path(__file__).with_name("driver.py")
PATHS = f"{DRIVER.parents[2]}:{DRIVER.parent}"
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "PYTHONPATH": PATHS,
    "PYTHONDONTWRITEBYTECODE": "1",
}

# Processors differ in which of these they have.
CHANGING = (
    *("write", "fsync", "ftruncate", "utimensat"),
    *("rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir"),
    *("mkdir", "mkdirat", "symlink", "symlinkat"),
    *("chmod", "fchmod", "fchmodat", "fchmodat2"),
    *("chown", "fchown", "lchown", "fchownat"),
)
READING = ("openat", "read", "readlink", "readlinkat", "flock")

_CALL = re.compile(r"^\d+\s+(\w+)\((.*)$")


@dataclass(frozen=True)
class Call:
    """The `number`th call of a kind that a command makes, counted from one."""

    kind: str
    number: int
    line: str

    @property
    def changes(self) -> bool:
        """Whether anything on the disk is another after the call."""
        return self.kind in CHANGING or "O_CREAT" in self.line


def require_strace() -> str:
    """The path of strace; without it these tests cannot be run, which is a failure."""
    strace = shutil.which("strace")
    assert strace, "The fault tests need strace (apt-get install strace)."
    return strace


def command(package: Path, action: str) -> list[str]:
    """The transactions alone, with an interpreter that starts fast."""
    return [sys.executable, "-S", str(DRIVER), str(package), action]


def calls(args: list[str], package: Path, log: Path) -> list[Call]:
    """Run a command to its end; the calls it makes on a package, in order."""
    kinds = ",".join(f"?{kind}" for kind in (*CHANGING, *READING))
    _strace(["-y", "-s", "300", "-o", str(log), "-e", f"trace={kinds}"], args)
    counts: Counter[str] = Counter()
    found = []
    for line in log.read_text(errors="replace").splitlines():
        if match := _CALL.match(line):
            kind, rest = match.groups()
            counts[kind] += 1
            if str(package) in rest:
                found.append(Call(kind, counts[kind], line))
    return found


def kill_at(call: Call, args: list[str]) -> None:
    """Run a command up to a call, which is not done any more."""
    ended = _inject(args, call.kind, f"signal=SIGKILL:when={call.number}")
    assert ended.returncode in (137, -9), (call, ended)


def fail_at(
    call: Call, error: str, args: list[str], *, for_good: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a command whose call fails; `for_good`: and every later one of its kind."""
    what = f"error={error}:when={call.number}{'+' if for_good else ''}"
    # Faster, but it misses signals.
    return _inject(args, call.kind, what, "--seccomp-bpf")


def _inject(
    args: list[str], kind: str, what: str, *options: str
) -> subprocess.CompletedProcess[str]:
    chosen = ["-o", "/dev/null", "-e", f"trace={kind}", "-e", f"inject={kind}:{what}"]
    return _strace([*options, *chosen], args)


def _strace(options: list[str], args: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [require_strace(), "-f", *options, *args],
        capture_output=True,
        text=True,
        timeout=60,
        env=ENVIRONMENT,
    )
