"""Turns whose prompts start with exactly the tokens of the previous turns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import requests

from agentcore_patches.errors import ServerError
from agentcore_verify import client
from agentcore_verify.scripted_model import TOOLS, line
from agentcore_verify.server import Server
from agentcore_verify.subject import Subject
from tests.helpers.conversing import (
    HELLO,
    QUESTIONS,
    USER,
    Message,
    Turn,
    converse,
    take_turn,
)
from tests.helpers.endpoints import (
    CHAT,
    LIMIT_OF,
    MESSAGES,
    RESPONSES,
    TOOLS_OF,
    Json,
    openai_client,
    post,
    refused,
    require_traced,
)
from tests.helpers.servers import Launch, Trees, held, held_requests, in_one_mode
from tests.helpers.waiting import wait_until
from tests.live.conftest import PREFIX_CACHE

in_both_ways = pytest.mark.parametrize("streaming", [False, True])


@pytest.fixture(params=[CHAT, MESSAGES, RESPONSES])
def path(request: pytest.FixtureRequest, release: str) -> str:
    """An endpoint that continues conversations."""
    name: str = request.param
    require_traced(name, release)
    return name


@in_both_ways
def test_eight_turns_start_with_the_previous_turns(
    server: Server, path: str, streaming: bool
) -> None:
    several: Json = {"n": 2} if path == CHAT else {}
    turns = converse(server, path, "request", streaming, **several)
    assert_continued(turns, "request")


@in_both_ways
@pytest.mark.parametrize("path", [CHAT], indirect=True)
def test_the_memory_continues_a_conversation_by_itself(
    remembering: Server, path: str, streaming: bool
) -> None:
    assert_continued(converse(remembering, path, "server", streaming), "server")


@in_one_mode
def test_nemo_gym_takes_ids_from_logprobs_and_sends_them_on_messages(
    server: Server,
) -> None:
    fields: Json = {"logprobs": True, "return_tokens_as_token_ids": True}
    turns = converse(server, CHAT, "message", return_token_ids=None, **fields)
    assert_continued(turns, "message")
    for turn in turns:
        names = [entry["token"] for entry in turn.logprobs]
        assert names == [f"token_id:{token_id}" for token_id in turn.completion]


def assert_continued(turns: list[Turn], how: str) -> None:
    assert len(turns) == len(QUESTIONS)
    assert turns[0].prefix is None
    assert any(turn.calls for turn in turns)
    for before, turn in pairwise(turns):
        said = turn.prefix
        assert said is not None
        if said["source"] == "template":
            assert how == "server"
            assert not before.is_complete
            assert said["missed"].startswith("message ")
            continue
        assert_starts_with(before, turn, how)


def assert_starts_with(before: Turn, turn: Turn, how: str) -> None:
    said = turn.prefix
    assert said is not None and said["source"] == how
    assert said["required"] == said["kept"] == len(before.ids)
    assert said["template_matched"] <= len(before.ids)
    assert turn.prompt[: len(before.ids)] == before.ids
    assert len(turn.prompt) > len(before.ids)


def test_a_continued_message_starts_from_its_own_tokens(server: Server) -> None:
    first = take_turn(server, CHAT, [USER], max_tokens=3)
    messages = [USER, {"role": "assistant", "content": "He"}]
    more: Json = {"continue_final_message": True, **required(first.ids)}
    second = take_turn(server, CHAT, messages, **more)
    assert second.prompt == first.ids
    assert second.ids == take_turn(server, CHAT, [USER]).ids


PREFIX = "required_prefix_token_ids"


def required(token_ids: Any) -> Json:
    return {PREFIX: token_ids}


def bad_turns(path: str) -> Iterator[tuple[str, list[Message] | str, Json]]:
    """Yield turns that are refused, each with words of the refusal."""
    history = [USER, HELLO, USER]
    yield "must be from 0 to 447", history, required([-1])
    yield PREFIX, history, required("7")
    # Some releases read it as a float.
    yield PREFIX, history, required([2**70])
    yield "assistant message", [USER], required([7])
    yield "last message", [USER, HELLO], required([7])
    if path == CHAT:
        yield "input_ids", history, {**required([7]), "input_ids": [7]}
        for name, ids in (
            ("prompt_token_ids", {"prompt_token_ids": "7", "token_ids": [7]}),
            ("token_ids", {"prompt_token_ids": [7], "token_ids": {"7": 7}}),
            (
                "prompt_token_ids with its generation_token_ids",
                {"prompt_token_ids": [7], "generation_token_ids": [-1]},
            ),
        ):
            yield f"messages[1].{name}", [USER, HELLO | ids, USER], {}
    if path == RESPONSES:
        yield "assistant message", "Hi.", required([7])
        untraced = {"return_token_ids": False, "background": True}
        yield "background=false", history, required([7]) | untraced
        stored = {"previous_response_id": "resp_7"}
        yield "previous_response_id", history, required([7]) | stored


@in_one_mode
@in_both_ways
def test_a_bad_prefix_is_refused(server: Server, path: str, streaming: bool) -> None:
    before = set(held(server))
    for said, history, more in bad_turns(path):
        words = (said, PREFIX) if PREFIX in more else (said,)
        with refused(*words) as refusal:
            take_turn(server, path, history, streaming, **more)
        assert " None" not in refusal.value.body
    wait_until(lambda: set(held(server)) <= before)


@in_one_mode
@pytest.mark.parametrize("nothing", [None, []])
def test_null_and_empty_count_as_absent(
    server: Server, path: str, nothing: Any
) -> None:
    carried = {"prompt_token_ids": nothing, "token_ids": nothing}
    hello = HELLO | carried if path == CHAT else HELLO
    turn = take_turn(server, path, [USER, hello, USER], **required(nothing))
    assert turn.prefix is None


def test_the_prefix_works_without_returned_ids(server: Server, path: str) -> None:
    ids = take_turn(server, path, [USER]).ids
    more = {**required(ids), "return_token_ids": False}
    # With versions, a stream has another kind of trace.
    traces: tuple[Json, ...] = ({}, {"return_weight_versions": True})
    for asked in traces:
        for streaming in (False, True):
            history = [USER, HELLO, USER]
            second = take_turn(server, path, history, streaming, **more, **asked)
            assert second.prefix is not None and second.prefix["kept"] == len(ids)
            assert second.prompt == []


def test_tokenize_gives_the_same_ids(server: Server) -> None:
    url = server.base_url
    first, second = converse(server, CHAT, "request", questions=QUESTIONS[:2])
    asked = {"role": "user", "content": line(QUESTIONS[0]).question}
    messages = [asked, *first.then(QUESTIONS[1])]
    request: dict[str, Any] = {"messages": messages, "tools": list(TOOLS)}
    assert tokenized(url, **request, **required(first.ids)) == second.prompt
    messages[1] |= {"prompt_token_ids": first.prompt, "token_ids": first.completion}
    assert tokenized(url, **request) == second.prompt
    # The request's field wins.
    assert tokenized(url, **request, **required(FORGED))[:20] == FORGED
    with refused():
        tokenized(url, **request, **required([-1]))


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


@in_both_ways
def test_return_token_ids_false_uses_no_memory(
    remembering: Server, path: str, streaming: bool
) -> None:
    more: Json = {"system": f"opted out {streaming}", "return_token_ids": False}
    first = take_turn(remembering, path, [USER], streaming, **more)
    history = [USER, *first.then("plain")]
    assert take_turn(remembering, path, history, streaming, **more).prefix is None


def budget(number: int) -> str:
    return f"<total_tokens>{number} tokens left</total_tokens>"


def volatile_system(path: str, text: str, number: int) -> Any:
    """Return a system prompt with lines that differ in each request."""
    header = f"x-anthropic-billing-header: cc_version=2.1.107.3d9; cch={number:05};"
    lines = header, text, budget(900 - number)
    if path != MESSAGES:
        return "\n".join(lines)
    # As Claude Code sends it.
    more: Json = {"type": "text", "cache_control": {"type": "ephemeral"}}
    return [{**more, "text": each} for each in lines]


def other_turns(
    path: str, history: list[Message], word: str
) -> Iterator[tuple[str, list[Message], dict[str, Any]]]:
    """Yield turns of other conversations, and in what they differ from one.

    tests/unit has a table of more differences.
    """
    user, *rest = history
    yield "tools", history, {"tools": TOOLS_OF[path]}
    yield "system", history, {"system": f"{word} {budget(1)}"}
    yield "system", history, {"system": None}
    yield "message 1", [{**user, "content": word}, *rest], {}
    if path != MESSAGES:
        yield "cache_salt", history, {"cache_salt": "another"}
    if path == RESPONSES:
        yield "cache_salt", history, {"extra_key": "another"}
    if path == CHAT:
        yield "model", history, {"model": "another"}
        yield "template", history, {"chat_template_kwargs": {"x": 1}}


# With a reasoning parser, the tiny model's turns here are only reasoning.
@pytest.mark.parametrize("remembering", ["default"], indirect=True)
@in_both_ways
def test_similar_conversations_do_not_mix(
    remembering: Server, path: str, streaming: bool
) -> None:
    asked = {"role": "user", "content": line("reasoning").question}
    first = {}
    for word in (f"amber {path} {streaming}", f"cobalt {path} {streaming}"):
        system = volatile_system(path, word, 1)
        first[word] = take_turn(remembering, path, [asked], streaming, system=system)
    for word, before in first.items():
        assert before.prefix is None
        history = [asked, *before.then("plain")]
        system = volatile_system(path, word, 2)
        second = take_turn(remembering, path, history, streaming, system=system)
        assert_starts_with(before, second, "server")
        # The template would have written the new header.
        assert second.prefix and second.prefix["template_matched"] < len(before.ids)
        for reason, other, more in other_turns(path, history, word):
            more = {"return_token_ids": None, "system": word, **more}
            turn = take_turn(remembering, path, other, streaming, **more)
            assert turn.missed == reason, (other, more)
        # There is no metadata if the memory does not apply.
        beginning = take_turn(remembering, path, [asked, asked], system=word)
        assert beginning.prefix is None
        given = take_turn(remembering, path, history, **required(before.ids))
        assert source_of(given) == "request"


def opened(text: str) -> list[Any]:
    """Return messages that are known to no other test; the answer has text."""
    asked = {"role": "user", "content": f"Demo: {text}?"}
    return [asked, HELLO, {"role": "user", "content": line("reasoning").question}]


def source_of(turn: Turn) -> str | None:
    return turn.prefix["source"] if turn.prefix else None


KEYS = (
    {"Authorization": "Bearer a"},
    {"Authorization": "Bearer b"},
    {"x-api-key": "a"},
)


def test_a_client_learns_nothing_of_another_ones_conversations(
    remembering: Server, path: str
) -> None:
    asked = opened(f"the code of {path}")
    [first, *others] = KEYS
    said = take_turn(remembering, path, asked, headers=first).said
    history = [*asked, *said, USER]
    known = take_turn(remembering, path, history, headers=first)
    assert known.prefix is not None and known.prefix["source"] == "server"
    kept = known.prefix["kept"]
    guesses = (history, [USER, *asked[1:], *said, USER], [*asked[:2], HELLO, USER])
    for number, guess in enumerate(guesses):
        for other in others:
            # A client without conversations is told the same of each guess.
            fresh = {name: f"{path} {number} {key}" for name, key in other.items()}
            guessed = take_turn(remembering, path, guess, headers=fresh)
            assert guessed.missed == "unknown"
            assert take_turn(remembering, path, guess, headers=fresh).missed
    alone = take_turn(remembering, path, history, headers=KEYS[1], cache_salt="alone")
    is_kept = alone.prompt[:kept] == known.prompt[:kept]
    assert not is_kept or known.prefix["template_matched"] == kept
    if path == CHAT:
        url = f"{remembering.base_url}/tokenize"
        model = Subject(remembering.base_url).served_model()
        chat = {"model": model, "messages": history}
        for headers, turn in ((first, known), (None, alone)):
            tokens = requests.post(url, json=chat, headers=headers, timeout=60).json()
            assert tokens["tokens"] == turn.prompt


FORGED = [66] * 20
STOPS = ["e", "o", "a", " "]
ON_A_MESSAGE = "IDs on a message"

CHOSEN: dict[str, tuple[str, Json]] = {
    ON_A_MESSAGE: (CHAT, {}),
    "prefix": (CHAT, required(FORGED)),
    "regex": (CHAT, {"regex": "[a-z]+"}),
    "stop": (CHAT, {"stop": STOPS}),
    "stop regex": (CHAT, {"stop_regex": "[a-z ]"}),
    "message": (MESSAGES, required(FORGED)),
    "message stop": (MESSAGES, {"stop_sequences": STOPS}),
    "response": (RESPONSES, required(FORGED)),
    "response stop": (RESPONSES, {"stop": STOPS}),
}
"""Ways of a client to choose the tokens of a turn; tests/unit has a table of more."""


# With a reasoning parser, the tiny model's turns here are only reasoning.
@pytest.mark.parametrize("remembering", ["default"], indirect=True)
@pytest.mark.parametrize(
    ("how", "streaming"), [("prefix", True), *((how, False) for how in CHOSEN)]
)
def test_a_turn_whose_tokens_the_client_chose_is_not_remembered(
    remembering: Server, release: str, how: str, streaming: bool
) -> None:
    path, chosen = CHOSEN[how]
    require_traced(path, release)
    asked, hello, question = history = opened(f"{how}, {streaming}")
    if how == ON_A_MESSAGE:
        hello = {**hello, "prompt_token_ids": FORGED, "token_ids": [5]}
    sent = [asked, hello, question]
    said = take_turn(remembering, path, sent, streaming, **chosen).said
    found = take_turn(remembering, path, [*history, *said, USER])
    assert source_of(found) == "template", found
    assert found.prompt[: len(FORGED)] != FORGED
    # From then on, the client's turns are remembered.
    history += [*said, USER]
    again = take_turn(remembering, path, history)
    found = take_turn(remembering, path, [*history, *again.said, USER])
    assert source_of(found) == "server", found


@pytest.mark.parametrize("path", [CHAT, MESSAGES], indirect=True)
def test_reasoning_that_the_template_wrote_must_be_sent_again(
    remembering: Server, path: str
) -> None:
    """Reasoning does not identify a conversation, but a template may write it."""
    hidden: list[Any] | str = "<think>\nObey.\n</think>\n\nHello!"
    if path == MESSAGES:
        hidden = [
            {"type": "thinking", "thinking": "Obey.", "signature": "x"},
            {"type": "text", "text": "Hello!"},
        ]
    asked, _, question = bare = opened(f"reasoning on {path}")
    forged = [asked, {"role": "assistant", "content": hidden}, question]
    first = take_turn(remembering, path, forged)
    again = take_turn(remembering, path, [*forged, *first.said, USER])
    assert source_of(again) == "server"
    found = take_turn(remembering, path, [*bare, *first.said, USER])
    # Some releases drop the reasoning themselves.
    is_same = take_turn(remembering, path, bare).prompt == first.prompt
    assert source_of(found) == ("server" if is_same else "template")


in_responses = pytest.mark.parametrize("path", [RESPONSES], indirect=True)


@in_responses
@in_both_ways
def test_the_openai_client_continues_without_extra_fields(
    remembering: Server, path: str, streaming: bool
) -> None:
    api = openai_client(remembering)
    body: Json = {"model": Subject(remembering.base_url).served_model()}
    body |= {"instructions": f"openai {streaming}", "tools": TOOLS_OF[path]}
    body |= {"temperature": 0, "max_output_tokens": 60}
    items: list[Any] = []
    said = []
    for question in ("reasoning_then_tool", "plain", "reasoning", "emoji"):
        items.append({"role": "user", "content": line(question).question})
        if streaming:
            with api.responses.stream(**body, input=items) as events:
                response = events.get_final_response()
        else:
            response = api.responses.create(**body, input=items)
        said.append((response.metadata or {}).get("prefix"))
        for item in response.model_dump()["output"]:
            items.append(item)
            if item["type"] == "function_call":
                result = {"call_id": item["call_id"], "output": "result"}
                items.append({"type": "function_call_output", **result})
    assert said[0] is None
    assert all(prefix and prefix["source"] == "server" for prefix in said[1:])


@in_responses
def test_the_metadata_of_the_clients_response_is_kept(
    server: Server, path: str
) -> None:
    model = Subject(server.base_url).served_model()
    body: Json = {"model": model, "max_output_tokens": 3, "metadata": {"run": "7"}}
    body["input"] = [USER, HELLO, USER]
    assert post(server, path, **body)["metadata"] == {"run": "7"}
    metadata = post(server, path, **body, **required([7]))["metadata"]
    assert metadata["run"] == "7" and metadata["prefix"]["required"] == 1


@in_responses
@pytest.mark.usefixtures("slow_engine")
@pytest.mark.parametrize("end", ["left", "aborted"])
def test_a_response_that_was_cut_short_is_not_remembered(
    remembering: Server, path: str, end: str
) -> None:
    user = {"role": "user", "content": line("long").question}
    body: Json = {"model": Subject(remembering.base_url).served_model()}
    body |= {"input": [user], "instructions": end, "max_output_tokens": 400}
    body |= {"temperature": 0, "return_token_ids": True, "stream": True}
    events = client.post_stream(remembering.base_url + path, body, done=False)
    text = ""
    rid = next(events)["response"]["id"]
    n_with_ids = 0
    for event in events:
        n_with_ids += bool(event.get("token_ids"))
        if event["type"] == "response.output_text.delta":
            text += event["delta"]
        if n_with_ids == 5 and end == "left":
            break
        if n_with_ids == 5:
            client.post(f"{remembering.base_url}/abort_request", {"rid": rid})
    assert 4 < n_with_ids < 200
    events.close()
    assert held_requests(remembering) == []
    items = [user, {"role": "assistant", "content": text}, USER]
    more: Json = {"system": end, LIMIT_OF[path]: 3}
    assert source_of(take_turn(remembering, path, items, **more)) == "template"


# A prompt of more tokens is cut.
LONGEST = 194


@pytest.fixture(scope="module")
def cutting(trees: Trees, launch: Launch) -> Iterator[Server]:
    """A server that remembers, and cuts prompts that are too long."""
    args = ("--allow-auto-truncate", "--context-length", "200")
    with launch(trees.patched, *args, env={PREFIX_CACHE: "1"}) as running:
        yield running


def test_a_prefix_is_refused_if_its_prompt_would_be_cut(
    cutting: Server, path: str
) -> None:
    for n_prefix, n_words in ((180, 60), (260, 1)):
        asked = {"role": "user", "content": "go " * n_words}
        more = {**required([66] * n_prefix), LIMIT_OF[path]: 6}
        with refused(str(LONGEST)):
            take_turn(cutting, path, [USER, HELLO, asked], True, **more)
    found = take_turn(cutting, path, [USER, HELLO, USER], **required([66] * 150))
    assert found.prefix is not None
    assert found.prefix["source"] == "request" and found.prefix["kept"] == 150
    assert found.prompt[:150] == [66] * 150


def test_a_prompt_that_was_cut_is_not_remembered(cutting: Server, path: str) -> None:
    asked = {"role": "user", "content": f"Cut {path}?"}
    long = {"role": "user", "content": "go " * 150}
    history = [asked, *take_turn(cutting, path, [asked]).said, long]
    second = take_turn(cutting, path, history)
    assert len(second.prompt) == LONGEST
    # The prefix with the long message would have been cut.
    assert second.missed == "unusable"
    answer = second.said or [{"role": "assistant", "content": ""}]
    third = take_turn(cutting, path, [*history, *answer, USER])
    assert source_of(third) in (None, "template"), third
    if path == CHAT:
        given = take_turn(cutting, path, [asked], input_ids=[66] * 260)
        assert given.prompt == [66] * LONGEST


# tests/unit has a table of the bad values.
def test_a_server_with_a_bad_variable_fails_at_start(
    trees: Trees, launch: Launch
) -> None:
    two_workers = "--tokenizer-worker-num", "2"
    refusing = launch(trees.patched, *two_workers, env={PREFIX_CACHE: "16"})
    with pytest.raises(ServerError, match="tokenizer worker"), refusing:
        pass
