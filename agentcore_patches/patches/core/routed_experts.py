"""Routed experts of each token.

The engine has the experts of each choice, but stock responses contain only those of the
first choice. Up to 0.5.11, the start is ignored.
"""

from __future__ import annotations

from agentcore_patches.edits import (
    AddField,
    Insert,
)
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import (
    PROTOCOL,
    TOKENIZER_MANAGER,
)

_UPSTREAM = "routed_experts_start_len, 0.5.12"
_CHOICE = (
    "routed_experts: Optional[str] = None\n"
    "routed_experts_start_len: Optional[int] = None"
)

HOOKS: tuple[Hook, ...] = (
    Hook(
        "routed-experts/take",
        "cut the experts to the requested start, and report the start",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager._handle_batch_output",
            'if "routed_experts" in meta_info:\n'
            "    agentcore.http.routed_experts.add_to_output(self, state, meta_info)",
            after='if getattr(recv_obj, "routed_experts", None): ...',
        ),
    ),
    Hook(
        "routed-experts/request",
        "return the routed experts of each token",
        AddField(
            PROTOCOL,
            "ChatCompletionRequest",
            "return_routed_experts: Optional[bool] = None",
        ),
        since={
            "0.5.9": absent("SGLang has the field"),
        },
        upstream="PR 17434",
        also=("CompletionRequest",),
    ),
    Hook(
        "routed-experts/start",
        "return experts from this token on; null counts as 0",
        AddField(
            PROTOCOL,
            "ChatCompletionRequest",
            "routed_experts_start_len: agentcore.http.routed_experts.StartLen = 0",
            native="routed_experts_start_len: int = 0",
        ),
        upstream=_UPSTREAM,
        also=("CompletionRequest",),
    ),
    Hook(
        "routed-experts/format",
        "return experts as npy of a smaller type than int32",
        AddField(
            PROTOCOL,
            "ChatCompletionRequest",
            'routed_experts_format: Optional[Literal["npy"]] = None',
        ),
        also=("CompletionRequest",),
    ),
    Hook(
        "routed-experts/choice",
        "hold the routed experts of this choice",
        AddField(PROTOCOL, "ChatCompletionResponseChoice", _CHOICE),
        also=("CompletionResponseChoice",),
    ),
)
