"""What tells a release from those beside it, where the edits alone would not.

All patches have these: an SGLang that states the number of another release is refused,
and not patched with forms that fit it and are wrong.
"""

from __future__ import annotations

from agentcore_patches.edits import Expect, RefuseField
from agentcore_patches.patches.files import (
    MULTI_TOKENIZER,
    PROTOCOL,
    SERVING_CHAT,
    TOKENIZER_MANAGER,
)
from agentcore_patches.patches.places import Place, absent

TELLTALES: tuple[Place, ...] = (
    Place(
        "telltales/abort-of-unknown",
        "from 0.5.14 on SGLang ignores an abort that comes late",
        {
            "0.5.8": absent("an abort that comes late is a KeyError"),
            "0.5.14": Expect(
                TOKENIZER_MANAGER,
                "TokenizerManager._handle_abort_req",
                "state = self.rid_to_state.get(recv_obj.rid)",
            ),
        },
    ),
    Place(
        "telltales/workers",
        "from 0.5.15 on a request knows its tokenizer worker",
        {
            "0.5.8": Expect(
                MULTI_TOKENIZER, "TokenizerWorker._attach_multi_http_worker_info"
            ),
            "0.5.15": absent("SGLang has no such method"),
        },
    ),
    Place(
        "telltales/token-ids",
        "in 0.5.17 alone SGLang calls them as we do",
        {
            "0.5.8": absent("SGLang gives no token IDs in chat"),
            "0.5.17": Expect(
                PROTOCOL,
                "ChatCompletionResponseChoice",
                "token_ids: Optional[List[int]] = None",
            ),
            "0.5.18": absent("SGLang calls them response_token_ids"),
        },
    ),
    Place(
        "telltales/bytes-of-id",
        "from 0.5.21 on the bytes of a logprob are those of its ID",
        {
            "0.5.8": Expect(SERVING_CHAT, "OpenAIServingChat._process_logprobs_tokens"),
            "0.5.21": absent("SGLang has no such method"),
        },
    ),
    Place(
        "telltales/reported-info",
        "from 0.5.23 on some of a sampler's values are not shown",
        {
            "0.5.8": RefuseField(
                TOKENIZER_MANAGER, "ReqState", ("customized_info_reported_keys",)
            ),
            "0.5.23": Expect(
                TOKENIZER_MANAGER, "ReqState", "customized_info_reported_keys: T = ..."
            ),
        },
    ),
)
