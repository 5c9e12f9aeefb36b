"""Launch a user's SGLang for `verify` and `serve`: model, device, parsers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
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


def server_options(
    model: str,
    *,
    log: Path,
    notify: Callable[[str], None],
    python: Path | None = None,
    sglang_dir: Path | None = None,
    package: Path | None = None,
    device: Device = "auto",
    tool_call_parser: str | None = None,
    reasoning_parser: str | None = None,
    server_args: tuple[str, ...] = (),
    startup_timeout: float = 600.0,
    mirror_sampler: bool = False,
) -> ServerOptions:
    """Return the options of a server; train the scripted model if it is requested.

    Args: as in `runner.Options` and in the result, and
        notify: called with a line about what takes long.
        package: the `sglang` package folder that is launched, if it is known: a model
            gets only parsers in it.
        tool_call_parser, reasoning_parser: empty: no parser.

    Raises:
        UsageError: there is no such model.
        ServerError: the scripted model could not be trained.
    """
    python = python or Path(executable)
    scripted = model == SCRIPTED
    if scripted:
        model = str(ensure_scripted_model(python, notify=notify))
        detected = SCRIPTED_PARSERS
    else:
        model = existing_model(model)
        detected = parsers.detect(python, model, package)
    on_cpu = device == "cpu" or (
        device == "auto"
        and option_value(server_args, "--device") is None
        and cpu.is_needed(python)
    )
    args: list[str] = []
    for name, asked, found in (
        ("--tool-call-parser", tool_call_parser, detected.tool_call),
        ("--reasoning-parser", reasoning_parser, detected.reasoning),
    ):
        value = found if asked is None else asked
        if value and option_value(server_args, name) is None:
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
        args=(*args, *server_args),
        cpu=on_cpu,
        mirror_sampler=mirror_sampler,
        env=env,
        pythonpath=(sglang_dir.resolve().parent,) if sglang_dir else (),
        startup_timeout=startup_timeout,
    )


def existing_model(model: str) -> str:
    """The model as it was given; UsageError if it is a path that does not exist."""
    path = expand_user(model)
    looks_like_path = model.startswith(("/", ".", "~")) or model.count("/") > 1
    if looks_like_path and not path.exists():
        raise UsageError(f"The model {path} does not exist.")
    return str(path) if path.exists() else model
