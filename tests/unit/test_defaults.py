"""Fields that are true by default, and a server's messages at start."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from agentcore_patches.installs.versions import supported_release
from agentcore_patches.landing import defaults, release, server
from agentcore_patches.patches.releases import SUPPORTED_VERSIONS


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """A server reads the variable only once; each test reads it again."""
    defaults.values.cache_clear()
    yield
    defaults.values.cache_clear()


def named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("AGENTCORE_DEFAULTS", text)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        (" , ", {}),
        ("return_token_ids", {"return_token_ids": True}),
        (
            " return_token_ids ,return_meta_info = False,",
            {"return_token_ids": True, "return_meta_info": False},
        ),
        ("return_meta_info=true", {"return_meta_info": True}),
    ],
)
def test_names_are_separated_by_commas(
    monkeypatch: pytest.MonkeyPatch, text: str, values: dict[str, bool]
) -> None:
    named(monkeypatch, text)
    assert defaults.values() == values


@pytest.mark.parametrize("name", ["return_everything", "input_ids", "True", "a b"])
def test_an_unknown_name_is_reported_with_the_known_names(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    named(monkeypatch, f"return_token_ids,{name}")
    with pytest.raises(ValueError, match="AGENTCORE_DEFAULTS names") as refused:
        server.check_environment(SimpleNamespace(tokenizer_worker_num=1))
    assert repr(name) in str(refused.value)
    assert all(flag in str(refused.value) for flag in release.REQUEST_FLAGS)


def test_a_field_of_a_missing_patch_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(release, "REQUEST_FLAGS", ())
    named(monkeypatch, "return_token_ids")
    with pytest.raises(ValueError, match="patches: they have none"):
        defaults.values()


def test_a_value_that_is_no_boolean_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named(monkeypatch, "return_token_ids=no")
    with pytest.raises(ValueError, match="'no' for return_token_ids"):
        defaults.values()


def filled(refusal: str | None = None, **fields: Any) -> dict[str, Any]:
    request = SimpleNamespace(**fields)
    arguments = SimpleNamespace(dllm_algorithm=refusal, speculative_algorithm=None)
    manager: Any = SimpleNamespace(server_args=arguments)
    defaults.fill(request, manager)
    return vars(request)


def test_absent_and_null_fields_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    named(monkeypatch, "return_token_ids,return_meta_info")
    assert filled(return_token_ids=None, stream=False) == {
        "return_token_ids": True,
        "stream": False,
    }
    assert filled(return_token_ids=False, return_meta_info=None) == {
        "return_token_ids": False,
        "return_meta_info": True,
    }
    assert filled(n=1) == {"n": 1}


def test_fields_that_streams_reject_are_not_set_for_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named(monkeypatch, "return_token_ids,return_meta_info,return_prompt_token_ids")
    none = dict.fromkeys(defaults.values())
    assert filled(**none, stream=True) == {
        **none,
        "return_token_ids": True,
        "stream": True,
    }


def test_a_default_of_false_is_set_in_streams_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named(monkeypatch, "return_prompt_token_ids=false")
    for stream in (False, True):
        found = filled(return_prompt_token_ids=None, stream=stream)
        assert found["return_prompt_token_ids"] is False
    assert filled(return_prompt_token_ids=True)["return_prompt_token_ids"] is True


@pytest.mark.parametrize(("session", "is_filled"), [(None, True), ({"id": "s"}, None)])
def test_a_session_is_not_asked_for_its_prompt(
    monkeypatch: pytest.MonkeyPatch, session: object, is_filled: bool | None
) -> None:
    named(monkeypatch, "return_prompt_token_ids")
    obj: Any = SimpleNamespace(return_prompt_token_ids=None, session_params=session)
    defaults.fill_native(obj)
    assert obj.return_prompt_token_ids is is_filled


@pytest.mark.parametrize(
    "version",
    [
        *SUPPORTED_VERSIONS,
        *("0.5.9+cu130", "0.5.15.post1+local.2", "0.5.10.dev0+g1a2b3c4.d20260301"),
        *("0.5.9.post1.dev0+g1a2b3c4.d20260301", "0.5.10.post2.dev0+gab.d20260301"),
        *("0.5.10.dev0+g1a2b3c4", "0.5.10.dev3+g1a2b3c4.d20260301", "0.5.99"),
        *("0.0.0.dev0", "unknown", ""),
    ],
)
def test_a_server_lists_the_releases_that_the_command_lists(version: str) -> None:
    assert server.listed_release(version) == supported_release(version)


WITHOUT_METRICS: Any = SimpleNamespace(enable_metrics=False)


def stated(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    module = ModuleType("sglang.version")
    vars(module)["__version__"] = version
    monkeypatch.setitem(sys.modules, "sglang", ModuleType("sglang"))
    monkeypatch.setitem(sys.modules, "sglang.version", module)


def test_a_listed_release_is_announced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stated(monkeypatch, "0.5.15.post1+cu130")
    named(monkeypatch, "return_token_ids")
    info: dict[str, Any] = {"status": "ready"}
    with caplog.at_level(logging.INFO):
        server.announce(info, WITHOUT_METRICS)
    assert info == {
        "status": "ready",
        "agentcore_patches": {
            "version": release.VERSION,
            "patches": list(release.PATCHES),
            "release": "0.5.15.post1",
            "logprobs": "processed",
        },
    }
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO"]
    assert "AGENTCORE_DEFAULTS: true by default: return_token_ids" in caplog.text


def test_an_unlisted_release_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stated(monkeypatch, "0.5.99.dev3")
    info: dict[str, Any] = {}
    server.announce(info, WITHOUT_METRICS)
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
