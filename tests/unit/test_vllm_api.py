"""Translation of vLLM's requests, and of responses to vLLM's format."""

from __future__ import annotations

import asyncio
import re
import sys
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from agentcore_patches.landing.http import exchanges
from agentcore_patches.landing.vllm_api import (
    aborts,
    admin,
    fields,
    generate,
    rendering,
    salts,
)
from agentcore_patches.landing.vllm_api.bodies import BadRequest
from agentcore_patches.landing.vllm_api.sampling import in_vllm_terms, translate
from agentcore_verify.checks.vllm_api import ROUTES
from tests.unit.small_server import tokenizer_manager

Json = dict[str, Any]


def params_of(**given: Any) -> Json:
    return translate(tokenizer_manager(), given, wants_text=False).params


def constrained(**outputs: Any) -> Json:
    return {"structured_outputs": outputs}


NOTHING = {"max_new_tokens": None}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"max_tokens": 7.0}, {"max_new_tokens": 7}),
        ({"min_tokens": 3}, {"min_new_tokens": 3}),
        ({"top_k": 0}, {"top_k": -1}),
        *(
            (same, same)
            for same in (
                {"n": 4, "temperature": 0.0, "top_p": 0.9, "min_p": 0.1, "top_k": 5},
                {
                    "repetition_penalty": 2,
                    "presence_penalty": 2,
                    "frequency_penalty": 2,
                },
                {"ignore_eos": True, "skip_special_tokens": False},
                {"spaces_between_special_tokens": False},
                {"stop": ["a"], "stop_token_ids": [3], "logit_bias": {"3": 1.0}},
            )
        ),
        ({"include_stop_str_in_output": True}, {"no_stop_trim": True}),
        ({"seed": 5, "temperature": 0}, {"sampling_seed": 5, "temperature": 0}),
        ({"detokenize": False, "output_kind": 2}, {}),
        (constrained(regex="a+", json=None), {"regex": "a+"}),
        (constrained(structural_tag="{}"), {"structural_tag": "{}"}),
        (constrained(grammar="root ::= x"), {"ebnf": "root ::= x"}),
        (constrained(json={"a": 1}), {"json_schema": '{"a": 1}'}),
        (constrained(json="{}"), {"json_schema": "{}"}),
        (constrained(json_object=True), {"json_schema": '{"type": "object"}'}),
        (constrained(choice=["a", 'b"']), {"ebnf": 'root ::= "a" | "b\\""'}),
        ({"bad_words": [], "extra_args": {}, "allowed_token_ids": None}, {}),
        ({"flat_logprobs": False, "return_sampling_mask": False}, {}),
    ],
)
def test_parameters_are_translated_and_back(given: Json, expected: Json) -> None:
    expected = {**NOTHING, **expected}
    assert params_of(**given) == expected
    unused = {"regex": None, "custom_params": None, "stop_regex": None}
    assert params_of(**in_vllm_terms({**unused, **expected})) == expected


BAD_PARAMETERS: dict[str, tuple[Any, ...]] = {
    "max_tokens": (0, True, 1.5, "1"),
    "min_tokens": (-1,),
    "seed": (2**64, 2),
    "logprobs": (-1, 101, True),
    "prompt_logprobs": ("all",),
    "n": (0,),
    "top_k": (-5,),
    "ignore_eos": ("x",),
    "stop": ("", ["a", ""], 5),
    "detokenize": (0,),
    "output_kind": (3,),
    "include_stop_str_in_output": ("yes",),
    "structured_outputs": (
        *("a", {"regex": 7}, {"choice": "a"}, {"whitespace": "a"}),
        {"regex": "a", "grammar": "b"},
    ),
    "bad_words": (["a"],),
    "thinking_token_budget": (0,),
    "routed_experts_prompt_start": (-1,),
    "allowed_token_ids": ([1],),
    "return_sampling_mask": (1,),
    "max_new_tokens": (5,),
    "temperature": ("hot", float("nan"), True),
    **dict.fromkeys(("top_p", "min_p", "repetition_penalty"), ("0.5", [1], 10**400)),
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), ({}, float("inf"))),
    "logit_bias": (5, *({"5": bias} for bias in ("x", [1], None, 1e39))),
}


@pytest.mark.parametrize(
    ("field", "given"),
    [
        *((name, {name: bad}) for name, bads in BAD_PARAMETERS.items() for bad in bads),
        ("min_tokens", {"min_tokens": 2, "max_tokens": 1}),
        ("detokenize", {"detokenize": False, "stop": ["a"]}),
    ],
)
def test_a_parameter_that_sglang_does_not_support_is_named(
    field: str, given: Json
) -> None:
    with pytest.raises(BadRequest) as refusal:
        params_of(**given)
    assert refusal.value.field is not None
    assert refusal.value.field.startswith(field)
    assert field in str(refusal.value)


def test_neutral_values_of_vllm_fields_have_no_effect() -> None:
    neutral: Json = {
        "allowed_token_ids": None,
        "bad_words": [],
        "use_beam_search": False,
    }
    neutral |= {"best_of": 1, "truncate_prompt_tokens": -1, "thinking_token_budget": -1}
    neutral |= {"routed_experts_prompt_start": 0, "add_special_tokens": False}
    for ask in (ask_chat, ask_completion):
        assert ask(vllm_fields=neutral) == {}
    ask_chat(vllm_fields={"add_generation_prompt": True})


def test_fields_that_only_vllm_has_are_kept() -> None:
    model = SimpleNamespace(model_fields=dict.fromkeys(("best_of", "echo", "n")))
    sent = {"vllm_fields": "invented", "best_of": 2, "echo": True, "bad_words": ["a"]}
    kept = {"best_of": 2, "bad_words": ["a"]}
    assert fields.keep(model, sent) == {**sent, "vllm_fields": kept}
    assert fields.keep(model, {"n": 2}) == {"n": 2}
    assert fields.keep(model, "x") == "x"


def test_several_workers_accept_a_path_as_the_model_name() -> None:
    pytest.importorskip("fastapi")
    # An update of the weights from disk changes the name, in one worker.
    request: Any = None
    path = "/models/step-8"
    server = tokenizer_manager(tokenizer_worker_num=2)
    assert generate._model(server, request, path) == (path, None)
    for manager, name in ((server, "unknown"), (tokenizer_manager(), path)):
        with pytest.raises(BadRequest, match="does not exist"):
            generate._model(manager, request, name)


def test_seeds_and_text_need_support_by_server_or_request() -> None:
    server = tokenizer_manager(enable_deterministic_inference=True)
    assert translate(server, {"seed": 5}, False).params["sampling_seed"] == 5
    for given in ({"n": 2, "seed": 5}, {"n": 2}):
        with pytest.raises(BadRequest, match="the same seed"):
            translate(server, given, False)
        assert translate(server, {**given, "temperature": 0}, False).params["n"] == 2
    with pytest.raises(BadRequest, match="output_mode"):
        translate(server, {"detokenize": False}, wants_text=True)


BAD_REQUESTS: list[tuple[Json, str]] = [
    *(
        ({"token_ids": bad}, "token_ids")
        for bad in (None, [], "hello", [[1, 2]], [100], [1.5], [1] * 100)
    ),
    *(({"sampling_params": bad}, "sampling_params") for bad in (None, [1])),
    ({"features": {"mm_hashes": {}}}, "features"),
    ({"content_parts": [{"type": "image_url"}]}, "content_parts"),
    *(({"cache_salt": bad}, "cache_salt") for bad in ("", 7, "x" * 1025)),
    ({"priority": 1}, "priority"),
    ({"output_mode": "audio"}, "output_mode"),
    *(({"request_id": bad}, "request_id") for bad in ("", 7)),
    ({"stream": "yes"}, "stream"),
    ({"return_token_ids": "maybe"}, "return_token_ids"),
    ({"return_token_ids": True, "return_prompt_token_ids": 1}, "return_prompt"),
    ({"stream_options": ["include_usage"]}, "stream_options"),
    ({"stream_options": {"include": True}}, "stream_options"),
    ({"kv_transfer_params": {"a": 1}}, "kv_transfer_params"),
    ({"max_tokens": 5}, "max_tokens"),
]


@pytest.mark.usefixtures("_requests")
@pytest.mark.parametrize(("bad", "field"), BAD_REQUESTS)
def test_a_bad_field_is_named(bad: Json, field: str) -> None:
    pytest.importorskip("fastapi")
    request: Any = SimpleNamespace(headers={})
    body = {"token_ids": [5, 6], "sampling_params": {"max_tokens": 2}, **bad}
    server = tokenizer_manager(enable_return_routed_experts=False)
    with pytest.raises(BadRequest) as refusal:
        generate.read(server, request, body)
    assert refusal.value.status == 400
    assert field in str(refusal.value)
    assert refusal.value.field is not None and refusal.value.field.startswith(field)


@pytest.mark.usefixtures("_requests")
def test_each_field_of_a_request_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi")
    for check in ("prompts.check", "logprobs.refusal_of", "request_ids.check"):
        path = f"agentcore_patches.landing.http.{check}"
        monkeypatch.setattr(path, lambda manager, obj: None)
    request: Any = SimpleNamespace(headers={"x-session-id": "session"})
    params = {"logprobs": 0, "prompt_logprobs": 2, "routed_experts_prompt_start": 1}
    body: Json = {"token_ids": [5, 6], "sampling_params": params, "model": "served"}
    body |= {"request_id": "r", "stream": True, "output_mode": "text"}
    body |= {"stream_options": {"include_usage": True}, "return_token_ids": True}
    body |= {"cache_salt": "salt", "priority": 0, "reasoning_ended": True}
    body |= {"token_offsets": [[0, 1]], "features": None}
    server = tokenizer_manager(enable_return_routed_experts=True)
    job = generate.read(server, request, body)
    assert (job.model, job.request_id, job.usage) == ("served", "r", "last")
    obj: Any = job.obj
    assert job.wants_prompt and job.wants_text and obj.stream
    assert (obj.extra_key, obj.routing_key) == ("salt", "session")
    assert (obj.top_logprobs_num, obj.logprob_start_len) == (2, 0)
    assert obj.routed_experts_start_len == 1 and not obj.require_reasoning


def fields_of(**asked: Any) -> Any:
    """Return a request of SGLang's endpoints, with vLLM's fields."""
    absent = ("prompt_logprobs", "chat_template", "structured_outputs", "logprobs")
    fields: Json = dict.fromkeys((*absent, "return_token_ids"))
    fields |= dict.fromkeys(("continue_final_message", "echo", "stream"), False)
    return SimpleNamespace(**{"vllm_fields": {}, "n": 1, **fields, **asked})


def ask_chat(**asked: Any) -> Any:
    params = asked.pop("params", {})
    adapted: Any = SimpleNamespace(sampling_params=params)
    fields.ask_chat(fields_of(**asked), adapted)
    return params


def ask_completion(**asked: Any) -> Any:
    adapted: Any = SimpleNamespace(sampling_params={}, text=None, top_logprobs_num=0)
    serving: Any = SimpleNamespace(tokenizer_manager=tokenizer_manager())
    fields.ask_completion(serving, fields_of(**asked), adapted)
    return adapted.sampling_params


UNHONOURED: list[tuple[Any, Json, str]] = [
    *(
        (ask, {"vllm_fields": {name: 7}}, name)
        for ask in (ask_chat, ask_completion)
        for name in fields._REFUSED
    ),
    *(
        (ask_completion, {"prompt_logprobs": bad}, "prompt_logprobs")
        for bad in (-1, True, "1", 10**6)
    ),
    (ask_completion, {"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    (ask_completion, {"vllm_fields": {"add_special_tokens": 1}}, "add_special_tokens"),
    (ask_completion, {"structured_outputs": "a"}, "structured_outputs"),
    *(
        (ask_chat, {"vllm_fields": {name: bad}}, name)
        for name, bad in (
            *(("add_generation_prompt", False), ("add_generation_prompt", "no")),
            *(("add_special_tokens", True), ("add_special_tokens", "no")),
            ("include_stop_str_in_output", "yes"),
        )
    ),
    (ask_chat, {"prompt_logprobs": 1}, "prompt_logprobs"),
    (ask_chat, {"chat_template": "{{ 1 }}"}, "chat_template"),
    (ask_chat, {"structured_outputs": {"a": "b"}}, "structured_outputs"),
    (
        ask_chat,
        {"structured_outputs": {"regex": "a"}, "params": {"json_schema": "{}"}},
        "structured_outputs",
    ),
]


@pytest.mark.parametrize(("ask", "asked", "field"), UNHONOURED)
def test_a_field_of_vllm_that_sglang_cannot_honour_is_named(
    ask: Any, asked: Json, field: str
) -> None:
    with pytest.raises(BadRequest, match=f"^{field}"):
        ask(**asked)


def test_the_page_lists_the_fields_that_are_rejected() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/api.md").read_text()
    section = page.split("## Fields of vLLM in chat and completions")[1].split("\n## ")[
        0
    ]
    rows = re.findall(r"^\| (.*?) \| 400", section, re.MULTILINE)
    listed = {*re.findall(r"`(\w+)`", " ".join(rows))}
    assert listed - {"n"} == {*fields._REFUSED}


def test_a_parameter_that_vllm_does_not_have_is_named() -> None:
    with pytest.raises(BadRequest, match="stop_regex"):
        in_vllm_terms({"stop_regex": "a"})


ROWS = [(-0.5, 7, None), (float("-inf"), 8, None)]
TOPS = [
    [(-0.1, 9, None), (-0.5, 7, None), (-3.0, 1, None)],
    [(-0.1, 9, None), (-0.2, 2, None), (-3.0, 1, None)],
]


def test_the_rank_of_an_unlikely_prompt_token_is_the_last() -> None:
    info = {
        "prompt_tokens": 3,
        "input_token_logprobs": [(None, 1, None), *ROWS],
        "input_top_logprobs": [None, *TOPS],
    }
    first, second, third = generate.prompt_logprobs(2, info)
    assert first is None
    assert {key: one["rank"] for key, one in second.items()} == {"7": 2, "9": 1}
    ranks = {key: one["rank"] for key, one in third.items()}
    assert ranks == {"8": 3, "9": 1, "2": 2}
    assert third["8"]["logprob"] == -9999.0
    _, second, _ = generate.prompt_logprobs(0, info)
    assert [one["rank"] for one in second.values()] == [None]


@pytest.mark.parametrize(
    ("n_tops", "first", "second"),
    [
        (2, [(7, 2), (9, 1)], [(8, None), (9, 1)]),
        (0, [(7, 2)], [(8, None)]),
    ],
)
def test_the_sampled_token_is_the_first_alternative(
    n_tops: int, first: list[Any], second: list[Any]
) -> None:
    entries = generate.entries(ROWS, TOPS, n_tops)
    assert [entry.get("rank") for entry in entries] == [2, None]
    assert [
        [(top["token_id"], top.get("rank")) for top in entry["top_logprobs"]]
        for entry in entries
    ] == [first, second]
    lowest = [[(-0.5, 7, None), (-3.4028234663852886e38, 9, None)]]
    [entry] = generate.entries(ROWS[:1], lowest, 2)
    assert entry["top_logprobs"][1]["logprob"] == -9999.0


def test_an_unknown_shape_stops_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("", *generate.SHAPES):
        monkeypatch.setenv(generate.EXPERTS, name)
        assert generate.shape() == (name or "npy")
    monkeypatch.setenv(generate.EXPERTS, "numpy")
    with pytest.raises(ValueError, match="AGENTCORE_VLLM_EXPERTS is 'numpy'"):
        generate.shape()


def test_a_rejection_by_the_engine_is_an_error() -> None:
    obj: Any = None
    sampling = translate(tokenizer_manager(), {}, wants_text=False)
    job = generate.Job(obj, sampling, "a", "m", [1], 0, False, False, "")
    reason = {"type": "abort", "message": "too long", "status_code": 503}
    choices = generate._Choices(tokenizer_manager(), job)
    with pytest.raises(BadRequest, match="too long") as refusal:
        choices.chunk({"meta_info": {"finish_reason": reason}})
    assert refusal.value.status == 503


class Engine:
    """A tokenizer manager whose engine never finishes a request."""

    def __init__(self) -> None:
        self.server_args = SimpleNamespace(language_only=False)
        self.rid_to_state: Json = {}
        self.aborted: list[str] = []
        self.running: Json = {}
        manager: Any = self
        self.aborts = aborts.Aborts(manager, self.running)

    def abort_request(self, rid: str) -> None:
        self.aborted.append(rid)

    def run(self, request_id: str) -> Any:
        """Note a request, of which nothing was sent to the engine."""
        params: Json = {}
        sampling = SimpleNamespace(params=params)
        asked: Any = SimpleNamespace(request_id=request_id, sampling=sampling)
        self.running[request_id] = asked
        return asked

    def send(self, asked: Any, rid: str, engine_rid: str | None = None) -> None:
        obj = SimpleNamespace(sampling_params=asked.sampling.params)
        state: Any = SimpleNamespace(obj=obj)
        exchanges.run_of(state).engine_rid = engine_rid
        self.rid_to_state[rid] = state


async def until(condition: Any) -> None:
    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(wait(), 10)


def test_samples_that_start_after_the_abort_are_aborted_too() -> None:
    async def abort() -> None:
        engine = Engine()
        asked = engine.run("r")
        engine.send(engine.run("other"), "other", engine_rid="o")
        assert engine.aborts.start("unknown") == 0
        assert engine.aborts.start("r") == 1
        engine.send(asked, "prefill")
        await asyncio.sleep(0.1)
        assert engine.aborted == []
        engine.send(asked, "prefill", engine_rid="p")
        await until(lambda: engine.aborted == ["prefill"])
        engine.send(asked, "sample", engine_rid="s")
        await until(lambda: "sample" in engine.aborted)
        await until(lambda: engine.aborted.count("sample") > 1)
        assert "other" not in engine.aborted
        engine.rid_to_state.clear()
        engine.running.clear()
        await until(lambda: not engine.aborts._open)

    asyncio.run(abort())


class Visited(dict[str, Any]):
    """States of requests; counts how many are visited."""

    n_visited = 0

    def items(self) -> Any:
        self.n_visited += len(self)
        return super().items()


@pytest.mark.parametrize("each", [False, True], ids=["all", "each by its ID"])
def test_aborts_cost_no_more_for_a_request_among_many(each: bool) -> None:
    async def abort() -> None:
        count = 1000
        engine = Engine()
        engine.rid_to_state = states = Visited()
        for number in range(count):
            engine.send(engine.run(f"{number}"), f"{number}", engine_rid="sent")
        for request_id in engine.running if each else (None,):
            engine.aborts.start(request_id)
        await asyncio.sleep(1)
        assert 1 <= states.n_visited / count <= 7
        assert len(engine.aborted) <= 2 * count

    asyncio.run(abort())


def test_the_salt_precedes_the_adapter() -> None:
    for salt, own in product(("salt", None), ("lora", None)):
        made: Any = SimpleNamespace(extra_key=own)
        received: Any = SimpleNamespace(extra_key=salt)
        salts.salt(received, made)
        assert made.extra_key == ("".join(filter(None, (salt, own))) or None)


def test_unsent_requests_are_dropped() -> None:
    engine = Engine()
    manager: Any = engine
    one, several = engine.run("one"), engine.run("several")
    several.sampling.params["n"] = 2
    engine.send(one, "one")
    engine.send(several, "unsent")
    engine.send(several, "sent", engine_rid="a")
    engine.send(engine.run("other"), "other")
    for asked_ in (one, several):
        aborts.forget_unsent(manager, asked_)
    assert set(engine.rid_to_state) == {"sent", "other"}


def test_the_lowest_priority_is_first() -> None:
    flags = ("enable_priority_scheduling", "schedule_low_priority_values_first")
    for lowest_first, expected in ((True, 3), (False, -3)):
        server = tokenizer_manager(
            **dict(zip(flags, (True, lowest_first), strict=True))
        )
        assert generate._priority(server, 3) == expected
        assert generate._priority(server, None) is None
    assert generate._priority(tokenizer_manager(), 0) is None
    with pytest.raises(BadRequest, match="--enable-priority-scheduling"):
        generate._priority(tokenizer_manager(), 3)


def call(query: Json | None = None, **fields: Any) -> Any:
    request: Any = None
    return admin._Call(request, fields, query or {})


def test_fields_of_a_query_and_of_a_body() -> None:
    asked = call({"mode": ["keep"], "clear_cache": ["false"], "tags": ["a,b", "c"]})
    assert asked.strings("tags") == ["a", "b", "c"]
    assert asked.text("mode", "keep") == "keep" and asked.flag("clear_cache") is False
    assert call(tags="a,b").strings("tags") == ["a,b"]
    assert call(level=2).text("level", "1", "2") == "2"
    wrong: tuple[Any, ...] = (["a", "b"], True, {})
    for bad in wrong:
        with pytest.raises(BadRequest, match="mode"):
            call(mode=bad).text("mode", "keep")
    with pytest.raises(BadRequest, match="other is not supported"):
        call(mode="keep", other=1).only("mode")
    call({"other": ["false"]}, more=None).only("mode")


def test_verify_knows_every_route_of_vllm() -> None:
    assert {generate.PATH, rendering.PATH, *admin.ROUTES} == set(ROUTES)


@pytest.mark.parametrize(
    ("sizes", "with_dp", "without_dp"),
    [
        ({}, 1, 1),
        ({"tp_size": 4, "pp_size": 2}, 8, 8),
        ({"tp_size": 4, "dp_size": 2}, 8, 4),
        ({"tp_size": 4, "dp_size": 2, "enable_dp_attention": True}, 4, 4),
    ],
)
def test_the_world_size(sizes: Json, with_dp: int, without_dp: int) -> None:
    one = {"tp_size": 1, "pp_size": 1, "dp_size": 1, "enable_dp_attention": False}
    control = admin._Control(tokenizer_manager(**{**one, **sizes}), {}, lambda _: 0)
    for query, expected in ({}, with_dp), ({"include_dp": ["false"]}, without_dp):
        found = asyncio.run(control.get_world_size(call(query)))
        assert found == {"world_size": expected}


class Request(SimpleNamespace):
    """Stands in for a request to the engine of any type."""


@pytest.fixture
def _requests(monkeypatch: pytest.MonkeyPatch) -> None:
    names = (
        *("PauseGeneration", "ContinueGeneration", "Generate"),
        "ReleaseMemoryOccupation",
    )
    module = SimpleNamespace(**{f"{name}ReqInput": Request for name in names})
    for name in ("sglang", "sglang.srt", "sglang.srt.managers"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "sglang.srt.managers.io_struct", module)


@pytest.mark.usefixtures("_requests")
def test_a_server_that_cannot_sleep_keeps_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = b'{"error": {"message": "Nothing was released"}}'
    refusal = SimpleNamespace(status_code=400, body=body)
    release = AsyncMock(side_effect=[refusal, refusal, None])
    server = tokenizer_manager(enable_memory_saver=True)
    server.is_pause = False
    server.server_args.enable_weights_cpu_backup = True
    server.pause_generation, server.continue_generation = AsyncMock(), AsyncMock()
    native = {"release_memory_occupation": release}
    control = admin._Control(server, native, lambda _: 0)
    # The engine settles after a while.
    assert asyncio.run(control.sleep(call())) == {"status": "sleeping"}
    assert release.await_count == 3
    server.continue_generation.assert_not_awaited()
    monkeypatch.setattr(admin, "_SETTLES_WITHIN", -1)
    release.side_effect = [refusal]
    with pytest.raises(BadRequest, match="Nothing was released"):
        asyncio.run(control.sleep(call()))
    server.continue_generation.assert_awaited_once()
