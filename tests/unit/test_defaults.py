"""Fields that are true by default, and a server's messages at start."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from agentcore_patches.installs.versions import supported_release
from agentcore_patches.landing.http import defaults, logprobs, server
from agentcore_patches.patches.releases import SUPPORTED_VERSIONS


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """A server reads the variable only once; each test reads it again."""
    defaults.values.cache_clear()
    yield
    defaults.values.cache_clear()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (" , ", {}),
        (
            " return_token_ids ,return_meta_info = False,",
            {"return_token_ids": True, "return_meta_info": False},
        ),
        ("return_meta_info=true", {"return_meta_info": True}),
        ("return_token_ids,a b", "names 'a b'.*return_meta_info"),
        ("return_token_ids,input_ids", "names 'input_ids'"),
        ("return_token_ids=no", "'no' for return_token_ids"),
    ],
)
def test_the_variable_is_read_or_refused_at_start(
    monkeypatch: pytest.MonkeyPatch, text: str, values: dict[str, bool] | str
) -> None:
    monkeypatch.setenv("AGENTCORE_DEFAULTS", text)
    arguments: Any = SimpleNamespace(tokenizer_worker_num=1)
    if isinstance(values, dict):
        assert defaults.values() == values
        return
    with pytest.raises(ValueError, match=f"AGENTCORE_DEFAULTS .*{values}"):
        server.check_environment(arguments)


@pytest.mark.parametrize(("session", "is_filled"), [(None, True), ({"id": "s"}, None)])
def test_a_session_is_not_asked_for_its_prompt(
    monkeypatch: pytest.MonkeyPatch, session: object, is_filled: bool | None
) -> None:
    monkeypatch.setenv("AGENTCORE_DEFAULTS", "return_prompt_token_ids")
    obj: Any = SimpleNamespace(return_prompt_token_ids=None, session_params=session)
    defaults.fill_native(obj)
    assert obj.return_prompt_token_ids is is_filled


def test_logprobs_by_default_give_way_to_ids_that_are_off_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(
        "AGENTCORE_DEFAULTS", "return_token_ids=false,return_token_logprobs"
    )
    monkeypatch.setattr(logprobs, "refusal", lambda manager: None)
    request: Any = SimpleNamespace(
        messages=[], return_token_ids=None, return_token_logprobs=None
    )
    defaults.fill(request, None)  # type: ignore[arg-type]
    assert request.return_token_ids is False
    assert request.return_token_logprobs is None


@pytest.mark.parametrize(
    "version",
    [
        *SUPPORTED_VERSIONS,
        *("0.5.9+cu130", "0.5.10.dev0+g1a2b3c4.d20260301", "0.5.10.dev0+g1a2b3c4"),
        *("0.5.9.post1.dev0+g1a2b3c4.d20260301", "0.5.99", "0.0.0.dev0", "unknown", ""),
    ],
)
def test_a_server_lists_the_releases_that_the_command_lists(version: str) -> None:
    assert server.listed_release(version) == supported_release(version)


def test_an_unlisted_release_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    module = ModuleType("sglang.version")
    vars(module)["__version__"] = "0.5.99.dev3"
    monkeypatch.setitem(sys.modules, "sglang", ModuleType("sglang"))
    monkeypatch.setitem(sys.modules, "sglang.version", module)
    info: dict[str, Any] = {}
    arguments: Any = SimpleNamespace(enable_metrics=False)
    server.announce(info, arguments)
    assert info["agentcore_patches"]["release"] is None
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert "It does not support SGLang 0.5.99.dev3" in caplog.text
    assert "run `agentcore-patch verify --model scripted`" in caplog.text


def test_the_server_in_rust_is_refused_unless_it_is_allowed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for value in ("", "0", "true"):
        monkeypatch.setenv("AGENTCORE_ALLOW_UNPATCHED", value)
        with pytest.raises(ValueError, match="AGENTCORE_ALLOW_UNPATCHED=1"):
            server.refuse_rust_server()
    monkeypatch.setenv("AGENTCORE_ALLOW_UNPATCHED", "1")
    server.refuse_rust_server()
    assert "without the patches" in caplog.text
