"""What is asked of the patched classes themselves, with stand-ins around them.

Run in an interpreter with SGLang, a patched copy first on its path; prints one JSON
object: for each function below whose name starts with `test_`, the error or null.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import traceback
from types import SimpleNamespace
from typing import Any

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def serving(multimodal: bool = False, template: str | None = None) -> Any:
    """The chat endpoint over a stand-in for the tokenizer manager."""
    from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat

    manager = SimpleNamespace(
        server_args=SimpleNamespace(
            tool_call_parser="qwen25",
            reasoning_parser=None,
            context_length=40_960,
            allow_auto_truncate=False,
            skip_tokenizer_init=False,
            enable_cache_report=False,
        ),
        model_config=SimpleNamespace(
            get_default_sampling_params=dict,
            is_multimodal=multimodal,
            vocab_size=1000,
            hf_config=SimpleNamespace(model_type="x", architectures=["X"]),
        ),
        context_len=40_960,
        num_reserved_tokens=0,
        max_req_input_len=40_000,
        tokenizer=None,
    )
    templates = SimpleNamespace(
        chat_template_name=template,
        jinja_template_content_format="openai",
        force_reasoning=False,
    )
    return OpenAIServingChat(manager, templates)


def chat(**body: Any) -> Any:
    from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest

    return ChatCompletionRequest(
        **{"messages": [{"role": "user", "content": "-"}], **body}
    )


def converted(endpoint: Any, request: Any) -> Any:
    return endpoint._convert_to_internal_request(request)[0]


def test_a_multimodal_model_gets_the_ids_and_the_images() -> None:
    content = [{"type": "text", "text": "-"}, IMAGE]
    request = chat(messages=[{"role": "user", "content": content}], input_ids=[5, 6, 7])
    adapted = converted(serving(multimodal=True), request)
    assert adapted.input_ids == [5, 6, 7]
    assert adapted.text is None
    assert len(adapted.image_data) == 1


def test_a_text_model_gets_the_ids() -> None:
    adapted = converted(serving(), chat(input_ids=[5, 6, 7], stop="end"))
    assert adapted.input_ids == [5, 6, 7]
    assert adapted.sampling_params["stop"] == ["end"]


def test_a_templates_own_stop_strings_still_stop() -> None:
    for template, own in (("chatml", "<|im_end|>"), ("phi-4-mm", "<|end|>")):
        for stop in ("end", ["end"], None):
            request = chat(input_ids=[5], stop=stop)
            adapted = converted(serving(template=template), request)
            assert own in adapted.sampling_params["stop"]
            assert ("end" in adapted.sampling_params["stop"]) == (stop is not None)
    request = chat(input_ids=[5], ignore_eos=True)
    adapted = converted(serving(template="chatml"), request)
    assert not adapted.sampling_params["stop"]


def test_tools_still_constrain() -> None:
    function = {"name": "f", "parameters": {"type": "object", "properties": {}}}
    tools = [{"type": "function", "function": function}]
    request = chat(input_ids=[5], tools=tools, tool_choice="required")
    assert converted(serving(), request).sampling_params["json_schema"]


def test_flags_that_a_stream_cannot_carry_are_refused() -> None:
    for field in ("return_prompt_token_ids", "return_meta_info"):
        refusal = serving()._validate_request(chat(stream=True, **{field: True}))
        assert field in refusal and "stream=false" in refusal
        assert serving()._validate_request(chat(**{field: True})) is None


def test_bad_ids_are_refused_and_good_ones_are_not() -> None:
    endpoint = serving()
    for bad in ([], [-1], [1000], [2**70], ["5"], [5.0], [True], [[5]], [5] * 40_000):
        assert "input_ids" in endpoint._validate_request(chat(input_ids=bad))
    assert endpoint._validate_request(chat(input_ids=[0, 999])) is None


def test_32_000_ids_are_validated_in_no_time() -> None:
    endpoint, request = serving(), chat(input_ids=[5] * 32_000)
    began = time.process_time()
    for _ in range(10):
        assert endpoint._validate_request(request) is None
    print(
        f"{(time.process_time() - began) * 100:.2f} ms for 32,000 IDs", file=sys.stderr
    )


def test_batches_keep_the_flag_when_indexed() -> None:
    from sglang.srt.managers.io_struct import EmbeddingReqInput, GenerateReqInput

    for flag in (True, False):
        generate = GenerateReqInput(text=["a", "b"], return_prompt_token_ids=flag)
        embed = EmbeddingReqInput(text=["a", "b"], return_prompt_token_ids=flag)
        pairs = EmbeddingReqInput(
            text=[["a", "b"]],
            is_cross_encoder_request=True,
            return_prompt_token_ids=flag,
        )
        for batch in (generate, embed, pairs):
            batch.normalize_batch_and_arguments()
            assert batch[0].return_prompt_token_ids is flag


def test_every_way_to_send_a_batch_takes_the_prompt() -> None:
    from sglang.srt.managers.io_struct import GenerateReqInput

    ids = [[5], [6, 7], [8, 9, 10]]
    prompts = {"text": ["a", "bb", "ccc"]}, {"input_ids": ids}
    for prompt in prompts:
        for batch_encode in (False, True):
            for n in (1, 2):
                if batch_encode and n == 1 and "input_ids" in prompt:
                    continue  # SGLang refuses it.
                request = GenerateReqInput(
                    **prompt, sampling_params={"n": n}, return_prompt_token_ids=True
                )
                taken = asyncio.run(sent(request, ids, batch_encode))
                assert taken == [one for one in ids for _ in range(n)], (prompt, n)


async def sent(request: Any, ids: list[list[int]], batch_encode: bool) -> Any:
    """The prompts that the states of a batch's requests hold once it is sent."""
    from sglang.srt.managers import tokenizer_manager
    from sglang.srt.managers.io_struct import TokenizedGenerateReqInput
    from sglang.srt.managers.tokenizer_manager import ReqState, TokenizerManager
    from sglang.srt.sampling.sampling_params import SamplingParams

    tokenizer_manager.wrap_shm_features = lambda obj: obj  # It asks a real server.
    manager = object.__new__(TokenizerManager)
    manager.server_args = SimpleNamespace(
        enable_tokenizer_batch_encode=batch_encode, enable_dp_attention=False
    )
    manager.send_to_scheduler = SimpleNamespace(send_pyobj=lambda _: None)
    manager.req_state_class = ReqState
    manager.rid_to_state = {}
    manager.max_req_input_len = 1000
    manager.is_generation = True
    by_text = dict(zip(("a", "bb", "ccc"), ids, strict=True))

    def tokenized(obj: Any) -> Any:
        prompt = by_text[obj.text] if obj.text else obj.input_ids
        return TokenizedGenerateReqInput(
            obj.text, prompt, None, SamplingParams(), False, -1, 0, None, False
        )

    async def tokenize_one(obj: Any) -> Any:
        return tokenized(obj)

    async def tokenize_all(size: int, obj: Any) -> Any:
        return [tokenized(obj[i]) for i in range(size)]

    async def answer(_: Any, state: Any, __: Any = None) -> Any:
        yield state.prompt_token_ids

    manager._tokenize_one_request = tokenize_one
    manager._batch_tokenize_and_process = tokenize_all
    manager._wait_one_response = answer
    request.normalize_batch_and_arguments()
    return await manager._handle_batch_request(request).__anext__()


def main() -> None:
    """Run every test and say how each went."""
    outcome: dict[str, str | None] = {}
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            try:
                test()
                outcome[name] = None
            except Exception:
                outcome[name] = traceback.format_exc()
    print(json.dumps(outcome))


if __name__ == "__main__":
    main()
