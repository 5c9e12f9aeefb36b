"""Tests of the patched classes themselves, with stand-ins around them.

Run in an interpreter with SGLang, with a patched copy first on its path. It prints one
JSON object: the error of each of `tests_in` this module, or null.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock


class Plain(SimpleNamespace):
    """A model configuration without special features: every attribute is None."""

    def __getattr__(self, name: str) -> None:
        return None


def server_args(**args: Any) -> Any:
    """Put the arguments of a server without a model where SGLang looks for them.

    `stream_output`: --stream-output, or its name in the release.
    """
    import application
    from sglang.srt.agentcore import release

    if "stream_output" in args:
        name = release.STREAM_OUTPUT.rpartition(".")[2]
        args[name] = args.pop("stream_output")
    return application.server_args(**args)


def tokenizer_manager(**args: Any) -> Any:
    """Make a real tokenizer manager without an engine or a model."""
    from sglang.srt.managers import tokenizer_manager as module
    from sglang.srt.sampling.sampling_params import SamplingParams

    manager: Any = object.__new__(module.TokenizerManager)
    manager.server_args = server_args(context_length=40_960, **args)
    manager.model_config = Plain(
        vocab_size=100,
        get_default_sampling_params=dict,
        hf_config=Plain(model_type="x", architectures=["X"]),
    )
    manager.model_path = manager.served_model_name = "dummy"
    manager.context_len, manager.max_req_input_len = 40_960, 40_000
    manager.num_reserved_tokens = 0
    manager.validate_total_tokens = True
    manager.is_generation = True
    manager.enable_trace = manager.enable_metrics = False
    manager.preferred_sampling_params = None
    manager.enable_priority_scheduling = False
    manager.elastic_worker_count = 1
    manager._config_updates = []  # For 0.5.17.
    for name in ("enable_lora", "incremental_streaming_output", "skip_tokenizer_init"):
        setattr(manager, name, getattr(manager.server_args, name, False))
    manager.mm_processor = None
    manager.tokenizer = SimpleNamespace(
        batch_decode=lambda ids: [f"<{i}>" for i in ids], chat_template="-"
    )
    manager.sampling_params_class = SamplingParams
    manager.req_state_class = module.ReqState
    manager.crash_dump_folder = ""
    manager.auto_create_handle_loop = lambda: None
    manager.init_running_status()
    manager.init_request_logging_and_dumping()
    manager.init_weight_update()
    manager.init_lora()
    manager.init_disaggregation()
    if hasattr(manager, "init_positional_embeds_transport"):
        manager.init_positional_embeds_transport()
    if hasattr(module, "CudaVmmFeatureTransport"):
        transport = module.CudaVmmFeatureTransport(manager.server_args, None)
        manager.cuda_vmm_feature_transport = transport
    return manager


def serving(manager: Any, template: str | None = None) -> Any:
    """Make the chat endpoint over a tokenizer manager."""
    from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat

    made = OpenAIServingChat(manager, template_manager())
    made.template_manager._chat_template_name = template
    return made


def template_manager() -> Any:
    """Return the template manager's class; it moved in 0.5.20."""
    try:
        from sglang.srt.parser.template_manager import TemplateManager
    except ImportError:
        from sglang.srt.managers.template_manager import TemplateManager
    return TemplateManager()


def chat(**body: Any) -> Any:
    from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest

    return ChatCompletionRequest(
        **{"messages": [{"role": "user", "content": "-"}], **body}
    )


def converted(endpoint: Any, request: Any) -> Any:
    return endpoint._convert_to_internal_request(request)[0]


def test_a_templates_own_stop_strings_still_stop() -> None:
    for template, own in (("chatml", "<|im_end|>"), ("phi-4-mm", "<|end|>")):
        for stop in ("end", ["end"], None):
            request = chat(input_ids=[5], stop=stop)
            adapted = converted(serving(tokenizer_manager(), template), request)
            assert own in adapted.sampling_params["stop"]
            assert ("end" in adapted.sampling_params["stop"]) == (stop is not None)
    request = chat(input_ids=[5], ignore_eos=True)
    adapted = converted(serving(tokenizer_manager(), "chatml"), request)
    assert not adapted.sampling_params["stop"]


def test_a_conversation_template_is_used_only_for_images() -> None:
    endpoint = serving(tokenizer_manager(), "chatml")
    image = {"type": "image_url", "image_url": {"url": "x"}}
    user = {"role": "user", "content": [image]}
    [data] = converted(endpoint, chat(input_ids=[5], messages=[user])).image_data
    assert data.url == "x"
    # Such a template rejects this role.
    tool = {"role": "tool", "tool_call_id": "x", "content": "-"}
    adapted = converted(endpoint, chat(input_ids=[5], messages=[tool]))
    assert (adapted.input_ids, adapted.image_data) == ([5], None)


def test_batches_keep_the_flag_when_indexed() -> None:
    from sglang.srt.managers.io_struct import EmbeddingReqInput, GenerateReqInput

    for flag in (True, False):
        more = {"return_prompt_token_ids": flag}
        pairs = {"text": [["a", "b"]], "is_cross_encoder_request": True}
        for batch in (
            GenerateReqInput(text=["a", "b"], **more),
            EmbeddingReqInput(text=["a", "b"], **more),
            EmbeddingReqInput(**pairs, **more),
        ):
            batch.normalize_batch_and_arguments()
            assert batch[0].return_prompt_token_ids is flag


def chunks() -> list[Any]:
    """Return every kind of chunk in a chat stream, and some invalid ones."""
    from sglang.srt.entrypoints.openai import protocol as p

    def chunk(*, choice: dict[str, Any] | None = None, **delta: Any) -> Any:
        more = {"index": 0, "delta": p.DeltaMessage(**delta), **(choice or {})}
        choices = [p.ChatCompletionResponseStreamChoice(**more)]
        return p.ChatCompletionStreamResponse(id="x", model="m", choices=choices)

    def call(**function: Any) -> Any:
        return p.ToolCall(index=0, function=p.FunctionResponse(**function))

    def logprobs(value: float) -> Any:
        top = [p.TopLogprob(token="\u2028", bytes=[1], logprob=value)]
        token = {"token": "é", "bytes": [195, 169], "logprob": value}
        entry = p.ChatCompletionTokenLogprob(**token, top_logprobs=top)
        return p.ChoiceLogprobs(content=[entry])

    floats = -0.5, -1e-7, 1e22, float("-inf"), float("nan")
    end = {"choices": [], "id": "x", "model": "m"}
    return [
        chunk(role="assistant", content=""),
        chunk(content='"\\/\b\f\n\r\t\x00\x1f\x7f\u2028é見😀'),
        chunk(reasoning_content="a"),
        chunk(tool_calls=[call(name="f", arguments=""), call(arguments='{"é": 1}')]),
        chunk(tool_calls=[call(arguments={"a": [1.5, None, "é"]})]),
        *(chunk(content="a", choice={"logprobs": logprobs(v)}) for v in floats),
        chunk(choice={"finish_reason": "stop", "matched_stop": 2}),
        chunk(choice={"finish_reason": "abort", "matched_stop": "end"}),
        p.ChatCompletionStreamResponse(**end, usage={"prompt_tokens": 1}),
        p.ChatCompletionStreamResponse(**end, sglext={"routed_experts": "AA"}),
        chunk(hidden_states=[2**70]),  # orjson rejects it, pydantic does not
    ]


def stamped(chunk: Any, trace: Any) -> Any:
    """Stamp the line of a chunk with two pending tokens, and parse it."""
    trace.push(0, {"output_ids": [5, 6], "meta_info": {"weight_version": "w"}})
    line = trace.stamp(f"data: {chunk.model_dump_json()}\n\n")
    assert line.startswith("data: ") and line.endswith("}\n\n")
    return json.loads(line[len("data: ") :])


def test_a_stamped_line_keeps_its_fields_and_carries_pending_tokens() -> None:
    from sglang.srt.agentcore.http.traces import Trace

    for n_choices in (1, None):
        trace = Trace(incremental=True, n_choices=n_choices)
        waiting: list[int] = []
        for number, chunk in enumerate(chunks()):
            parse = mock.patch.object(trace, "_stamp_parsed", wraps=trace._stamp_parsed)
            with parse as parsed:
                data = stamped(chunk, trace)
            # Usual lines are stamped as text: the trace writes the logprobs.
            if all(choice["logprobs"] is None for choice in data["choices"]):
                assert parsed.called is not bool(data["choices"])
            waiting += [5, 6]
            metadata = data.pop("metadata", None)
            assert (metadata is not None) == (number == 0)
            if data["choices"]:
                assert data["choices"][0].pop("token_ids") == waiting
                waiting = []
            assert repr(data) == repr(json.loads(chunk.model_dump_json()))


def tests_in(module: dict[str, Any]) -> dict[str, Callable[[], object]]:
    """Return a module's functions named `test_...`, and its MORE_TESTS."""
    more: dict[str, Callable[[], object]] = module.get("MORE_TESTS", {})
    named = {name: test for name, test in module.items() if name.startswith("test_")}
    return named | more


def run_tests(module: dict[str, Any]) -> None:
    outcome: dict[str, str | None] = {}
    for name, test in tests_in(module).items():
        try:
            test()
            outcome[name] = None
        except Exception:
            outcome[name] = traceback.format_exc()
    print(json.dumps(outcome))


if __name__ == "__main__":
    run_tests(globals())
