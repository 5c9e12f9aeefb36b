"""Launch SGLang's server in the target interpreter.

Run by file path, with the arguments of `sglang.launch_server`:

    PYTHON probe.py --model-path ... --port ...

It differs from `python -m sglang.launch_server` in this:

- the server ends when its standard input ends, so that it never outlives the process
  that launched it;
- a tokenizer worker that is still importing is not killed as hung;
- if AGENTCORE_MIRROR_SAMPLER is set, the sampler copies every token ID into
  `customized_info`;
- the folder AGENTCORE_SCRATCH is removed at the end;
- if AGENTCORE_FORK is set, as it is without a GPU, the scheduler, the detokenizer and
  the tokenizer workers are forked from this process, which has imported SGLang already.

This package cannot be imported there: only the standard library and the dependencies of
SGLang may be used.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python puts this file's folder first; SGLang must not import from it.
    _HERE = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != _HERE]

import contextlib
import functools
import gc
import os
import shutil
import signal
import threading
from typing import Any

MIRROR_KEY = "mirrored_token_ids"
"""Key of `customized_info`, and so of `meta_info`, with the copied token IDs."""

FORK = "AGENTCORE_FORK"
MIRROR = "AGENTCORE_MIRROR_SAMPLER"
SCRATCH = "AGENTCORE_SCRATCH"
"""The environment variables that the text above explains."""

WORKER_PING_TIMEOUT = 120.0
"""Seconds a tokenizer worker may take to answer, since importing SGLang is slow."""

SHARED_MEMORY = Path("/dev/shm/sglang_*")
"""The pattern of the files that are SGLang's own shared memory."""


def end_with_stdin() -> None:
    """Kill this process and all its descendants as soon as standard input is closed.

    SGLang's shared memory, which it leaves when it is killed, is removed.
    """

    def wait() -> None:
        while os.read(0, 1024):
            pass
        import psutil

        # A worker that exits is replaced by a new one, which would not be killed.
        os.register_at_fork(after_in_child=lambda: os._exit(0))
        launcher = psutil.Process()
        children = launcher.children(recursive=True)
        # First, since SGLang may kill this process as soon as it misses one of them.
        for file in shared_memory_of([launcher, *children]):
            with contextlib.suppress(OSError):
                file.unlink()
        for child in children:
            # The resource tracker exits by itself, after freeing shared memory.
            with contextlib.suppress(psutil.Error):
                if "resource_tracker" not in " ".join(child.cmdline()):
                    child.kill()
        if scratch := os.environ.get(SCRATCH):
            shutil.rmtree(scratch, ignore_errors=True)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="end-with-stdin", daemon=True).start()


def shared_memory_of(processes: list[Any]) -> set[Path]:
    import psutil

    found = set()
    for process in processes:
        with contextlib.suppress(psutil.Error):
            found |= {Path(file.path) for file in process.open_files()}
    return {file for file in found if file.match(str(SHARED_MEMORY))}


def be_patient_with_workers() -> None:
    """Give tokenizer workers time to import before uvicorn kills them as hung."""
    from uvicorn.supervisors.multiprocess import Process

    ping = Process.ping

    @functools.wraps(ping)
    def patient_ping(self: Any, timeout: float = 5) -> bool:
        return bool(ping(self, max(timeout, WORKER_PING_TIMEOUT)))

    Process.ping = patient_ping


def run_mirroring_scheduler(server_args: Any, *args: Any, **kwargs: Any) -> Any:
    """Run SGLang's scheduler with a sampler that copies IDs into `customized_info`."""
    from sglang.srt.layers.sampler import Sampler, register_sampler_backend
    from sglang.srt.managers.scheduler import run_scheduler_process

    class MirrorSampler(Sampler):  # type: ignore[misc]
        def forward(self, logits_output: Any, *args: Any, **kwargs: Any) -> Any:
            token_ids = super().forward(logits_output, *args, **kwargs)
            logits_output.customized_info = {MIRROR_KEY: token_ids.tolist()}
            return token_ids

    register_sampler_backend(server_args.sampling_backend, MirrorSampler)
    return run_scheduler_process(server_args, *args, **kwargs)


def fork_processes() -> None:
    """Let SGLang fork its processes from this one.

    It would start an interpreter for each, and each would import everything again: most
    of what a start without a GPU costs. CUDA does not survive a fork.
    """
    import multiprocessing

    gc.disable()  # To look for garbage takes a seventh of the imports' time.
    import sglang.srt.entrypoints.http_server
    import sglang.srt.managers.scheduler  # noqa: F401  # Else it is imported after.
    import uvicorn._subprocess

    gc.freeze()  # No process needs to look at the imported objects.
    gc.enable()

    set_start_method = multiprocessing.set_start_method

    @functools.wraps(set_start_method)
    def set_fork(method: str | None, force: bool = False) -> None:
        set_start_method("fork" if method == "spawn" else method, force)

    multiprocessing.set_start_method = set_fork
    # The context with which uvicorn starts the tokenizer workers.
    uvicorn._subprocess.spawn = multiprocessing.get_context("fork")


def pin_no_memory() -> None:
    """Let `torch.tensor` ignore `pin_memory`, which fails without a GPU's driver.

    From v0.5.12 on SGLang asks for it on the CPU, too, for logprobs after a retraction.
    """
    import torch

    tensor = torch.tensor

    @functools.wraps(tensor)
    def unpinned(*args: Any, pin_memory: bool = False, **kwargs: Any) -> Any:
        return tensor(*args, **kwargs)

    torch.tensor = unpinned


def main(argv: list[str]) -> None:
    """Serve until standard input is closed."""
    end_with_stdin()
    if os.environ.get(FORK):
        fork_processes()
        pin_no_memory()
    from sglang.launch_server import run_server
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    server_args = prepare_server_args(argv)
    if server_args.tokenizer_worker_num > 1:
        be_patient_with_workers()
    try:
        if os.environ.get(MIRROR):
            from sglang.srt.entrypoints.http_server import launch_server

            launch_server(
                server_args, run_scheduler_process_func=run_mirroring_scheduler
            )
        else:
            run_server(server_args)
    finally:
        kill_process_tree(os.getpid(), include_parent=False)


if __name__ == "__main__":
    main(sys.argv[1:])
