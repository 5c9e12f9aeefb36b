"""Edits that more than one patch is made of; listed by two, they are made once."""

from __future__ import annotations

from agentcore_patches.edits import AddField, AddKeyword, Edit, Graft, Insert, Replace
from agentcore_patches.grafts.fast_answers import (
    _dump_numbers,
    _prepare_for_orjson,
    _write_answer,
)
from agentcore_patches.grafts.stream_output import _merge_queued_chunks
from agentcore_patches.patches._files import (
    IO_STRUCT,
    PROTOCOL,
    SERVING_BASE,
    TOKENIZER_MANAGER,
)

# The IDs of the prompt, taken once, where a request and its tokenized form meet: only
# there are they known whatever way the prompt came (text, IDs, images).
PROMPT_TOKEN_IDS: tuple[Edit, ...] = (
    *(
        edit
        for request, n_calls in (("GenerateReqInput", 1), ("EmbeddingReqInput", 2))
        for edit in (
            AddField(
                IO_STRUCT,
                request,
                "return_prompt_token_ids: bool = False",
                note="whether to return the token IDs of the prompt",
            ),
            AddKeyword(
                IO_STRUCT,
                f"{request}.__getitem__",
                request,
                "return_prompt_token_ids=self.return_prompt_token_ids",
                each=n_calls,
            ),
        )
    ),
    AddField(
        TOKENIZER_MANAGER,
        "ReqState",
        "prompt_token_ids: Optional[List[int]] = None",
        note="the prompt that the engine prefills, if the request asks for it",
    ),
    Insert(
        TOKENIZER_MANAGER,
        "TokenizerManager._send_one_request",
        "if obj.return_prompt_token_ids and tokenized_obj.input_ids is not None:\n"
        "    n_taken = self.max_req_input_len\n"
        "    state.prompt_token_ids = tokenized_obj.input_ids[:n_taken]",
        after="state = self.req_state_class(...)",
        note="what is longer is cut off (--allow-auto-truncate)",
    ),
    Insert(
        TOKENIZER_MANAGER,
        "TokenizerManager._send_batch_request",
        "if tmp_obj.return_prompt_token_ids and tokenized_obj.input_ids is not None:\n"
        "    n_taken = self.max_req_input_len\n"
        "    state.prompt_token_ids = tokenized_obj.input_ids[:n_taken]",
        after="state = self.req_state_class(...)",
        note="what is longer is cut off (--allow-auto-truncate)",
    ),
    Insert(
        TOKENIZER_MANAGER,
        "TokenizerManager._handle_batch_output",
        "if state.prompt_token_ids is not None:\n"
        '    out_dict["prompt_token_ids"] = state.prompt_token_ids',
        before="state.finished = recv_obj.finished_reasons[i] is not None",
        note="return_prompt_token_ids",
    ),
    Insert(
        TOKENIZER_MANAGER,
        "TokenizerManager._handle_abort_req",
        "if state.prompt_token_ids is not None:\n"
        '    out["prompt_token_ids"] = state.prompt_token_ids\n'
        '    meta_info["prompt_tokens"] = len(state.prompt_token_ids)',
        before="state.out_list.append(out)",
        note="without prompt_tokens a chat answer fails",
    ),
)

# The prompt's IDs on each choice of a whole answer.
CHOICE_PROMPT_TOKEN_IDS: tuple[Edit, ...] = (
    AddField(
        PROTOCOL,
        "ChatCompletionResponseChoice",
        "prompt_token_ids: Optional[List[int]] = None",
        note="return_prompt_token_ids, or return_token_ids if it is true",
    ),
    Insert(
        PROTOCOL,
        "ChatCompletionResponseChoice._serialize",
        'if self.prompt_token_ids is None:\n    data.pop("prompt_token_ids", None)',
        before="return data",
    ),
)

# Under --stream-output a chunk has only the new IDs, and v0.5.9 drops all but the last
# of the chunks that queue up before their consumer wakes, and repeats an ID on abort.
WHOLE_STREAM_OUTPUT: tuple[Edit, ...] = (
    Graft(
        TOKENIZER_MANAGER,
        "ReqState",
        _merge_queued_chunks,
        note="no queued chunk is dropped under --stream-output",
    ),
    AddField(
        TOKENIZER_MANAGER,
        "ReqState",
        "customized_info: Dict[str, List[Any]] = dataclasses.field(default_factory=dict)",
        note="per-token metadata of a custom sampler",
    ),
    Insert(
        TOKENIZER_MANAGER,
        "TokenizerManager._wait_one_response",
        "if self.server_args.stream_output and is_stream:\n"
        "    out = _merge_queued_chunks(state.out_list, state.customized_info)",
        after="out = state.out_list[-1]",
        note="each queued chunk has IDs of its own",
    ),
    Replace(
        TOKENIZER_MANAGER,
        "TokenizerManager._handle_abort_req",
        "output_ids = [output_ids[-1]] if len(output_ids) > 0 else []",
        "output_ids = [] if self.server_args.stream_output else output_ids.copy()",
        note="the last ID was handed on before the abort",
    ),
)

# FastAPI's encoder takes a microsecond and a half for each token ID.
_WHOLE_ANSWERS = "whole answers without FastAPI's encoder"
ANSWER_BY_ORJSON: tuple[Edit, ...] = (
    *(
        Graft(SERVING_BASE, "OpenAIServingBase", function, note=_WHOLE_ANSWERS)
        for function in (_dump_numbers, _prepare_for_orjson, _write_answer)
    ),
    Replace(
        SERVING_BASE,
        "OpenAIServingBase.handle_request",
        "return await self._handle_non_streaming_request(ADAPTED, PROCESSED, RAW)",
        "return _write_answer(\n"
        "    await self._handle_non_streaming_request(\n"
        "        ADAPTED, PROCESSED, RAW\n"
        "    )\n"
        ")",
        note=_WHOLE_ANSWERS,
    ),
)
