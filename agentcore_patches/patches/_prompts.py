"""The IDs of prompts, kept for answers and checked in requests; all patches' edits."""

from __future__ import annotations

from agentcore_patches.edits import AddField, AddKeyword, Edit, Graft, Insert, Replace
from agentcore_patches.grafts.prompt import (
    _add_prompt,
    _check_token_ids,
    _count_prompt,
    _keep_prompt,
    check_prompt,
    check_request,
    check_session_request,
    check_token_ids,
)
from agentcore_patches.grafts.token_in import _validate_input_ids
from agentcore_patches.patches._files import (
    HTTP_SERVER,
    IO_STRUCT,
    PROTOCOL,
    REQUEST_LOGGER,
    SERVING_CHAT,
    SERVING_COMPLETIONS,
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
                "return_prompt_token_ids: Optional[bool] = False",
                note="whether to return the token IDs of the prompt",
                until="0.5.12",
            ),
            AddKeyword(
                IO_STRUCT,
                f"{request}.__getitem__",
                request,
                "return_prompt_token_ids=self.return_prompt_token_ids",
                each=n_calls,
                until="0.5.12",
            ),
            # From v0.5.13 on SGLang has the flag itself.
            Replace(
                IO_STRUCT,
                request,
                "return_prompt_token_ids: bool = False",
                "return_prompt_token_ids: Optional[bool] = False",
                note="a flag that is null is one that is not there",
                since="0.5.13",
            ),
        )
    ),
    AddField(
        TOKENIZER_MANAGER,
        "ReqState",
        "prompt_token_ids: Optional[List[int]] = None",
        note="the prompt that the engine prefills, if the request asks for it",
        until="0.5.12",
    ),
    AddField(
        TOKENIZER_MANAGER,
        "ReqState",
        "prompt_tokens: int = 0",
        note="how many tokens the prompt has",
    ),
    *(
        Graft(
            TOKENIZER_MANAGER,
            "ReqState",
            definition,
            note="return_prompt_token_ids",
            since=since,
            until=until,
        )
        for definition, since, until in (
            (_keep_prompt, "", "0.5.12"),
            (_count_prompt, "0.5.13", ""),
            (_add_prompt, "", ""),
        )
    ),
    *(
        Insert(
            TOKENIZER_MANAGER,
            f"TokenizerManager.{sender}",
            "_keep_prompt(state, tokenized_obj.input_ids, self.max_req_input_len)",
            after="state = self.req_state_class(...)",
            note="return_prompt_token_ids",
            until="0.5.9",
        )
        for sender in ("_send_one_request", "_send_batch_request")
    ),
    # From v0.5.10 on a request has its state before it is tokenized, and from v0.5.13 on
    # the state has the prompt, uncut.
    *(
        edit
        for keep, since, until in (
            ("_keep_prompt", "0.5.10", "0.5.12"),
            ("_count_prompt", "0.5.13", ""),
        )
        for edit in (
            Insert(
                TOKENIZER_MANAGER,
                "TokenizerManager._send_one_request",
                "state = self.rid_to_state[tokenized_obj.rid]\n"
                f"{keep}(state, tokenized_obj.input_ids, self.max_req_input_len)",
                note="return_prompt_token_ids",
                since=since,
                until=until,
            ),
            Insert(
                TOKENIZER_MANAGER,
                "TokenizerManager._send_batch_request",
                "for tokenized_obj in tokenized_objs:\n"
                "    state = self.rid_to_state[tokenized_obj.rid]\n"
                f"    {keep}(state, tokenized_obj.input_ids, self.max_req_input_len)",
                note="return_prompt_token_ids",
                since=since,
                until=until,
            ),
        )
    ),
    *(
        Insert(
            TOKENIZER_MANAGER,
            f"TokenizerManager.{waiter}",
            "if state.prompt_token_ids is not None:\n"
            "    _add_prompt(state, out, is_stream)",
            before=before,
            note="return_prompt_token_ids",
            since=since,
            until=until,
        )
        for waiter, before, since, until in (
            ("_wait_one_response", "state.out_list = []", "", "0.5.9"),
            ("_wait_one_response", "if finished: ...", "0.5.10", "0.5.18"),
            ("_stream_one_response", "if finished: ...", "0.5.19", ""),
        )
    ),
    Insert(
        TOKENIZER_MANAGER,
        "TokenizerManager._handle_abort_req",
        'meta_info["prompt_tokens"] = state.prompt_tokens',
        before="state.out_list.append(out)",
        note="without it a chat answer fails",
    ),
    Insert(
        TOKENIZER_MANAGER,
        "TokenizerManager._handle_abort_req",
        'meta_info["weight_version"] = self.server_args.weight_version',
        before="state.out_list.append(out)",
        note="without it a chat answer fails",
        until="0.5.8",
    ),
    # From v0.5.22 on a schema is held against the request, too.
    Replace(
        HTTP_SERVER,
        "generate_request",
        "contract_error = generate_contract_error(await request.json())",
        "contract_error = generate_contract_error(\n"
        "    {\n"
        "        key: value\n"
        "        for key, value in (await request.json()).items()\n"
        '        if key != "return_prompt_token_ids" or value is not None\n'
        "    }\n"
        ")",
        note="a flag that is null is one that is not there",
        since="0.5.22",
    ),
    # The log leaves out the prompt at the levels at which it leaves out `output_ids`.
    Insert(
        REQUEST_LOGGER,
        "RequestLogger._compute_metadata",
        'if out_skip_names is not None:\n    out_skip_names.add("prompt_token_ids")',
        before="return max_length, skip_names, out_skip_names",
        note="return_prompt_token_ids",
    ),
)

# The prompt's IDs on each choice of a whole answer.
CHOICE_PROMPT_TOKEN_IDS: tuple[Edit, ...] = (
    AddField(
        PROTOCOL,
        "ChatCompletionResponseChoice",
        "prompt_token_ids: Optional[List[int]] = None",
        note="return_prompt_token_ids, or return_token_ids if it is true",
        until="0.5.12",
    ),
    Insert(
        PROTOCOL,
        "ChatCompletionResponseChoice._serialize",
        'if self.prompt_token_ids is None:\n    data.pop("prompt_token_ids", None)',
        before="return data",
        until="0.5.12",
    ),
)

# In v0.5.11 and v0.5.12 a batch makes its requests before it knows to which of several
# tokenizer workers the answers go: they go to none, and the batch waits for ever.
WORKERS_OF_BATCHES: tuple[Edit, ...] = (
    Insert(
        TOKENIZER_MANAGER,
        "TokenizerManager.generate_request",
        "if not obj.is_single and self.server_args.tokenizer_worker_num > 1:\n"
        "    self._attach_multi_http_worker_info(obj)",
        before="self._init_req_state(...)",
        note="the requests of a batch, made next, take it over",
        since="0.5.11",
        until="0.5.12",
    ),
)


def checked_input_ids(since: str = "", until: str = "") -> tuple[Edit, ...]:
    """Check the `input_ids` of chat, in releases whose chat has them."""
    note = "prompts given as token IDs"
    return (
        Graft(
            SERVING_CHAT,
            "OpenAIServingChat",
            _validate_input_ids,
            inside=True,
            note=note,
            since=since,
            until=until,
        ),
        Insert(
            SERVING_CHAT,
            "OpenAIServingChat._validate_request",
            "if request.input_ids is not None:\n"
            "    error = self._validate_input_ids(request)\n"
            "    if error is not None:\n"
            "        return error",
            before="return None",
            note=note,
            since=since,
            until=until,
        ),
    )


# A token ID outside the vocabulary ends the engine at the embedding lookup, whichever
# endpoint it came by. A stream is refused before its status is sent.
CHECKED_PROMPTS: tuple[Edit, ...] = (
    *WORKERS_OF_BATCHES,
    Graft(
        TOKENIZER_MANAGER,
        "TokenizerManager",
        _check_token_ids,
        note="a token ID outside the vocabulary kills the engine",
    ),
    *(
        Graft(
            TOKENIZER_MANAGER,
            "TokenizerManager",
            method,
            inside=True,
            note="prompts given as token IDs",
        )
        for method in (check_token_ids, check_prompt, check_request)
    ),
    # From v0.5.20 on a request to a session may have an empty prompt.
    Graft(
        TOKENIZER_MANAGER,
        "TokenizerManager",
        check_session_request,
        inside=True,
        note="prompts given as token IDs",
        since="0.5.20",
    ),
    *(
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager.generate_request",
            f"error = self.{check.__name__}(obj)\nif error is not None:\n"
            "    raise ValueError(error)",
            after="obj.normalize_batch_and_arguments()",
            note="prompts given as token IDs",
            since=since,
            until=until,
        )
        for check, since, until in (
            (check_request, "", "0.5.19"),
            (check_session_request, "0.5.20", ""),
        )
    ),
    Insert(
        SERVING_COMPLETIONS,
        "OpenAIServingCompletion._validate_request",
        "if isinstance(prompt, list) and not isinstance(prompt[0], str):\n"
        '    return self.tokenizer_manager.check_prompt(prompt, "prompt")',
        before="return None",
        note="prompts given as token IDs",
    ),
    # From v0.5.13 on chat takes a prompt of token IDs by itself.
    *checked_input_ids(since="0.5.13"),
    *(
        Insert(
            HTTP_SERVER,
            endpoint,
            f"error = _global_state.tokenizer_manager.{check.__name__}(obj)\n"
            "if error is not None:\n"
            "    return _create_error_response(error)",
            before="if obj.stream: ...",
            note="prompts given as token IDs",
            since=since,
            until=until,
        )
        for endpoint, check, since, until in (
            ("generate_request", check_request, "", "0.5.19"),
            ("generate_request", check_session_request, "0.5.20", "0.5.21"),
            ("serve_generate_request", check_session_request, "0.5.22", ""),
        )
    ),
)
