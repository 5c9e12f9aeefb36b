"""Find out where a Python interpreter would import SGLang from."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from agentcore_patches.disk.typed_json import parse, typed
from agentcore_patches.errors import UnsupportedTarget

_PROBE = """
import json, sys
{look}
sys.path[:] = [entry for entry in sys.path if entry]
print("\\nagentcore-patch:", json.dumps({{**look(), "search": sys.path}}))
"""
_PROBE_SECONDS = 60
_ANSWER = "agentcore-patch:"

_GIVE_AN_INTERPRETER = "Give --python an interpreter, such as /opt/venv/bin/python."


@dataclass(frozen=True)
class Look:
    """The `sglang` that an interpreter finds.

    Attributes:
        origin: the file of the first module or regular package; None if there is none.
        search: the search path.
    """

    origin: str | None
    search: tuple[str, ...]

    def __post_init__(self) -> None:
        if any("\0" in path for path in (self.origin or "", *self.search)):
            raise ValueError("not a path")


def look() -> dict[str, object]:
    """Find `sglang` without importing it. Other interpreters run this code as well."""
    import importlib.util

    try:
        spec = importlib.util.find_spec("sglang")
    except (AttributeError, ImportError, ValueError):
        spec = None
    return {"origin": spec and spec.origin}


def look_here() -> Look:
    # A program may have put other things there, which imports ignore.
    search = [str(one) for one in sys.path if isinstance(one, str)]
    return typed(Look, {**look(), "search": search})


def ask(python: Path) -> Look:
    import inspect
    import shutil
    import subprocess

    command = python if python.is_file() else shutil.which(python)
    if command is None:
        inside = python / "bin" / "python"
        advice = (
            f"Did you mean --python {inside}?"
            if inside.exists()
            else _GIVE_AN_INTERPRETER
        )
        raise UnsupportedTarget(f"There is no program {python}.", hint=advice)
    try:
        # In the root folder, so that it does not import from the current one; without
        # bytecode, so that the run leaves nothing behind.
        answer = subprocess.run(
            [
                *(Path(command).absolute(), "-B", "-c"),
                _PROBE.format(look=inspect.getsource(look)),
            ],
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
            check=True,
        )
        return _answer(answer.stdout)
    except subprocess.TimeoutExpired:
        raise UnsupportedTarget(
            f"{python} was asked where its SGLang is and did not answer within "
            f"{_PROBE_SECONDS} s.",
            hint="Give SGLang's package folder with --sglang-dir instead.",
        ) from None
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise UnsupportedTarget(
            f"{python} was asked where its SGLang is and failed with exit code "
            f"{error.returncode} ({last}).",
            hint="Give --python a Python 3 interpreter.",
        ) from None
    except OSError as error:
        raise UnsupportedTarget(
            f"Cannot run {python}: {error.strerror}.", hint=_GIVE_AN_INTERPRETER
        ) from None
    except ValueError:
        raise UnsupportedTarget(
            f"{python} is not a Python interpreter: it did not respond like one.",
            hint=_GIVE_AN_INTERPRETER,
        ) from None


def _answer(printed: str) -> Look:
    """Find the probe's answer in all that was printed, or raise ValueError."""
    lines = [line for line in printed.splitlines() if line.startswith(_ANSWER)]
    answer = parse(lines[-1].removeprefix(_ANSWER).encode()) if lines else None
    return typed(Look, answer)
