"""Logprobs: reject requests the server cannot serve, trim the lists, write the JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from itertools import chain, islice
from math import isfinite
from typing import TYPE_CHECKING, Any

import orjson

from .. import release

if TYPE_CHECKING:
    from sglang.srt.entrypoints.openai.protocol import (
        ChatCompletionRequest,
        CompletionRequest,
    )
    from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat
    from sglang.srt.entrypoints.openai.serving_completions import (
        OpenAIServingCompletion,
    )
    from sglang.srt.managers.io_struct import BatchStrOutput, GenerateReqInput
    from sglang.srt.managers.tokenizer_manager import ReqState, TokenizerManager

    from .request_fields import ApiRequest

KEYS = ("output_token_logprobs", "output_top_logprobs")
"""The engine's names of the logprobs that responses contain."""

_COLUMNS = tuple(f"{name}_{part}" for name in KEYS for part in ("val", "idx"))

UNUSUAL = (AttributeError, LookupError, TypeError, ValueError)
"""Exceptions that `write` raises if the engine's lists have an unknown form."""


def refusal(manager: TokenizerManager, sampling_params: Any = None) -> str | None:
    """Return why this server cannot return logprobs, None if it can.

    Args:
        sampling_params: sampling parameters of the request, or of each request of a
            batch. A request for one new token needs only the first token's logprobs.
    """
    server_args = manager.server_args
    if server_args.dllm_algorithm is not None:
        return (
            "logprobs are not supported by this server: diffusion language models "
            "(--dllm-algorithm) record none."
        )
    if (
        release.SPECULATION_LOSES_LOGPROBS
        and server_args.speculative_algorithm is not None
        and not server_args.disable_overlap_schedule
    ):
        batch = sampling_params
        if not isinstance(batch, list):
            batch = [sampling_params]
        if all(params and params.get("max_new_tokens") in (0, 1) for params in batch):
            return None
        return (
            "logprobs are not supported by this server: speculative decoding with "
            "the overlap scheduler records none after the first token. Start it "
            "with --disable-overlap-schedule, and without SGLANG_ENABLE_SPEC_V2."
        )
    return None


def refusal_of(manager: TokenizerManager, obj: GenerateReqInput) -> str | None:
    """Return why the server cannot return the logprobs a request asks for, or None."""
    asked = obj.return_logprob
    if any(asked) if isinstance(asked, list) else asked:
        # Scoring a prompt generates one token; every release records its logprobs.
        return refusal(manager, obj.sampling_params)
    return None


def has_ids(request: ApiRequest) -> bool:
    """True if a response has the token IDs of the answer."""
    ids = request.return_token_ids
    return ids is not False if hasattr(request, "messages") else bool(ids)


def come_with_ids(request: ApiRequest) -> bool:
    """True if a response has logprobs, in any form, and the IDs of their tokens."""
    entries = request.logprobs
    has_entries = entries is not None and entries is not False
    return has_ids(request) and (has_entries or bool(request.return_token_logprobs))


def check(manager: TokenizerManager, request: ApiRequest) -> str | None:
    """Return why the logprobs of a request are rejected, None if they are not."""
    if request.return_token_logprobs and request.return_token_ids is False:
        return (
            "return_token_logprobs is not supported with return_token_ids=false: "
            "set return_token_ids=true, or omit it."
        )
    return refusal(manager) if come_with_ids(request) else None


def ask(request: ApiRequest, adapted_request: GenerateReqInput) -> None:
    """Ask the engine for the logprobs of a request, with text only where it is used."""
    if request.return_tokens_as_token_ids or not adapted_request.return_logprob:
        adapted_request.return_text_in_logprobs = False
    if request.return_token_logprobs:
        adapted_request.return_logprob = True


def require_finite(
    manager: TokenizerManager,
    meta_info: dict[str, Any],
    state: ReqState,
    output: BatchStrOutput,
    index: int,
) -> None:
    """Fail a request whose new logprobs hold NaN or infinity, with a clear error.

    JSON has neither: a response would contain `null`, or fail without a message. Those
    of the answer are dropped if it has no tokens (`max_new_tokens: 0`): SGLang samples
    one token if the request shares its prefill with others.
    """
    if not output.completion_tokens[index]:
        for name in _COLUMNS:
            if column := getattr(output, name):
                column[index] = []
    for of_requests, of_what in (
        (output.output_token_logprobs_val, "the answer"),
        (output.input_token_logprobs_val, "the prompt"),
    ):
        # The first token of a prompt has no logprob.
        for value in (of_requests and of_requests[index]) or ():
            if value is None or isfinite(value):
                continue
            if output.finished_reasons[index] is None:
                manager.abort_request(state.obj.rid)
            meta_info["finish_reason"] = output.finished_reasons[index] = {
                "type": "abort",
                "message": f"The model gave a logprob of {value} in {of_what}.",
                "status_code": HTTPStatus.BAD_REQUEST,
            }
            return


def flat(lists: dict[str, Any]) -> list[float]:
    """Return the logprob of each token, from the engine's lists."""
    return [row[0] for row in lists["output_token_logprobs"]]


def cut(ret: list[dict[str, Any]]) -> None:
    """Drop logprobs of tokens after a stop: the response does not contain the tokens.

    Raises:
        ValueError: the engine gave fewer logprobs than tokens.
    """
    for i, ret_item in enumerate(ret):
        meta_info = ret_item["meta_info"]
        n_tokens = len(ret_item["output_ids"])
        n_logprobs = len(meta_info.get("output_token_logprobs") or ())
        if n_logprobs < n_tokens:
            raise ValueError(
                f"The engine gave {n_logprobs} logprobs for {n_tokens} tokens: "
                "logprobs are not supported by the way in which this server "
                "generates."
            )
        if n_logprobs > n_tokens:
            ret[i] = {**ret_item, "meta_info": cut_to_first(meta_info, n_tokens)}


def cut_chat(request: ChatCompletionRequest, ret: list[dict[str, Any]]) -> None:
    """Drop logprobs that a chat response must not contain, if it has token IDs."""
    if come_with_ids(request):
        cut(ret)


def cut_completion(request: CompletionRequest, ret: list[dict[str, Any]]) -> None:
    """Drop logprobs that a completion must not contain, if it has token IDs."""
    if not come_with_ids(request):
        return
    cut(ret)
    if request.echo and not has_prompt(request):
        nothing = dict.fromkeys(("input_token_logprobs", "input_top_logprobs"))
        for i, ret_item in enumerate(ret):
            ret[i] = {**ret_item, "meta_info": {**ret_item["meta_info"], **nothing}}
    if _needs_own_top(request):
        for i, ret_item in enumerate(ret):
            ret[i] = {**ret_item, "meta_info": with_own_top(ret_item["meta_info"])}


def _needs_own_top(request: CompletionRequest) -> bool:
    """True if each token is its own alternative, as in vLLM.

    Its clients expect one entry of `top_logprobs` for each token.
    """
    is_asked = request.return_tokens_as_token_ids or "vllm-api" in release.INSTALLED
    return request.logprobs == 0 and bool(is_asked)


def with_own_top(meta_info: dict[str, Any]) -> dict[str, Any]:
    """Copy `meta_info` with each token as its only alternative."""
    tops: dict[str, Any] = {}
    for name in ("input", "output"):
        rows = meta_info.get(f"{name}_token_logprobs")
        if rows is not None:
            # The first token of a prompt has no logprob.
            own = [None if row[0] is None else [row] for row in rows]
            tops[f"{name}_top_logprobs"] = own
    return {**meta_info, **tops}


def has_prompt(request: CompletionRequest) -> bool:
    """True if a completion's logprobs start with those of the prompt.

    With `logprobs=0`, SGLang asks the engine only for those of the prompt's last token;
    the extra `vllm-api` asks for all.
    """
    return bool(request.echo and (request.logprobs or "vllm-api" in release.INSTALLED))


def cut_to_first(meta_info: dict[str, Any], n_tokens: int) -> dict[str, Any]:
    """Copy `meta_info` with the logprobs of the first tokens only."""
    meta_info = meta_info.copy()
    for key in KEYS:
        if meta_info.get(key):
            meta_info[key] = meta_info[key][:n_tokens]
    return meta_info


def name_by_id(rows: Sequence[Any] | None) -> Sequence[Any] | None:
    """Fill in the text of rows `(logprob, token ID, text)` that have none.

    If the engine was told to omit text, the text is "token_id:N", as in vLLM.
    """
    if not rows or rows[0][2] is not None:
        return rows
    return [
        (logprob, token_id, f"token_id:{token_id}") for logprob, token_id, _ in rows
    ]


def name_top_by_id(tops: Sequence[Any] | None) -> Sequence[Any] | None:
    """Fill in the text of each token's top rows, like `name_by_id`."""
    return [name_by_id(rows) for rows in tops] if tops else tops


class Openings(dict[tuple[int, "str | None"], str]):
    """Cache of a row's JSON up to the logprob, by token ID and text.

    Most tokens recur often. The cache holds at most `LIMIT` rows, about 10 MB.
    """

    LIMIT = 32_768

    def __init__(self, tokenizer: Any) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self._bytes_of_id: Callable[[Any, int], list[int] | None] | None = None
        if release.BYTES_OF_ID:
            from sglang.srt.entrypoints.openai.utils import (
                _is_byte_level_tokenizer,
                token_id_to_bytes,
            )

            if _is_byte_level_tokenizer(tokenizer):
                self._bytes_of_id = token_id_to_bytes

    def __missing__(self, token: tuple[int, str | None]) -> str:
        token_id, text = token
        if text is None:
            text = f"token_id:{token_id}"
        of_id = self._bytes_of_id
        raw = of_id(self.tokenizer, token_id) if of_id is not None else None
        data = orjson.dumps({"token": text, "bytes": raw or list(text.encode())})
        if len(self) >= self.LIMIT:
            self.clear()
        self[token] = opening = data[:-1].decode() + ',"logprob":'
        return opening


_openings: Openings | None = None


def openings_of(tokenizer: Any) -> Openings:
    """Return the cached openings of a tokenizer, which all responses share."""
    global _openings
    if _openings is None or _openings.tokenizer is not tokenizer:
        _openings = Openings(tokenizer)
    return _openings


def dump_numbers(values: list[float]) -> list[str]:
    """Write each number as pydantic and orjson do: 1e-7, null for NaN.

    Raises:
        ValueError: a value is not a float.
    """
    if set(map(type, values)) - {float}:
        raise ValueError("a number is no float")
    return orjson.dumps(values)[1:-1].decode().split(",")


def write(
    meta_info: dict[str, Any],
    openings: Openings,
    dump_numbers: Callable[[list[float]], list[str]] = dump_numbers,
) -> str:
    """Write the logprobs of a chat choice as JSON, from the engine's lists.

    Args:
        meta_info: `output_token_logprobs` has one row `(logprob, token ID, text)` per
            token. `output_top_logprobs`, unless absent or empty, has a list of rows.

    Raises:
        AttributeError, LookupError, TypeError, ValueError: the lists have another form.
    """
    rows = meta_info["output_token_logprobs"]
    tops = meta_info.get("output_top_logprobs")
    if not tops:
        numbers = dump_numbers([row[0] for row in rows])
        entries = [
            f'{openings[token_id, text]}{number},"top_logprobs":[]}}'
            for (_, token_id, text), number in zip(rows, numbers, strict=False)
        ]
        return f'{{"content":[{",".join(entries)}]}}'
    count = len(rows)
    if len(tops) != count:
        raise ValueError(f"{len(tops)} top_logprobs for {count} tokens")
    every = [*rows, *chain.from_iterable(tops)]
    numbers = dump_numbers([row[0] for row in every])
    beginnings = [openings[token_id, text] for _, token_id, text in every]
    others = zip(beginnings[count:], numbers[count:], strict=True)
    entries = []
    for beginning, number, top in zip(beginnings, numbers, tops, strict=False):
        pairs = list(islice(others, len(top)))
        if not release.BYTES_OF_ID:
            # SGLang keeps only one of several tokens with the same text.
            pairs = list(dict(pairs).items())
        joined = "},".join([f"{opening}{other}" for opening, other in pairs])
        end = "}" if pairs else ""
        entries.append(f'{beginning}{number},"top_logprobs":[{joined}{end}]}}')
    return f'{{"content":[{",".join(entries)}]}}'


class ChatLogprobs:
    """Write the logprobs of a chat stream, from the engine's lists.

    A fork may have changed SGLang's pydantic models. The first logprobs of a stream are
    therefore written both ways. If the results differ, the models write all the rest.
    """

    def __init__(self, serving: OpenAIServingChat) -> None:
        self._make_models = serving._process_response_logprobs
        self._openings = openings_of(serving.tokenizer_manager.tokenizer)
        self._is_as_from_models: bool | None = None

    def dump(self, meta_info: dict[str, Any]) -> str:
        """Write the logprobs of one chunk, the lists of its own tokens, as JSON.

        Raises:
            AttributeError, LookupError, TypeError, ValueError: the models reject them.
        """
        written = None
        if self._is_as_from_models is not False:
            try:
                written = self._write(meta_info)
            except UNUSUAL:
                pass
            else:
                if self._is_as_from_models:
                    return written
        model = self._make_models({"meta_info": meta_info})
        text = orjson.dumps(model.model_dump()).decode()
        if written is not None and meta_info["output_token_logprobs"]:
            self._is_as_from_models = written == text
        return text

    def _write(self, meta_info: dict[str, Any]) -> str:
        rows = meta_info["output_token_logprobs"]
        if len(rows) == 1 and not meta_info.get("output_top_logprobs"):
            # The fast path: most chunks have one token and no top logprobs.
            [(logprob, token_id, text)] = rows
            if type(logprob) is float:
                number = orjson.dumps(logprob).decode()
                opening = self._openings[token_id, text]
                return f'{{"content":[{opening}{number},"top_logprobs":[]}}]}}'
        return write(meta_info, self._openings)


def completion_writer(
    serving: OpenAIServingCompletion, request: CompletionRequest
) -> Callable[[dict[str, Any]], str]:
    """Return a function that writes a completion's logprobs with SGLang's own model.

    With `echo`, the prompt's logprobs come first if `meta_info` has them.
    """
    from sglang.srt.entrypoints.openai.utils import to_openai_style_logprobs

    with_prompt = has_prompt(request)
    needs_own_top = _needs_own_top(request)
    options: dict[str, Any] = {}
    if release.BYTES_OF_ID:
        options = {"tokenizer": serving.tokenizer_manager.tokenizer}

    def write_completion(meta_info: dict[str, Any]) -> str:
        if needs_own_top:
            meta_info = with_own_top(meta_info)
        of_prompt = meta_info if with_prompt else {}
        text: str = to_openai_style_logprobs(
            input_token_logprobs=of_prompt.get("input_token_logprobs"),
            input_top_logprobs=of_prompt.get("input_top_logprobs"),
            output_token_logprobs=meta_info["output_token_logprobs"],
            output_top_logprobs=meta_info.get("output_top_logprobs"),
            **options,
        ).model_dump_json()
        return text

    return write_completion
