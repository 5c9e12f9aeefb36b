"""Calls of TRL's `VLLMClient`, and what each returns.

The client needs vLLM only to transfer weights. Empty modules replace it here.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

STAND_INS = (
    *("vllm", "vllm.sampling_params", "vllm.utils", "vllm.utils.network_utils"),
    *("vllm.distributed", "vllm.distributed.weight_transfer"),
    "vllm.distributed.weight_transfer.nccl_common",
    "vllm.distributed.weight_transfer.packed_tensor",
)

for name in STAND_INS:
    module: Any = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    module.__path__ = []
    module.__version__ = "0.31.0"
    # Every other name exists, and is None.
    module.__getattr__ = {}.get
    sys.modules[name] = module

from trl.generation.vllm_client import VLLMClient  # noqa: E402


def _error(call: Any, *args: Any, **kwargs: Any) -> str:
    try:
        call(*args, **kwargs)
    except Exception as error:
        return str(error)
    raise AssertionError("the call did not fail")


def read(task: dict[str, Any]) -> dict[str, Any]:
    client = VLLMClient(base_url=task["base_url"])
    # TRL's own defaults are top_k 0 and logprobs 0.
    defaults: Any = {"temperature": 0.0, "max_tokens": 400}
    sampling: Any = {**defaults, "top_k": -1, "logprobs": 1}
    prompts, messages, tools = task["prompts"], task["messages"], task["tools"]
    rendered: Any = {"generation_kwargs": {"tool_choice": "auto"}}
    client.reset_prefix_cache()
    return {
        "model": client.model,
        "world": client.get_world_size(),
        "generate": client.generate(prompts, **sampling),
        "defaults": client.generate(prompts, **defaults),
        "two": client.generate(prompts, n=2, **sampling | {"logprobs": 3}),
        "without": client.generate(prompts, **sampling | {"logprobs": None}),
        "chat": client.chat(messages, **defaults),
        "tools": client.chat(messages, tools=tools, **sampling),
        "rendered": client.chat(messages, tools=tools, **rendered, **sampling),
        "weights": _error(client.init_communicator, device="cpu"),
    }
