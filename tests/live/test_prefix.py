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
    refused,
    require_traced,
)
from tests.helpers.servers import Launch, Trees, held, in_one_mode
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
@pytest.mark.parametrize(
    ("path", "how"),
    [
        *((CHAT, how) for how in ("request", "message")),
        *((path, "request") for path in (MESSAGES, RESPONSES)),
    ],
    indirect=["path"],
)
def test_eight_turns_start_with_the_previous_turns(
    server: Server, path: str, how: str, streaming: bool
) -> None:
    assert_continued(converse(server, path, how, streaming), how)


@in_both_ways
@pytest.mark.parametrize("path", [CHAT], indirect=True)
def test_the_memory_continues_a_conversation_by_itself(
    remembering: Server, path: str, streaming: bool
) -> None:
    assert_continued(converse(remembering, path, "server", streaming), "server")


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
        assert said["source"] == how
        assert said["required"] == said["kept"] == len(before.ids)
        assert said["template_matched"] <= len(before.ids)
        assert turn.prompt[: len(before.ids)] == before.ids
        assert len(turn.prompt) > len(before.ids)


CALL = (
    r'<tool_call>\n\{"name":"get_weather","arguments":\{"city":"[A-Z][a-z]{3,8}"\}\}'
    r"\n</tool_call>"
)
"""A regex that makes the tiny model call a tool, without the spaces of the template."""

GYM: Json = {
    "logprobs": True,
    "top_logprobs": 0,
    "return_tokens_as_token_ids": True,
    "return_token_ids": None,
}
"""The fields by which NeMo Gym gets token IDs, which it reads from the logprobs."""


@in_one_mode
@pytest.mark.parametrize("is_derived", [False, True])
def test_tool_turns_of_nemo_gym_start_with_the_previous_turns(
    server: Server, is_derived: bool
) -> None:
    """Newer versions of Gym derive the required prefix from the last message."""
    more: Json = {"tools": TOOLS_OF[CHAT], "max_tokens": 200, "regex": CALL, **GYM}
    history: list[Message] = [{"role": "user", "content": line("tool").question}]
    seen: list[int] = []
    for _ in range(4):
        turn = take_turn(server, CHAT, history, **more)
        names = [entry["token"] for entry in turn.logprobs]
        assert names == [f"token_id:{token_id}" for token_id in turn.completion]
        assert turn.prompt[: len(seen)] == seen
        if seen:
            assert turn.prefix is not None
            assert turn.prefix["template_matched"] < len(seen)
        seen = turn.ids
        [call] = turn.calls
        turn.said[0].update(
            prompt_token_ids=turn.prompt,
            generation_token_ids=turn.completion,
            generation_log_probs=[entry["logprob"] for entry in turn.logprobs],
        )
        result = {"role": "tool", "tool_call_id": call, "content": "20 C"}
        history += [*turn.said, result]
        if is_derived:
            more[PREFIX] = seen


@in_both_ways
def test_a_continued_message_starts_from_its_own_tokens(
    server: Server, streaming: bool
) -> None:
    first = take_turn(server, CHAT, [USER], max_tokens=3)
    second = take_turn(
        server,
        CHAT,
        [USER, {"role": "assistant", "content": "He"}],
        streaming,
        required_prefix_token_ids=first.ids,
        continue_final_message=True,
    )
    assert second.prompt == first.ids
    assert second.ids == take_turn(server, CHAT, [USER]).ids


PREFIX = "required_prefix_token_ids"


def required(token_ids: Any) -> Json:
    return {PREFIX: token_ids}


# What is wrong about a prefix, and words of the refusal.
BAD: tuple[tuple[Any, str], ...] = (
    ([-1], "must be from 0 to 447"),
    ([[7]], "flat list of integers"),
    # Some releases read it as a float.
    ([2**70], PREFIX),
    ("7", PREFIX),
    ([7] * 40000, "longer than"),
)
BAD_HISTORIES: tuple[tuple[list[Message], str], ...] = (
    ([USER], "assistant message"),
    ([USER, HELLO], "last message"),
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
@in_both_ways
def test_a_bad_prefix_is_refused(server: Server, path: str, streaming: bool) -> None:
    before = set(held(server))
    history = [USER, HELLO, USER]
    for prefix, said in BAD:
        named = () if path == CHAT and "longer" in said else (PREFIX,)
        with refused(said, *named) as refusal:
            take_turn(server, path, history, streaming, **required(prefix))
        assert " None" not in refusal.value.body
    for wrong, said in BAD_HISTORIES:
        with refused(said, PREFIX):
            take_turn(server, path, wrong, streaming, **required([7]))
    if path == CHAT:
        with refused("input_ids", PREFIX):
            take_turn(server, path, history, streaming, **required([7]), input_ids=[7])
        for carried, name in BAD_ON_A_MESSAGE:
            with refused(f"messages[1].{name}"):
                take_turn(server, path, [USER, HELLO | carried, USER], streaming)
    if path == RESPONSES:
        with refused("assistant message", PREFIX):
            take_turn(server, path, "Hi.", streaming, **required([7]))
        untraced: Json = {"return_token_ids": False, "background": True}
        with refused("background=false", PREFIX):
            take_turn(server, path, history, streaming, **required([7]), **untraced)
    wait_until(lambda: set(held(server)) <= before)
    assert take_turn(server, path, history, streaming, **required([7])).prefix


@in_one_mode
@pytest.mark.parametrize("nothing", [None, []])
def test_null_and_empty_count_as_absent(
    server: Server, path: str, nothing: Any
) -> None:
    carried = {"prompt_token_ids": nothing, "token_ids": nothing}
    hello = HELLO | carried if path == CHAT else HELLO
    turn = take_turn(server, path, [USER, hello, USER], **required(nothing))
    assert turn.prefix is None


@in_both_ways
def test_several_choices_continue_the_same_prefix(
    server: Server, streaming: bool
) -> None:
    body: Json = {"temperature": 0, "max_tokens": 60, "n": 2}
    first = client.ask(server.base_url, messages=[USER], **body)
    for choice in first.completions:
        ids = [*(first.prompt_token_ids or ()), *(choice.token_ids or ())]
        second = client.ask(
            server.base_url,
            messages=[USER, HELLO, USER],
            required_prefix_token_ids=ids,
            stream=streaming,
            **body,
        )
        assert len(second.completions) == 2
        assert [*(second.prompt_token_ids or ())][: len(ids)] == ids


def test_the_prefix_works_without_returned_ids(server: Server, path: str) -> None:
    ids = take_turn(server, path, [USER]).ids
    more = {**required(ids), "return_token_ids": False}
    for streaming in (False, True):
        second = take_turn(server, path, [USER, HELLO, USER], streaming, **more)
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


def billing_header(number: int) -> str:
    """First line of Claude Code's system prompt, which differs in each request."""
    return (
        f"x-anthropic-billing-header: cc_version=2.1.107.3d9; cc_entrypoint=cli; "
        f"cch={number:05};"
    )


def system_blocks(*texts: str) -> list[Message]:
    """Return a system prompt as Claude Code sends it."""
    return [
        {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}
        for text in texts
    ]


# With a reasoning parser, the tiny model's turns here are only reasoning.
@pytest.mark.parametrize("remembering", ["default"], indirect=True)
@in_both_ways
def test_a_conversation_continues_although_its_system_prompt_has_volatile_lines(
    remembering: Server, path: str, streaming: bool
) -> None:
    def system(number: int) -> Any:
        lines = billing_header(number), f"Streamed: {streaming}", budget(900 - number)
        return system_blocks(*lines) if path == MESSAGES else "\n".join(lines)

    tools: Json = {"tools": TOOLS_OF[path]}
    history: list[Message] = [USER]
    turns: list[Turn] = []
    for number in range(3):
        turns.append(
            take_turn(
                remembering, path, history, streaming, system=system(number), **tools
            )
        )
        history += turns[-1].then(("reasoning", "emoji", "plain")[number])
    assert turns[0].prefix is None
    for before, turn in pairwise(turns):
        said = turn.prefix
        assert said is not None and said["source"] == "server"
        assert said["required"] == said["kept"] == len(before.ids)
        # The template would have written the new header.
        assert said["template_matched"] < len(before.ids)
        assert turn.prompt[: len(before.ids)] == before.ids
    # Any other text of the system prompt counts, wherever it is.
    history = [USER, *turns[0].then("reasoning")]
    for text in (
        f"Call x-anthropic-billing-header.\nStreamed: {streaming}",
        f"Streamed: {streaming} {budget(1)}",
    ):
        turn = take_turn(remembering, path, history, streaming, system=text, **tools)
        assert turn.missed == "system"


@in_both_ways
def test_user_text_counts_even_if_it_looks_volatile(
    remembering: Server, streaming: bool
) -> None:
    for volatile in (billing_header, budget):
        asked = {"role": "user", "content": f"{volatile(1)}\nStreamed: {streaming}"}
        first = take_turn(remembering, CHAT, [asked], streaming)
        asked["content"] = f"{volatile(2)}\nStreamed: {streaming}"
        history = [asked, *first.then("plain")]
        turn = take_turn(remembering, CHAT, history, streaming)
        assert turn.missed == "message 0"


def other_turns(
    path: str, history: list[Message], word: str
) -> Iterator[tuple[str, list[Message], dict[str, Any]]]:
    """Yield turns of other conversations, and in what they differ from one."""
    user, said, *rest = history
    yield "tools", history, {"tools": TOOLS_OF[path]}
    yield "system", history, {"system": "x"}
    yield "system", history, {"system": None}
    yield "message 1", [{**user, "content": word}, said, *rest], {}
    if path != MESSAGES:
        yield "cache_salt", history, {"cache_salt": "another"}
    if path == RESPONSES:
        yield "cache_salt", history, {"extra_key": "another"}
    if path != CHAT:
        return
    yield "tools", history, {"tools": TOOLS_OF[path], "chat_template_kwargs": {"x": 1}}
    yield "model", history, {"model": "another"}
    yield "template", history, {"chat_template_kwargs": {"x": 1}}
    yield "message 2", [user, {**said, "content": f"x {word}"}, *rest], {}
    function = {"name": word, "arguments": "{}"}
    call = {"id": "a", "type": "function", "function": function}
    yield "message 2", [user, {**said, "tool_calls": [call]}, *rest], {}
    yield "message 1", [{**said, "content": word}, *rest], {}
    unlike = {"role": "user", "content": f"new {word}"}
    yield "message 1", [unlike, said, *rest], {"system": f"new {word}"}


@in_both_ways
def test_similar_conversations_do_not_mix(
    remembering: Server, path: str, streaming: bool
) -> None:
    # With a reasoning parser, the tiny model's other answers have no text.
    asked = {"role": "user", "content": line("reasoning").question}
    first = {
        word: take_turn(remembering, path, [asked], streaming, system=word)
        for word in (f"amber {path} {streaming}", f"cobalt {path} {streaming}")
    }
    for word, before in first.items():
        assert before.prefix is None
        system: Json = {"system": word}
        history = [asked, *before.then("plain")]
        second = take_turn(remembering, path, history, streaming, **system)
        assert second.prefix is not None and second.prefix["source"] == "server"
        assert second.prompt[: len(before.ids)] == before.ids
        for reason, other, more in other_turns(path, history, word):
            more = {"return_token_ids": None, **system, **more}
            turn = take_turn(remembering, path, other, streaming, **more)
            assert turn.missed == reason, (other, more)
        # There is no metadata if the memory does not apply.
        beginning = take_turn(remembering, path, [asked, asked], streaming, **system)
        assert beginning.prefix is None
        given = required(before.ids) | system
        said = take_turn(remembering, path, history, streaming, **given).prefix
        assert said is not None and said["source"] == "request"
    log = remembering.options.log.read_text()
    assert "Conversation memory: " in log
    assert "system: " in log


def test_answers_with_the_same_text_but_other_tokens_are_ambiguous(
    remembering: Server,
) -> None:
    first = take_turn(remembering, CHAT, [USER], system="ambiguous")
    # Cut off before the end-of-turn token.
    most: Json = {"max_tokens": len(first.completion) - 1}
    again = take_turn(remembering, CHAT, [USER], system="ambiguous", **most)
    assert again.said == first.said
    history = [USER, *first.then("plain")]
    third = take_turn(remembering, CHAT, history, system="ambiguous")
    assert third.missed == "ambiguous"


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
CARRIED = {"prompt_token_ids": FORGED, "token_ids": [5]}

CHOSEN: dict[str, tuple[str, dict[str, Any]]] = {
    "prefix": (CHAT, {"required_prefix_token_ids": FORGED}),
    "regex": (CHAT, {"regex": "[a-z]+"}),
    "stop": (CHAT, {"stop": ["e", "o", "a", " "]}),
    "stop regex": (CHAT, {"stop_regex": "[a-z ]"}),
    "message": (MESSAGES, {"required_prefix_token_ids": FORGED}),
    "message stop": (MESSAGES, {"stop_sequences": ["e", "o", "a", " "]}),
    "response": (RESPONSES, {"required_prefix_token_ids": FORGED}),
    "response stop": (RESPONSES, {"stop": ["e", "o", "a", " "]}),
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
    history = opened(f"{how}, {streaming}")
    said = take_turn(remembering, path, history, streaming, **chosen).said
    found = take_turn(remembering, path, [*history, *said, USER])
    assert source_of(found) == "template", found
    assert found.prompt[: len(FORGED)] != FORGED
    # From then on, the client's turns are remembered.
    history += [*said, USER]
    again = take_turn(remembering, path, history)
    found = take_turn(remembering, path, [*history, *again.said, USER])
    assert source_of(found) == "server", found


def test_a_turn_with_ids_on_a_message_is_not_remembered(remembering: Server) -> None:
    asked, hello, question = opened("IDs on a message")
    carried = [asked, {**hello, **CARRIED}, question]
    said = take_turn(remembering, CHAT, carried).said
    found = take_turn(remembering, CHAT, [asked, hello, question, *said, USER])
    assert source_of(found) == "template"
    assert found.prompt[: len(FORGED)] != FORGED


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


# tests/unit has a table of more variables, and of their errors.
@pytest.mark.parametrize(
    ("args", "env", "said"),
    [
        (("--tokenizer-worker-num", "2"), {PREFIX_CACHE: "16"}, "tokenizer worker"),
        ((), {"AGENTCORE_DEFAULTS": "all"}, "AGENTCORE_DEFAULTS names 'all'"),
    ],
)
def test_a_server_with_a_bad_variable_fails_at_start(
    trees: Trees, launch: Launch, args: tuple[str, ...], env: Json, said: str
) -> None:
    refusing = launch(trees.patched, *args, env=env)
    with pytest.raises(ServerError, match=said), refusing:
        pass
