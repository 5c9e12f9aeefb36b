"""The servers that the live tests run on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import pytest
import requests

from agentcore_patches.installs import install
from agentcore_patches.patches.releases import is_between
from agentcore_verify.server import Server
from tests.helpers.waiting import wait_until

MODES: dict[str, tuple[str, ...]] = {
    "default": (),
    "stream-output": ("--stream-output",),
    "stream-interval": ("--stream-interval", "4"),
    "two-workers": ("--tokenizer-worker-num", "2"),
    "two-workers-stream-output": ("--tokenizer-worker-num", "2", "--stream-output"),
    "reasoning": ("--reasoning-parser", "deepseek-r1"),
}
"""The modes of the server in which everything promised must hold."""

in_one_mode = pytest.mark.parametrize("mode", ["default"], indirect=True)
"""For tests of requests that are refused before a mode of the server matters."""

THROTTLE_FILE = "AGENTCORE_TEST_THROTTLE"
"""The environment variable with the file that slows a server down while it exists."""

# Appended to SGLang's sampler in the tests' copies of it: one engine step takes 15 ms while
# the file exists, so that a test can act in the middle of it.
THROTTLE = f"""

import os as _os, time as _time

_forward = Sampler.forward

def _throttled(self, *args, **kwargs):
    if _os.path.exists(_os.environ.get({THROTTLE_FILE!r}, "")):
        _time.sleep(0.015)
    return _forward(self, *args, **kwargs)

Sampler.forward = _throttled
"""

# Appended to SGLang's sampler in the tests' copies of it: a fifth of the tokens of a
# request with this temperature get no finite logprob. No other request has it.
NOT_FINITE = 0.0625
SPOIL = f"""

_finite = Sampler.forward

def _spoiled(self, logits_output, sampling_info, *args, **kwargs):
    token_ids = _finite(self, logits_output, sampling_info, *args, **kwargs)
    if logits_output.next_token_logprobs is not None:
        spoiled = sampling_info.temperatures.flatten() == {NOT_FINITE}
        spoiled &= token_ids % 5 == 4
        logits_output.next_token_logprobs[spoiled] = float("nan")
    return token_ids

Sampler.forward = _spoiled
"""

# Appended to SGLang's HTTP server in the tests' copies of it: which requests the
# tokenizer manager (of the worker that answers) still holds, with the adapters that it
# replaces, and how to drop the requests.
HELD_REQUESTS = """

@app.get("/held_requests")
async def _held_requests():
    manager = _global_state.tokenizer_manager
    adapters = vars(manager).get("adapter_changes", [])
    return [*manager.rid_to_state, *(name for name in adapters if adapters[name])]

@app.delete("/held_requests")
async def _forget_requests():
    _global_state.tokenizer_manager.rid_to_state.clear()
"""

# Appended to SGLang's routing in the tests' copies of it: SGLang's PyTorch version of a
# kernel that the CPU lacks.
NATIVE_ROUTING = """

TopK.forward_cpu = TopK.forward_native
"""

# Appended to SGLang's memory saver in the tests' copies of it, whose library needs CUDA:
# "released" memory is kept, and all code around it runs.
SAVES_NOTHING = """

class _OnCpu(_TorchMemorySaverAdapterNoop):
    enabled = True

_TorchMemorySaverAdapterReal = _OnCpu
"""

# Code that needs a GPU: NCCL between ranks, the recorder of experts (moved in 0.5.12),
# LoRA adapters, and the release of memory (moved in 0.5.13).
FOR_GPU = (
    "srt/distributed/parallel_state.py",
    "srt/layers/moe/routed_experts_capturer.py",
    "srt/state_capturer/base.py",
    "srt/lora/backend/torch_backend.py",
    "srt/managers/scheduler_update_weights_mixin.py",
    "srt/managers/scheduler_components/weight_updater.py",
)

# Their GPU code, and its replacement on the CPU.
ON_CPU = {
    "if use_pynccl and": "if use_pynccl and not _is_cpu and",
    "pin_memory=True": "pin_memory=False",
    ".pin_memory()": "",
    "torch.get_device_module()": 'torch.get_device_module("cpu")',
}


def run_on_cpu(package: Path) -> None:
    """Make GPU-only code in a copy of SGLang run on the CPU."""
    with (package / "srt/layers/moe/topk.py").open("a") as routing:
        routing.write(NATIVE_ROUTING)
    with (package / "srt/utils/torch_memory_saver_adapter.py").open("a") as saver:
        saver.write(SAVES_NOTHING)
    for path in map(package.joinpath, FOR_GPU):
        if path.exists():
            text = path.read_text()
            for on_gpu, on_cpu in ON_CPU.items():
                text = text.replace(on_gpu, on_cpu)
            path.write_text(text)


@dataclass(frozen=True)
class Trees:
    """Copies of SGLang side by side; each value is the folder that holds `sglang`."""

    vanilla: Path
    patched: Path


class Launch(Protocol):
    """Start a server on a tree; the context manager stops it."""

    def __call__(
        self,
        tree: Path,
        *args: str,
        env: Mapping[str, str] | None = None,
        model: Path | None = None,
        mirror_sampler: bool = True,
    ) -> Server: ...


def held(server: Server) -> list[str]:
    ids: list[str] = requests.get(f"{server.base_url}/held_requests", timeout=10).json()
    return ids


def held_requests(server: Server) -> list[str]:
    """Return the requests that a server still holds after time to drop them."""
    left: set[str] = set()

    def all_dropped() -> bool:
        # Each worker lists only its own requests, and any worker may answer.
        left.clear()
        left.update(*(held(server) for _ in range(8)))
        return not left

    with suppress(AssertionError):
        wait_until(all_dropped, 10)
    return sorted(left)


def wait_until_held(server: Server, *rids: str) -> None:
    """Wait until a server has sent these requests to its engine."""
    # Each worker lists only its own requests, and any worker may answer.
    seen: set[str] = set()

    def all_seen() -> bool:
        seen.update(held(server))
        return seen.issuperset(rids)

    wait_until(all_seen)


def streams_new_ids(server: Server) -> bool:
    """True if a chunk of `/generate` has only the IDs that are new since the last one."""
    names = {"--stream-output", "--incremental-streaming-output"}
    return not names.isdisjoint(server.options.args)


def arguments_of(release: str, args: Iterable[str]) -> tuple[str, ...]:
    """Return server arguments in a release's spelling: one was renamed."""
    names = {}
    if is_between(release, "0.5.20", ""):
        names["--stream-output"] = "--incremental-streaming-output"
    return tuple(names.get(arg, arg) for arg in args)


@cache
def release_of(python: Path) -> str:
    return install.find(python=python).require_release()
