"""Chunks under --stream-output.

A chunk has only new token IDs. If several chunks queue up before their reader wakes up,
0.5.9 drops all but the last. From 0.5.10 on, SGLang merges queued chunks except for
`customized_info`; from 0.5.13 on, it merges that as well. `finish` in
`landing/ended_requests.py` handles the chunk of an abort.
"""

from __future__ import annotations

from agentcore_patches.edits import Insert
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import TOKENIZER_MANAGER

HOOKS: tuple[Hook, ...] = (
    Hook(
        "stream-output/merge-queued",
        "merge queued chunks: each has only its own token IDs and values",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager._wait_one_response",
            "if is_stream and $stream_output:\n"
            "    out = agentcore.http.stream_output.merge_queued(state)",
            after="out = state.out_list[-1]",
        ),
        since={
            "0.5.10": Insert(
                TOKENIZER_MANAGER,
                "TokenizerManager._wait_one_response",
                "if incremental_stream:\n"
                "    agentcore.http.stream_output.join_customized_info(out, out_list, state)",
                after="if incremental_stream and len(out_list) > 1: ...",
            ),
            "0.5.13": absent("SGLang joins all that is new in a chunk"),
        },
    ),
)
