"""Which experts each token was routed to, for `token-ids` and in part for `tito`.

The engine has the experts of each choice, and answers say those of the first one. Up to
0.5.12 a request may get those of another one of its batch, or end the tokenizer manager;
up to 0.5.11 none of them begin where they should.
"""

from __future__ import annotations

from agentcore_patches.edits import (
    AddField,
    AddKeyword,
    Insert,
    RefuseField,
    Replace,
)
from agentcore_patches.patches.files import (
    IO_STRUCT,
    OUTPUT_PROCESSOR,
    PROTOCOL,
    SERVING_CHAT,
    SERVING_COMPLETIONS,
    TOKENIZER_MANAGER,
)
from agentcore_patches.patches.places import Place, absent

_CHAT = "OpenAIServingChat"
_COMPLETION = "OpenAIServingCompletion"
_START = "routed_experts_start_len: agentcore.routed_experts.StartLen = 0"
_NATIVE_START = "routed_experts_start_len: int = 0"
_UPSTREAM = "routed_experts_start_len, 0.5.12"
_CHOICE = (
    "routed_experts: Optional[str] = None\n"
    "routed_experts_start_len: Optional[int] = None"
)

# Also of `tito`, whose `return_meta_info` has them.
ENGINE_ROUTED_EXPERTS: tuple[Place, ...] = (
    Place(
        "routed-experts/before",
        "one for each request",
        {
            "0.5.8": Replace(
                OUTPUT_PROCESSOR,
                "SchedulerOutputProcessorMixin.stream_output_generation",
                "routed_experts = []",
                "routed_experts = [None] * (len(rids) - 1)",
            ),
            "0.5.13": absent("SGLang does it"),
        },
    ),
    Place(
        "routed-experts/after",
        "one for each request",
        {
            "0.5.8": Insert(
                OUTPUT_PROCESSOR,
                "SchedulerOutputProcessorMixin.stream_output_generation",
                "if routed_experts is not None and len(routed_experts) < len(rids):\n"
                "    routed_experts.append(None)",
                after="if req.return_routed_experts: ...",
            ),
            "0.5.13": absent("SGLang does it"),
        },
    ),
    Place(
        "routed-experts/start-of-batch",
        "each request of a batch has its start",
        {
            "0.5.8": AddKeyword(
                IO_STRUCT,
                "GenerateReqInput.__getitem__",
                "GenerateReqInput",
                "routed_experts_start_len=self.routed_experts_start_len",
            ),
            "0.5.12": absent("SGLang passes it"),
        },
        upstream=_UPSTREAM,
    ),
    Place(
        "routed-experts/take",
        "they begin where the request asked, and say so",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager._handle_batch_output",
            'if "routed_experts" in meta_info:\n'
            "    agentcore.routed_experts.take(self, state, meta_info)",
            after='if getattr(recv_obj, "routed_experts", None): ...',
        ),
    ),
    Place(
        "routed-experts/chat-request",
        "the experts of each token",
        {
            "0.5.8": AddField(
                PROTOCOL,
                "ChatCompletionRequest",
                "return_routed_experts: Optional[bool] = None",
            ),
            "0.5.9": absent("SGLang has the field"),
        },
    ),
    Place(
        "routed-experts/chat-start",
        "from which token on; null means 0",
        AddField(PROTOCOL, "ChatCompletionRequest", _START, native=_NATIVE_START),
        upstream=_UPSTREAM,
    ),
    Place(
        "routed-experts/ask-in-chat",
        "a start beyond the prompt is refused before a stream begins",
        Insert(
            SERVING_CHAT,
            f"{_CHAT}._convert_to_internal_request",
            "agentcore.routed_experts.ask(self, request, adapted_request)",
            before="return adapted_request, request",
        ),
        upstream=_UPSTREAM,
    ),
)

ROUTED_EXPERTS: tuple[Place, ...] = (
    *ENGINE_ROUTED_EXPERTS,
    Place(
        "routed-experts/completion-request",
        "the experts of each token",
        {
            "0.5.8": AddField(
                PROTOCOL,
                "CompletionRequest",
                "return_routed_experts: Optional[bool] = None",
            ),
            "0.5.9": absent("SGLang has the field"),
        },
    ),
    Place(
        "routed-experts/completion-start",
        "from which token on; null means 0",
        AddField(PROTOCOL, "CompletionRequest", _START, native=_NATIVE_START),
        upstream=_UPSTREAM,
    ),
    Place(
        "routed-experts/ask-in-completions",
        "a start beyond the prompt is refused before a stream begins",
        Insert(
            SERVING_COMPLETIONS,
            f"{_COMPLETION}._convert_to_internal_request",
            "agentcore.routed_experts.ask(self, request, adapted_request)",
            before="return adapted_request, request",
        ),
        upstream=_UPSTREAM,
    ),
    Place(
        "routed-experts/format",
        "a smaller type than int32",
        AddField(
            PROTOCOL,
            "ChatCompletionRequest",
            'routed_experts_format: Optional[Literal["npy"]] = None',
        ),
        also=("CompletionRequest",),
    ),
    Place(
        "routed-experts/choice",
        "the experts of this choice",
        AddField(PROTOCOL, "ChatCompletionResponseChoice", _CHOICE),
        also=("CompletionResponseChoice",),
    ),
    Place(
        "routed-experts/no-field-of-ours",
        "stamped lines would have the field twice",
        RefuseField(
            PROTOCOL,
            "ChatCompletionResponseStreamChoice",
            ("routed_experts", "routed_experts_start_len"),
        ),
        also=("CompletionResponseStreamChoice",),
    ),
)
