"""Turns whose prompts start with exactly the tokens of the previous turns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import requests
from tokenizers import Tokenizer

from agentcore_patches.errors import ServerError
from agentcore_patches.patches.releases import is_between
from agentcore_verify import client
from agentcore_verify.scripted_model import TOOLS, line
from agentcore_verify.server import Server
from agentcore_verify.subject import Subject
from tests.helpers.conversing import (
    BAD_PREFIXES,
    QUESTIONS,
    billing_header,
    body,
    follow_up,
    ids_of,
    is_object,
    is_sent_back,
    message_of,
    prefix_of,
    turns,
)
from tests.helpers.endpoints import (
    CHAT,
    MESSAGES,
    MESSAGES_TOOLS,
    RESPONSES,
    RESPONSES_TOOLS,
    refused,
    require_traced,
)
from tests.helpers.servers import Launch, Trees, held, in_one_mode
from tests.helpers.waiting import wait_until
from tests.live.conftest import PREFIX_CACHE, PREFIX_IGNORE

USER = {"role": "user", "content": "Say hello."}


def called(message: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an assistant message with a tool call."""
    function = {"name": name, "arguments": "{}"}
    call = {"id": "a", "type": "function", "function": function}
    return {**message, "tool_calls": [call]}


@pytest.mark.parametrize("how", ["request", "message"])
@pytest.mark.parametrize("stream", [False, True])
def test_eight_turns_start_with_the_previous_turns(
    server: Server, how: str, stream: bool
) -> None:
    assert_continued(list(turns(server.base_url, how, stream=stream)), how)


def assert_continued(answers: list[client.Answer], how: str) -> None:
    assert len(answers) == len(QUESTIONS)
    assert prefix_of(answers[0]) is None
    assert sum(bool(answer.completions[0].tool_calls) for answer in answers)
    for before, answer in pairwise(answers):
        required = ids_of(before)
        said = prefix_of(answer)
        assert said is not None
        if said["source"] == "template":
            assert how == "server"
            assert not is_sent_back(before.completions[0])
            assert said["missed"].startswith("message ")
            continue
        assert said["source"] == how
        assert said["required"] == said["kept"] == len(required)
        assert said["template_matched"] <= len(required)
        prompt = list(answer.prompt_token_ids or ())
        assert prompt[: len(required)] == required
        assert len(prompt) > len(required)


def test_the_template_alone_drops_the_reasoning(
    server: Server, tokenizer: Tokenizer
) -> None:
    answers = list(turns(server.base_url, "request", ("reasoning", "plain")))
    said = prefix_of(answers[1])
    assert said is not None
    reasons = answers[0].completions[0].reasoning_content
    assert (said["template_matched"] < said["required"]) == bool(reasons)
    end = tokenizer.decode(
        list(answers[1].prompt_token_ids or ())[said["kept"] - 1 :],
        skip_special_tokens=False,
    )
    assert end == (
        "<|im_end|>\n<|im_start|>user\nSay hello.<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("stream", [False, True])
def test_a_continued_message_starts_from_its_own_tokens(
    server: Server, stream: bool
) -> None:
    url = server.base_url
    first = client.ask(url, **body([USER], max_tokens=3))
    messages = [USER, {"role": "assistant", "content": "He"}]
    required = ids_of(first)
    second = client.ask(
        url,
        **body(
            messages,
            required_prefix_token_ids=required,
            continue_final_message=True,
            stream=stream,
        ),
    )
    assert list(second.prompt_token_ids or ()) == required
    whole = client.ask(url, **body([USER]))
    together = [*ids_of(first), *(second.completions[0].token_ids or ())]
    assert together == ids_of(whole)


BAD: tuple[tuple[dict[str, Any], str], ...] = (
    *BAD_PREFIXES,
    ({"required_prefix_token_ids": [7], "input_ids": [7]}, "input_ids"),
    ({"required_prefix_token_ids": [7], "messages": [USER]}, "assistant message"),
    (
        {
            "required_prefix_token_ids": [7],
            "messages": [USER, {"role": "assistant", "content": "Hello."}],
        },
        "last message",
    ),
)

# What is wrong about the IDs on a message, and their name in the refusal.
BAD_ON_A_MESSAGE: tuple[tuple[dict[str, Any], str], ...] = (
    ({"prompt_token_ids": "7", "token_ids": [7]}, "prompt_token_ids"),
    ({"prompt_token_ids": [7], "token_ids": {"7": 7}}, "token_ids"),
    (
        {"prompt_token_ids": [7], "generation_token_ids": [-1]},
        "prompt_token_ids with its generation_token_ids",
    ),
)


@in_one_mode
def test_a_bad_prefix_is_refused(server: Server) -> None:
    messages = [USER, {"role": "assistant", "content": "Hello."}, USER]
    for asked, said in BAD:
        named = () if "longer than" in said else ("required_prefix_token_ids",)
        for stream in (False, True):
            with refused(said, *named):
                client.ask(server.base_url, **body(messages, stream=stream) | asked)
    for carried, name in BAD_ON_A_MESSAGE:
        with refused(f"messages[1].{name}"):
            client.ask(
                server.base_url, **body([USER, {**messages[1], **carried}, USER])
            )
    client.ask(server.base_url, **body([USER]))


@in_one_mode
@pytest.mark.parametrize("nothing", [None, []])
def test_null_and_empty_count_as_absent(server: Server, nothing: Any) -> None:
    messages = [USER, {"role": "assistant", "content": "Hello."}, USER]
    carried = {"prompt_token_ids": nothing, "token_ids": nothing}
    messages[1] |= carried
    answer = client.ask(
        server.base_url, **body(messages, required_prefix_token_ids=nothing)
    )
    assert prefix_of(answer) is None


def test_several_choices_continue_the_same_prefix(server: Server) -> None:
    first = client.ask(server.base_url, **body([USER], n=2))
    for choice in (0, 1):
        messages = [USER, message_of(first.completions[choice]), USER]
        required = ids_of(first, choice)
        asked = {"required_prefix_token_ids": required, "n": 2}
        for stream in (False, True):
            second = client.ask(
                server.base_url, **body(messages, stream=stream, **asked)
            )
            assert len(second.completions) == 2
            assert list(second.prompt_token_ids or ())[: len(required)] == required


def test_the_prefix_works_without_returned_ids(server: Server) -> None:
    first = client.ask(server.base_url, **body([USER]))
    messages = [USER, message_of(first.completions[0]), USER]
    asked = {"required_prefix_token_ids": ids_of(first), "return_token_ids": False}
    for stream in (False, True):
        second = client.ask(server.base_url, **body(messages, stream=stream, **asked))
        said = prefix_of(second)
        assert said is not None and said["kept"] == len(ids_of(first))
        assert second.prompt_token_ids is None


def test_tokenize_gives_the_same_ids(server: Server) -> None:
    url = server.base_url
    first, second = turns(url, "request", QUESTIONS[:2])
    [completion] = first.completions
    messages = [
        {"role": "user", "content": line(QUESTIONS[0]).question},
        message_of(completion),
        *follow_up(completion, QUESTIONS[1]),
    ]
    request = body(messages, required_prefix_token_ids=ids_of(first))
    asked = {k: request[k] for k in ("messages", "tools", "required_prefix_token_ids")}
    assert tokenized(url, **asked) == list(second.prompt_token_ids or ())
    del asked["required_prefix_token_ids"]
    messages[1] |= {
        "prompt_token_ids": list(first.prompt_token_ids or ()),
        "token_ids": list(completion.token_ids or ()),
    }
    assert tokenized(url, **asked) == list(second.prompt_token_ids or ())
    with refused():
        tokenized(url, **asked, required_prefix_token_ids=[-1])


def test_tokenize_gives_the_context_length_if_the_tokenizer_has_none(
    remembering: Server,
) -> None:
    """transformers reports 10^30, which stock SGLang cannot write before 0.5.19."""
    url = remembering.base_url
    [card] = requests.get(f"{url}/v1/models", timeout=30).json()["data"]
    for asked in ({"prompt": "a"}, {"prompt": ["a", "b"]}, {"messages": [USER]}):
        answer = client.post_json(f"{url}/tokenize", {"model": "default", **asked})
        assert answer["max_model_len"] == card["max_model_len"]
    text = client.post_json(f"{url}/detokenize", {"model": "x", "tokens": [7, 8]})
    assert isinstance(text["text"], str)


def tokenized(url: str, **request: Any) -> list[int]:
    answer = client.post_json(f"{url}/tokenize", {"model": "default", **request})
    assert answer["count"] == len(answer["tokens"])
    token_ids: list[int] = answer["tokens"]
    return token_ids


@pytest.mark.parametrize("stream", [False, True])
def test_the_memory_continues_a_conversation_by_itself(
    remembering: Server, stream: bool
) -> None:
    answers = list(turns(remembering.base_url, "server", stream=stream))
    assert_continued(answers, "server")


def test_return_token_ids_false_uses_no_memory(remembering: Server) -> None:
    answers = list(
        turns(remembering.base_url, "server", QUESTIONS[:2], return_token_ids=False)
    )
    assert list(map(prefix_of, answers)) == [None, None]


def test_messages_continue_without_extra_fields(
    remembering: Server, release: str
) -> None:
    require_traced(MESSAGES, release)
    url = remembering.base_url + MESSAGES
    for stream in (False, True):
        asked = {"system": f"streamed: {stream}"}
        user = {"role": "user", "content": line("reasoning").question}
        first = message(url, stream, **asked, messages=[user])
        assert "metadata" not in first
        history = [user, {"role": "assistant", "content": first["content"]}, user]
        second = message(url, stream, **asked, messages=history)
        said = second["metadata"]["prefix"]
        assert said["source"] == "server" and said["kept"] == said["required"]
        asked["system"] += "."
        third = message(url, stream, **asked, messages=history)
        said = third["metadata"]["prefix"]
        assert said == {"source": "template", "missed": "system"}


@pytest.mark.parametrize("stream", [False, True])
def test_messages_accept_a_prefix_and_reject_a_bad_one(
    server: Server, release: str, stream: bool
) -> None:
    require_traced(MESSAGES, release)
    url = server.base_url + MESSAGES
    before = set(held(server))
    first = client.ask(server.base_url, **body([USER], tools=None))
    messages = [USER, {"role": "assistant", "content": "Hello!"}, USER]
    required = ids_of(first)
    second = message(
        url,
        stream,
        messages=messages,
        required_prefix_token_ids=required,
        return_token_ids=True,
    )
    assert second["metadata"]["prefix"]["source"] == "request"
    assert second["prompt_token_ids"][: len(required)] == required
    for bad in ([-1], ["7"], "7", [7] * 40000):
        with refused("required_prefix_token_ids"):
            message(url, stream, messages=messages, required_prefix_token_ids=bad)
    wait_until(lambda: set(held(server)) <= before)


def message(url: str, stream: bool, **asked: Any) -> dict[str, Any]:
    """Return a message; a stream's events are joined."""
    asked = {"model": "default", "max_tokens": 60, "temperature": 0, **asked}
    if not stream:
        answer: dict[str, Any] = client.post_json(url, asked)
        return answer
    events = list(client.post_stream(url, asked, done=False))
    made: dict[str, Any] = events[0]["message"]
    blocks: list[dict[str, Any]] = []
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append({**event["content_block"], "json": ""})
        if event["type"] == "content_block_delta":
            delta = event["delta"]
            if "text" in delta:
                blocks[-1]["text"] = (blocks[-1].get("text") or "") + delta["text"]
            blocks[-1]["json"] += delta.get("partial_json") or ""
    for block in blocks:
        arguments = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(arguments) if is_object(arguments) else {}
    token_ids = [one for event in events for one in event.get("token_ids", ())]
    return {**made, "content": blocks, "token_ids": token_ids}


# With a reasoning parser, the tiny model's turns here are only reasoning.
@pytest.mark.parametrize("remembering", ["default"], indirect=True)
@pytest.mark.parametrize("stream", [False, True])
def test_claude_code_continues_although_its_header_changes(
    remembering: Server, release: str, stream: bool
) -> None:
    require_traced(MESSAGES, release)
    messages: list[dict[str, Any]] = []
    required: list[int] = []
    for number, question in enumerate(("reasoning", "plain", "emoji")):
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": "sunny"}
            for block in (messages[-1]["content"] if messages else ())
            if block["type"] == "tool_use"
        ]
        text = {"type": "text", "text": line(question).question}
        messages.append({"role": "user", "content": [*results, text]})
        answer = message(
            remembering.base_url + MESSAGES,
            stream,
            system=[
                {"type": "text", "text": billing_header(number)},
                {
                    "type": "text",
                    "text": "You are Claude Code.",
                    "cache_control": {"type": "ephemeral"},
                },
                {"type": "text", "text": f"Streamed: {stream}"},
                {"type": "text", "text": budget(900 - number)},
            ],
            messages=messages,
            tools=MESSAGES_TOOLS,
            return_token_ids=True,
        )
        prompt = answer["prompt_token_ids"]
        if number:
            said = answer["metadata"]["prefix"]
            assert said["source"] == "server"
            assert said["required"] == said["kept"] == len(required)
            # The template would have written the new header.
            assert said["template_matched"] < len(required)
            assert prompt[: len(required)] == required
        else:
            assert "metadata" not in answer
        required = [*prompt, *answer["token_ids"]]
        messages.append({"role": "assistant", "content": answer["content"]})


def budget(number: int) -> str:
    return f"<total_tokens>{number} tokens left</total_tokens>"


@pytest.mark.parametrize("stream", [False, True])
def test_chat_continues_although_its_system_prompt_has_volatile_lines(
    remembering: Server, stream: bool
) -> None:
    url = remembering.base_url

    def ask(number: int, *messages: Any, content: Any = None) -> client.Answer:
        text = f"Streamed: {stream}"
        system = f"{billing_header(number)}\n{text}\n{budget(number)}"
        messages = ({"role": "system", "content": content or system}, *messages)
        return client.ask(url, **body([*messages], stream=stream))

    first = ask(1, USER)
    history = [USER, message_of(first.completions[0]), USER]
    said = prefix_of(ask(2, *history))
    assert said is not None
    assert said["source"] == "server" and said["required"] == len(ids_of(first))
    # Any other text of the system prompt counts, wherever it is.
    for content in (
        f"Call x-anthropic-billing-header.\nStreamed: {stream}",
        f"Streamed: {stream} {budget(1)}",
    ):
        assert missed(ask(1, *history, content=content)) == "system"


@pytest.mark.parametrize("stream", [False, True])
def test_user_text_counts_even_if_it_looks_volatile(
    remembering: Server, stream: bool
) -> None:
    url = remembering.base_url
    for volatile in (billing_header, budget):
        asked = {"role": "user", "content": f"{volatile(1)}\nStreamed: {stream}"}
        first = client.ask(url, **body([asked], stream=stream))
        asked["content"] = f"{volatile(2)}\nStreamed: {stream}"
        messages = [asked, message_of(first.completions[0]), USER]
        second = client.ask(url, **body(messages, stream=stream))
        assert missed(second) == "message 0"


def missed(answer: client.Answer) -> Any:
    """Return `missed` of a response's `metadata.prefix`."""
    said = prefix_of(answer)
    assert said is not None
    assert said.keys() == {"source", "missed"} and said["source"] == "template"
    return said["missed"]


@pytest.mark.parametrize("stream", [False, True])
def test_similar_conversations_do_not_mix(remembering: Server, stream: bool) -> None:
    url = remembering.base_url
    first: dict[str, client.Answer] = {}
    for word in (f"amber {stream}", f"cobalt {stream}"):
        asked = [{"role": "system", "content": word}, USER]
        first[word] = client.ask(url, **body(asked, stream=stream))
    for word, answer in first.items():
        system = {"role": "system", "content": word}
        messages = [system, USER, message_of(answer.completions[0]), USER]
        second = client.ask(url, **body(messages, stream=stream))
        required = ids_of(answer)
        assert list(second.prompt_token_ids or ())[: len(required)] == required
        answered = messages[2]
        unlike = {"role": "system", "content": f"new {word}"}
        others: tuple[tuple[str, dict[str, Any]], ...] = (
            ("tools", {"tools": None}),
            ("tools", {"tools": None, "chat_template_kwargs": {"x": 1}}),
            ("model", {"model": "another"}),
            ("cache_salt", {"cache_salt": "another"}),
            ("template", {"chat_template_kwargs": {"x": 1}}),
            ("system", {"messages": [{**system, "content": "x"}, *messages[1:]]}),
            ("system", {"messages": messages[1:]}),
            (
                "message 1",
                {"messages": [system, {**USER, "content": word}, *messages[2:]]},
            ),
            (
                "message 2",
                {
                    "messages": [
                        system,
                        USER,
                        {**answered, "content": f"x {word}"},
                        USER,
                    ]
                },
            ),
            (
                "message 2",
                {"messages": [system, USER, called(answered, word), USER]},
            ),
            ("message 1", {"messages": [system, {**answered, "content": word}, USER]}),
            (
                "message 1",
                {"messages": [unlike, unlike | {"role": "user"}, answered, USER]},
            ),
        )
        for reason, other in others:
            asked_otherwise = {**body(messages, stream=stream), **other}
            assert missed(client.ask(url, **asked_otherwise)) == reason, other
        # There is no metadata if the memory does not apply.
        opted_out = client.ask(
            url, **body(messages, stream=stream, return_token_ids=False)
        )
        assert prefix_of(opted_out) is None
        beginning = client.ask(url, **body([system, USER, USER], stream=stream))
        assert prefix_of(beginning) is None
        given = {"required_prefix_token_ids": required, "cache_salt": "x"}
        said = prefix_of(client.ask(url, **body(messages, stream=stream, **given)))
        assert said is not None and said["source"] == "request"
    log = remembering.options.log.read_text()
    assert "Conversation memory: " in log
    assert "message: " in log


def test_answers_with_the_same_text_but_other_tokens_are_ambiguous(
    remembering: Server,
) -> None:
    asked = [{"role": "system", "content": "ambiguous"}, USER]
    first = client.ask(remembering.base_url, **body(asked))
    [completion] = first.completions
    n_tokens = len(completion.token_ids or ()) - 1
    # Cut off before the end-of-turn token.
    again = client.ask(remembering.base_url, **body(asked, max_tokens=n_tokens))
    assert again.completions[0].content == completion.content
    messages = [*asked, message_of(completion), USER]
    third = client.ask(remembering.base_url, **body(messages))
    assert missed(third) == "ambiguous"


HELLO = {"role": "assistant", "content": "Hello!"}


def opened(text: str) -> list[Any]:
    """Return messages that are known to no other test; the answer has text."""
    asked = {"role": "user", "content": f"Demo: {text}?"}
    return [asked, HELLO, {"role": "user", "content": line("reasoning").question}]


KEYS = (
    {"Authorization": "Bearer a"},
    {"Authorization": "Bearer b"},
    {"x-api-key": "a"},
)


def turn(
    server: Server, path: str, history: list[Any], headers: Any = None, **more: Any
) -> tuple[dict[str, Any], list[Any]]:
    """Return `metadata.prefix` of a turn with its prompt, and the turn's messages."""
    field, limit = {
        CHAT: ("messages", "max_tokens"),
        MESSAGES: ("messages", "max_tokens"),
        RESPONSES: ("input", "max_output_tokens"),
    }[path]
    model = Subject(server.base_url).served_model()
    asked = {"model": model, "temperature": 0, "return_token_ids": True, limit: 60}
    answer = requests.post(
        server.base_url + path,
        json={**asked, field: history, **more},
        headers=headers,
        timeout=60,
    )
    if "unknown special token" in answer.text:
        pytest.skip("the scripted tokenizer lacks a token of the tools' grammar")
    assert answer.status_code == 200, answer.text
    made = answer.json()
    if path == CHAT:
        read = client.read_response(made)
        said = [message_of(read.completions[0])]
    elif path == MESSAGES:
        said = [{"role": "assistant", "content": made["content"]}]
    else:
        said = made["output"]
    prefix = {"prompt": made["prompt_token_ids"], "source": None, "missed": None}
    return prefix | ((made.get("metadata") or {}).get("prefix") or {}), said


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
def test_a_client_learns_nothing_of_another_ones_conversations(
    remembering: Server, release: str, path: str
) -> None:
    require_traced(path, release)
    asked = opened(f"the code of {path}")
    [first, *others] = KEYS
    said = turn(remembering, path, asked, first)[1]
    history = [*asked, *said, USER]
    known = turn(remembering, path, history, first)[0]
    assert known["source"] == "server"
    past = known["prompt"][: known["kept"]]
    guesses = (history, [USER, *asked[1:], *said, USER], [*asked[:2], HELLO, USER])
    for number, guess in enumerate(guesses):
        for other in others:
            # A client without conversations is told the same of each guess.
            fresh = {name: f"{path} {number} {key}" for name, key in other.items()}
            guessed = turn(remembering, path, guess, fresh)[0]
            assert guessed["source"] == "template"
            assert guessed["missed"] == "unknown"
            assert turn(remembering, path, guess, fresh)[0]["missed"] is not None
    alone = turn(remembering, path, history, KEYS[1], cache_salt="alone")[0]
    assert alone["prompt"][: len(past)] != past or known["template_matched"] == len(
        past
    )
    if path == CHAT:
        url = f"{remembering.base_url}/tokenize"
        model = Subject(remembering.base_url).served_model()
        chat = {"model": model, "messages": history}
        for headers, prompt in ((first, known["prompt"]), (None, alone["prompt"])):
            tokens = requests.post(url, json=chat, headers=headers, timeout=60).json()
            assert tokens["tokens"] == prompt


FORGED = [66] * 20
CARRIED = {"prompt_token_ids": FORGED, "token_ids": [5]}
SCHEMA = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}

CHOSEN: dict[str, tuple[str, dict[str, Any]]] = {
    "prefix": (CHAT, {"required_prefix_token_ids": FORGED}),
    "prefix and regex": (CHAT, {"required_prefix_token_ids": FORGED, "regex": "[a-z]"}),
    "regex": (CHAT, {"regex": "[a-z]+"}),
    "ebnf": (CHAT, {"ebnf": 'root ::= "a"'}),
    "vLLM's grammar": (CHAT, {"structured_outputs": {"regex": "[a-z]+"}}),
    "no end": (CHAT, {"ignore_eos": True}),
    "bias": (CHAT, {"logit_bias": {"42": 100}}),
    "stop": (CHAT, {"stop": ["e", "o", "a", " "]}),
    "stop regex": (CHAT, {"stop_regex": "[a-z ]"}),
    "schema": (
        CHAT,
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "a", "schema": SCHEMA},
            }
        },
    ),
    "object": (CHAT, {"response_format": {"type": "json_object"}}),
    "required": (CHAT, {"tools": list(TOOLS), "tool_choice": "required"}),
    "named": (
        CHAT,
        {
            "tools": list(TOOLS[:1]),
            "tool_choice": {
                "type": "function",
                "function": {"name": TOOLS[0]["function"]["name"]},
            },
        },
    ),
    "message": (MESSAGES, {"required_prefix_token_ids": FORGED}),
    "message stop": (MESSAGES, {"stop_sequences": ["e", "o", "a", " "]}),
    "message tools": (
        MESSAGES,
        {"tools": MESSAGES_TOOLS, "tool_choice": {"type": "any"}},
    ),
    "response": (RESPONSES, {"required_prefix_token_ids": FORGED}),
    "response stop": (RESPONSES, {"stop": ["e", "o", "a", " "]}),
    "response tools": (
        RESPONSES,
        {"tools": RESPONSES_TOOLS, "tool_choice": "required"},
    ),
    "response schema": (
        RESPONSES,
        {"text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}}},
    ),
}
"""Ways of a client to choose the tokens of a turn."""

IDENTIFYING = ("tools", "tool_choice", "response_format", "text")


# With a reasoning parser, the tiny model's turns here are only reasoning.
@pytest.mark.parametrize("remembering", ["default"], indirect=True)
@pytest.mark.parametrize(
    ("how", "stream"), [("prefix", True), *((how, False) for how in CHOSEN)]
)
def test_a_turn_whose_tokens_the_client_chose_is_not_remembered(
    remembering: Server, release: str, how: str, stream: bool
) -> None:
    path, chosen = CHOSEN[how]
    require_traced(path, release)
    if "text" in chosen and is_between(release, "", "0.5.15.post1"):
        pytest.skip("this release ignores the field")
    history = opened(f"{how}, {stream}")
    said = turn(remembering, path, history, **chosen)[1]
    if stream:
        streamed = client.ask(
            remembering.base_url,
            **(body(history, tools=None, stream=True) | chosen),
        )
        said = [message_of(streamed.completions[0])]
    kept = {name: value for name, value in chosen.items() if name in IDENTIFYING}
    found = turn(remembering, path, [*history, *said, USER], **kept)[0]
    assert found["source"] == "template", found
    assert found["prompt"][: len(FORGED)] != FORGED
    # From then on, the client's turns are remembered.
    if not kept:
        again = turn(remembering, path, [*history, *said, USER])
        found = turn(remembering, path, [*history, *said, USER, *again[1], USER])[0]
        assert found["source"] == "server", found


def test_a_turn_with_ids_on_a_message_is_not_remembered(remembering: Server) -> None:
    asked, hello, question = opened("IDs on a message")
    carried = [asked, {**hello, **CARRIED}, question]
    said = turn(remembering, CHAT, carried)[1]
    found = turn(remembering, CHAT, [asked, hello, question, *said, USER])[0]
    assert found["source"] == "template"
    assert found["prompt"][: len(FORGED)] != FORGED


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
def test_reasoning_that_the_template_wrote_must_be_sent_again(
    remembering: Server, release: str, path: str
) -> None:
    """Reasoning does not identify a conversation, but a template may write it."""
    require_traced(path, release)
    hidden: list[Any] | str = "<think>\nObey.\n</think>\n\nHello!"
    if path == MESSAGES:
        hidden = [
            {"type": "thinking", "thinking": "Obey.", "signature": "x"},
            {"type": "text", "text": "Hello!"},
        ]
    asked, _, question = bare = opened(f"reasoning on {path}")
    forged = [asked, {"role": "assistant", "content": hidden}, question]
    first, said = turn(remembering, path, forged)
    assert turn(remembering, path, [*forged, *said, USER])[0]["source"] == "server"
    found = turn(remembering, path, [*bare, *said, USER])[0]
    # Some releases drop the reasoning themselves.
    is_same = turn(remembering, path, bare)[0]["prompt"] == first["prompt"]
    assert found["source"] == ("server" if is_same else "template")


# A prompt of more tokens is cut.
LONGEST = 194


@pytest.fixture(scope="module")
def cutting(trees: Trees, launch: Launch) -> Iterator[Server]:
    """A server that remembers, and cuts prompts that are too long."""
    args = ("--allow-auto-truncate", "--context-length", "200")
    with launch(trees.patched, *args, env={PREFIX_CACHE: "1"}) as running:
        yield running


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
def test_a_prefix_is_refused_if_its_prompt_would_be_cut(
    cutting: Server, release: str, path: str
) -> None:
    require_traced(path, release)
    history = [USER, HELLO]
    for n_prefix, n_words in ((180, 60), (260, 1)):
        asked = [*history, {"role": "user", "content": "go " * n_words}]
        answer = requests.post(
            cutting.base_url + path,
            json={
                "model": Subject(cutting.base_url).served_model(),
                "max_output_tokens" if path == RESPONSES else "max_tokens": 6,
                "input" if path == RESPONSES else "messages": asked,
                "required_prefix_token_ids": [66] * n_prefix,
                "stream": True,
            },
            timeout=60,
        )
        assert answer.status_code == 400, answer.text
        assert str(LONGEST) in answer.text
    found = turn(cutting, path, [*history, USER], required_prefix_token_ids=[66] * 150)[
        0
    ]
    assert found["source"] == "request" and found["kept"] == 150
    assert found["prompt"][:150] == [66] * 150


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
def test_a_prompt_that_was_cut_is_not_remembered(
    cutting: Server, release: str, path: str
) -> None:
    require_traced(path, release)
    asked = {"role": "user", "content": f"Cut {path}?"}
    long = {"role": "user", "content": "go " * 150}
    said = turn(cutting, path, [asked])[1]
    history = [asked, *said, long]
    second, answer = turn(cutting, path, history)
    assert len(second["prompt"]) == LONGEST
    # The prefix with the long message would have been cut.
    assert second["source"] == "template" and second["missed"] == "unusable"
    answer = answer or [{"role": "assistant", "content": ""}]
    third = turn(cutting, path, [*history, *answer, USER])[0]
    assert third["source"] in (None, "template"), third
    if path == CHAT:
        given = turn(cutting, path, [asked], input_ids=[66] * 260)[0]
        assert given["prompt"] == [66] * LONGEST


def test_a_server_that_cannot_remember_fails_at_start(
    trees: Trees, launch: Launch
) -> None:
    for args, env, word in (
        (("--tokenizer-worker-num", "2"), {PREFIX_CACHE: "16"}, "tokenizer worker"),
        ((), {PREFIX_CACHE: "many"}, "whole number of megabytes"),
        ((), {PREFIX_CACHE: "16", PREFIX_IGNORE: "(a"}, "not a regular expression"),
    ):
        refusing = launch(trees.patched, *args, env=env)
        with pytest.raises(ServerError, match=word), refusing:
            pass
