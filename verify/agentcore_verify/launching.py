"""Launch a user's SGLang for `verify` and `serve`: model, device, parsers."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from sys import executable
from typing import Literal, TypeAlias

from agentcore_patches.errors import UsageError
from agentcore_patches.installs.install import expand_user

from . import cpu, parsers
from .parsers import Parsers
from .scripted_model import ensure_scripted_model
from .server import ServerOptions, option_value

Device: TypeAlias = Literal["auto", "cuda", "cpu"]

SCRIPTED = "scripted"
SCRIPTED_PARSERS = Parsers("qwen", "deepseek-r1")


@dataclass(frozen=True)
class Launching:
    """Options for launching a user's SGLang, as the commands explain them.

    A parser that is None is detected from the model; an empty one is none.
    """

    model: str | None = None
    python: Path | None = None
    sglang_dir: Path | None = None
    device: Device = "auto"
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    server_args: tuple[str, ...] = ()
    startup_timeout: float = 600.0


@contextmanager
def temporary_log(command: str, kept_after: type[BaseException]) -> Iterator[Path]:
    """Yield a file for a server's output; an error removes it, unless it is this one."""
    handle, name = tempfile.mkstemp(prefix=f"agentcore-{command}-", suffix=".log")
    os.close(handle)
    log = Path(name)
    try:
        yield log
    except BaseException as error:
        if not (isinstance(error, kept_after) and log.stat().st_size):
            log.unlink(missing_ok=True)
        raise


def server_options(
    options: Launching,
    *,
    log: Path,
    notify: Callable[[str], None],
    package: Path | None = None,
    mirror_sampler: bool = False,
) -> ServerOptions:
    """Return the options of a server; train the scripted model if it is requested.

    Args: as in the result, and
        notify: called with a line about what takes long.
        package: the `sglang` package folder that is launched, if it is known: a model
            gets only parsers in it.

    Raises:
        UsageError: there is no such model.
        ServerError: the scripted model could not be trained.
    """
    python = options.python or Path(executable)
    model = str(options.model)
    scripted = model == SCRIPTED
    if scripted:
        model = str(ensure_scripted_model(python, notify=notify))
        detected = SCRIPTED_PARSERS
    else:
        path = expand_user(model)
        looks_like_path = model.startswith(("/", ".", "~")) or model.count("/") > 1
        if looks_like_path and not path.exists():
            raise UsageError(f"The model {path} does not exist.")
        model = str(path) if path.exists() else model
        detected = parsers.detect(python, model, package)
    on_cpu = options.device == "cpu" or (
        options.device == "auto"
        and option_value(options.server_args, "--device") is None
        and cpu.is_needed(python)
    )
    args: list[str] = []
    for name, asked, found in (
        ("--tool-call-parser", options.tool_call_parser, detected.tool_call),
        ("--reasoning-parser", options.reasoning_parser, detected.reasoning),
    ):
        value = found if asked is None else asked
        if value and option_value(options.server_args, name) is None:
            args += [name, value]
    env: Mapping[str, str] = {}
    if scripted and on_cpu:
        env = cpu.TINY_MODEL_ENV
    elif not Path(model).is_dir():
        env = {"HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "0")}
    return ServerOptions(
        python=python,
        model=model,
        log=log,
        args=(*args, *options.server_args),
        cpu=on_cpu,
        mirror_sampler=mirror_sampler,
        env=env,
        pythonpath=(options.sglang_dir.resolve().parent,) if options.sglang_dir else (),
        startup_timeout=options.startup_timeout,
    )
