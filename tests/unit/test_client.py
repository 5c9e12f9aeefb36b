"""The client's parsing of responses and server-sent events, on hand-written bytes."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer

from agentcore_patches.command.cli import main
from agentcore_verify import client
from agentcore_verify.audit.turns import Call


def sse(*events: object, done: bool = True) -> list[bytes]:
    """Return the lines of a stream, as a server writes them."""
    text = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    return (text + ("data: [DONE]\n\n" if done else "")).encode().split(b"\n")


def chunk(
    delta: dict[str, Any] | None = None, index: int = 0, **fields: Any
) -> dict[str, Any]:
    """Return a chunk with one choice; other fields go beside the choice."""
    beside = {
        "prompt_token_ids": fields.pop("prompt", None),
        "usage": fields.pop("usage", None),
    }
    choice = {"index": index, "delta": delta or {}, "finish_reason": None, **fields}
    return {"choices": [choice], **{k: v for k, v in beside.items() if v is not None}}


def read(*events: object) -> client.Answer:
    return client.read_events(client.parse_events(sse(*events)))


class TestEvents:
    def test_may_have_comments_names_and_several_data_lines(self) -> None:
        lines = [b": hi", b"event: x", b'data:{"a":', b"data: 1}", b"", b""]
        assert list(client.parse_events(lines + sse())) == [{"a": 1}]

    @pytest.mark.parametrize(
        "lines",
        [
            sse({"a": 1}, done=False),
            [b"data: [DONE]"],
            *([data, b"", *sse()] for data in (b"data: {", b"data: 3", b"data: \xff")),
        ],
        ids=["no DONE", "cut off", "no JSON", "no object", "no UTF-8"],
    )
    def test_broken_events_are_an_error(self, lines: list[bytes]) -> None:
        with pytest.raises(client.BrokenAnswer):
            list(client.parse_events(lines))

    def test_without_done_end_with_the_stream(self) -> None:
        lines = [b"event: a", b'data: {"a": 1}', b""]
        assert list(client.parse_events(lines, done=False)) == [{"a": 1}]
        with pytest.raises(client.BrokenAnswer, match="in the middle of an event"):
            list(client.parse_events(lines[:2], done=False))


class TestStream:
    def test_two_calls_of_one_index_have_two_ids(self) -> None:
        def call(id_: str | None, **function: str) -> dict[str, Any]:
            return {"tool_calls": [{"index": 1, "id": id_, "function": function}]}

        answer = read(
            chunk(call("a", name="f")),
            chunk(call(None, arguments="{}")),
            chunk(call("b", name="f")),
            chunk(call("b", arguments="[]")),
            chunk({"content": None}, finish_reason="tool_calls"),
        )
        assert answer.completions[0].tool_calls == (
            Call("f", "{}", "a"),
            Call("f", "[]", "b"),
        )

    def test_calls_of_a_whole_message_are_never_joined(self) -> None:
        # SGLang numbers them by their tools.
        calls = [{"index": 0, "function": {"name": name}} for name in ("f", "g")]
        choice = {"index": 0, "message": {"tool_calls": calls}, "finish_reason": "stop"}
        answer = client.read_response({"choices": [choice]})
        assert [call.name for call in answer.completions[0].tool_calls] == ["f", "g"]

    def test_without_a_finish_reason_is_broken(self) -> None:
        with pytest.raises(client.BrokenAnswer, match="choice 1"):
            read(
                chunk({"content": "a"}, index=0, finish_reason="stop"),
                chunk({"content": "b"}, index=1),
            )

    def test_an_error_that_is_null_is_none(self) -> None:
        answer = read({**chunk({"content": "a"}, finish_reason="stop"), "error": None})
        assert answer.errors == () and answer.completions[0].content == "a"

    @pytest.mark.parametrize(
        "event",
        [
            {},
            {"choices": [{}]},
            {"choices": [{"index": 0, "delta": None}]},
            {"choices": [{"index": 0, "delta": {}, "token_ids": 3}]},
            {"choices": [{"index": 0, "delta": {}, "logprobs": {}}]},
            {"choices": [], "prompt_token_ids": 3},
        ],
    )
    def test_of_another_shape_is_broken(self, event: dict[str, Any]) -> None:
        with pytest.raises(client.BrokenAnswer):
            read(event)


class TestResponse:
    def test_of_another_shape_is_broken(self) -> None:
        shapes: tuple[dict[str, Any], ...] = ({"choices": []}, {"error": "no"})
        for response in shapes:
            with pytest.raises(client.BrokenAnswer):
                client.read_response(response)

    def test_must_be_an_object(self, httpserver: HTTPServer) -> None:
        for body in (b"", b"oops", b"[]"):
            httpserver.expect_oneshot_request("/x").respond_with_data(body)
            with pytest.raises(client.BrokenAnswer):
                client.read_response(client.post_json(httpserver.url_for("/x"), {}))


@pytest.fixture
def private(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A TLS server, and the file that alone vouches for its certificate."""
    file = tmp_path / "ca.pem"
    command = (
        "openssl req -x509 -nodes -newkey rsa:2048 -days 2 -subj /CN=ca -addext "
        f"subjectAltName=IP:127.0.0.1 -keyout {file} -out {file}"
    )
    subprocess.run(command.split(), check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    with HTTPServer("127.0.0.1", ssl_context=context) as server:
        server.expect_request(re.compile(".*")).respond_with_json({"data": []})
        yield server.url_for("").removesuffix("/"), file


def test_a_private_certificate_is_trusted_by_a_variable_and_no_proxy_is_used(
    private: tuple[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url, certificate = private
    for name in client.CERTIFICATES:
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for variable in client.CERTIFICATES:
        for file, hint in (("", "SSL_CERT_FILE"), ("/no/such", "/no/such")):
            monkeypatch.setenv(variable, file)
            with pytest.raises(client.NoAnswer):
                client.post_json(f"{url}/x", {})
            assert main(["verify", "--base-url", url]) == 6
            error, told = capsys.readouterr().err.splitlines()
            assert error == f"error: No server answers at {url}." and hint in told
        monkeypatch.setenv(variable, str(certificate))
        assert client.post_json(f"{url}/x", {}) == {"data": []}
        monkeypatch.delenv(variable)
