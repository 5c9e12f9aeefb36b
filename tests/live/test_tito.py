"""Token-in, token-out chat: prompts as IDs, answers as IDs, and what is refused."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tokenizers import Tokenizer

from agentcore_verify import client
from agentcore_verify.scripted_model import STOP_WORD, line
from agentcore_verify.server import Server
from tests.helpers.asking import (
    CASES,
    ask,
    assert_equal,
    assert_whole,
    skip_what_no_grammar_serves,
)
from tests.helpers.endpoints import refused
from tests.helpers.servers import Launch, Trees

VOCABULARY = 448
DUMMY: list[dict[str, str]] = [{"role": "user", "content": "-"}]


@pytest.mark.parametrize(
    "name",
    ["plain", "two tool calls", "tool call required", "a stop string", "n = 2"],
)
@pytest.mark.parametrize("stream", [False, True])
def test_the_prompt_sent_back_as_ids_gives_the_same(
    server: Server, name: str, stream: bool
) -> None:
    skip_what_no_grammar_serves(server, name)
    templated = ask(server, CASES[name])
    given = ask(
        server,
        CASES[name],
        messages=DUMMY,
        input_ids=list(templated.prompt_token_ids or ()),
        stream=stream,
    )
    assert_whole(given)
    assert_equal(given, templated)
    if not stream:
        for one, other in zip(given.completions, templated.completions, strict=True):
            assert one.content == other.content
            assert one.reasoning_content == other.reasoning_content
            assert [(call.name, call.arguments) for call in one.tool_calls] == [
                (call.name, call.arguments) for call in other.tool_calls
            ]


def test_a_conversation_held_in_ids_is_the_scripted_one(
    server: Server, tokenizer: Tokenizer
) -> None:
    scripted = line("second_turn_ada")
    first, answered, second = scripted.messages
    opening = ask(server, CASES["plain"], messages=[first])
    so_far = list(opening.prompt_token_ids or ())
    so_far += tokenizer.encode(
        f"{answered['content']}<|im_end|>\n<|im_start|>user\n{second['content']}"
        "<|im_end|>\n<|im_start|>assistant\n"
    ).ids
    by_ids = ask(server, CASES["plain"], messages=DUMMY, input_ids=so_far)
    [choice] = by_ids.completions
    assert tokenizer.decode(list(choice.token_ids or ())[:-1]) == scripted.text
    assert by_ids.prompt_token_ids == tuple(so_far)


def test_a_second_turn_appended_to_generated_ids(
    server: Server, tokenizer: Tokenizer
) -> None:
    """Prompt IDs, completion IDs, the next turn's IDs: nothing is tokenized again."""
    opening = ask(server, CASES["one tool call"], tools=None)
    [called] = opening.completions
    assert tokenizer.decode(list(called.token_ids or ())[:-1]) == line("tool").text
    result = tokenizer.encode(
        "\n<|im_start|>user\n<tool_response>\nsunny, 20 C\n</tool_response><|im_end|>\n"
        "<|im_start|>user\nAnd now in words?<|im_end|>\n<|im_start|>assistant\n"
    ).ids
    prompt = [*(opening.prompt_token_ids or ()), *(called.token_ids or ()), *result]
    templated = ask(server, CASES["plain"], messages=line("tool_result").messages)
    assert templated.prompt_token_ids == tuple(prompt)
    by_ids = ask(server, CASES["plain"], messages=DUMMY, input_ids=prompt)
    assert_equal(by_ids, templated)
    [choice] = by_ids.completions
    said = tokenizer.decode(list(choice.token_ids or ())[:-1])
    assert said == line("tool_result").text


def test_every_choice_has_the_prompt_and_the_meta_info(server: Server) -> None:
    answer = client.chat(
        server.base_url,
        **CASES["reasoning, then a tool call"].body(
            n=3, return_prompt_token_ids=True, return_meta_info=True, logprobs=True
        ),
    )
    assert len(answer["choices"]) == 3
    for choice in answer["choices"]:
        assert choice["prompt_token_ids"] == answer["prompt_token_ids"]
        meta_info = choice["meta_info"]
        assert meta_info["completion_tokens"] == len(choice["token_ids"])
        assert meta_info["prompt_tokens"] == len(choice["prompt_token_ids"])
        assert [
            token_id for _, token_id, _ in meta_info["output_token_logprobs"]
        ] == choice["token_ids"]
        assert choice["finish_reason"] == "tool_calls"
        assert meta_info["finish_reason"]["type"] == "stop"


def test_the_fields_are_absent_when_not_asked_for(server: Server) -> None:
    [choice] = client.chat(server.base_url, **CASES["plain"].body())["choices"]
    assert "prompt_token_ids" not in choice
    assert "meta_info" not in choice


@pytest.mark.parametrize("field", ["return_prompt_token_ids", "return_meta_info"])
def test_what_a_stream_cannot_carry_is_refused(server: Server, field: str) -> None:
    with refused(field, "stream=false"):
        ask(server, CASES["plain"], stream=True, **{field: True})


BAD: dict[str, tuple[Any, str]] = {
    "empty": ([], "empty"),
    "negative": ([5, -1, 6], "input_ids[1]"),
    "beyond the vocabulary": ([5, 6, VOCABULARY], "input_ids[2]"),
    "beyond 64 bits": ([2**70], "input_ids[0]"),
    "strings": (["5", "6"], "str"),
    "floats": ([5.0, 6.5], "float"),
    "booleans": ([True], "bool"),
    "nulls": ([None], "NoneType"),
    "nested": ([[5, 6]], "list"),
    "no list": ("5 6", "input_ids"),
    "longer than the context": ([5] * 50_000, "50000"),
    "longer than the cache": ([5] * 16_384, "16384"),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("what", BAD)
def test_bad_input_ids_are_refused_and_the_server_serves_on(
    server: Server, what: str, stream: bool
) -> None:
    input_ids, word = BAD[what]
    with refused(word) as refusal:
        ask(server, CASES["plain"], input_ids=input_ids, stream=stream)
    assert len(refusal.value.body) < 2_000
    good = ask(server, CASES["plain"], max_tokens=3)
    assert len(good.completions[0].token_ids or ()) == 3


def test_a_long_good_prompt_is_served(server: Server) -> None:
    started = time.perf_counter()
    input_ids = [0, VOCABULARY - 1, *[5] * 9_000]
    answer = ask(server, CASES["plain"], input_ids=input_ids, max_tokens=2)
    assert answer.prompt_token_ids == tuple(input_ids)
    assert time.perf_counter() - started < 120


def test_generate_gives_the_prompt_of_every_item(
    server: Server, tokenizer: Tokenizer
) -> None:
    texts = ["Say hello.", f"Here they are: {STOP_WORD}", "東京"]
    ids = [tokenizer.encode(text).ids for text in texts]
    sampling = {"temperature": 0, "max_new_tokens": 4, "ignore_eos": True}
    for prompt in ({"text": texts}, {"input_ids": ids}):
        for n in (1, 2):
            items = client.generate(
                server.base_url,
                **prompt,
                sampling_params={**sampling, "n": n},
                return_prompt_token_ids=True,
            )
            assert [item["prompt_token_ids"] for item in items] == [
                one for one in ids for _ in range(n)
            ]
            assert all(len(item["output_ids"]) == 4 for item in items)
    one = client.generate(server.base_url, text=texts[0], sampling_params=sampling)
    assert "prompt_token_ids" not in one


def test_a_prompt_that_the_engine_cuts_is_given_as_cut(
    trees: Trees, launch: Launch
) -> None:
    with launch(
        trees.patched, "--allow-auto-truncate", "--context-length", "200"
    ) as server:
        answer = ask(server, CASES["plain"], input_ids=[5] * 500, max_tokens=2)
        assert answer.usage is not None and answer.prompt_token_ids is not None
        assert len(answer.prompt_token_ids) == answer.usage["prompt_tokens"] < 200
