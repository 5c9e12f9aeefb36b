"""The advice in messages: the user's target, and suggestions for names."""

from __future__ import annotations

import re

import pytest

from agentcore_patches.errors import UsageError, refuse_unknown
from agentcore_patches.shell.advice import with_target
from tests.unit.running import Run


@pytest.mark.parametrize(
    ("text", "target", "expected"),
    [
        ("`agentcore-patch apply`", {}, "`agentcore-patch apply`"),
        (
            "Run `agentcore-patch revert --force`, or `agentcore-patch list`.",
            {"--sglang-dir": "/x/sglang"},
            "Run `agentcore-patch revert --force --sglang-dir /x/sglang`, or "
            "`agentcore-patch list`.",
        ),
        (
            "`agentcore-patch status`",
            {"--python": "my env/bin/python"},
            "`agentcore-patch status --python 'my env/bin/python'`",
        ),
        (
            "`agentcore-patch status --ray 10.0.0.1:6379` or `agentcore-patch revert`",
            {"--ray": "auto", "--sglang-dir": "/x"},
            "`agentcore-patch status --ray 10.0.0.1:6379 --sglang-dir /x` or "
            "`agentcore-patch revert --sglang-dir /x`",
        ),
        (
            "`agentcore-patch apply --unlisted` or `agentcore-patch verify --model x`",
            {"--ray": "auto", "--python": "/x"},
            "`agentcore-patch apply --unlisted --python /x` or "
            "`agentcore-patch verify --model x --python /x`",
        ),
        (
            "See `agentcore-patch apply --help`.",
            {"--sglang-dir": "/x"},
            "See `agentcore-patch apply --help`.",
        ),
        (
            "agentcore-patch apply failed",
            {"--sglang-dir": "/x"},
            "agentcore-patch apply failed",
        ),
    ],
)
def test_advised_commands_have_the_users_target(
    text: str, target: dict[str, str], expected: str
) -> None:
    assert with_target(text, target) == expected
    assert with_target(expected, target) == expected


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("token_ids", "Did you mean token-ids? "),
        ("TITO", "Did you mean tito? "),
        ("tokenids", "Did you mean token-ids? "),
        ("nothing", ""),
    ],
)
def test_an_unknown_name_is_refused_with_a_suggestion(given: str, meant: str) -> None:
    known = ("tito", "token-ids")
    refuse_unknown(known, known, "patch", "patches")

    with pytest.raises(UsageError) as refused:
        refuse_unknown(["tito", given], known, "patch", "patches")

    assert str(refused.value) == (
        f"There is no patch named {given}. {meant}The patches are tito, token-ids."
    )


@pytest.mark.parametrize(
    ("options", "patches"),
    [
        ([], ["core"]),
        (["--with", "beta"], ["core", "beta"]),
        (["--with", "beta, ", "--with", "all"], ["core", "beta"]),
        (["--with", "all", "--without", "beta"], ["core"]),
    ],
)
def test_extras_are_selected_by_names(
    run: Run, options: list[str], patches: list[str]
) -> None:
    assert run("apply", *options, "--json").document["patches"] == patches
    assert run("status", "--json").document["patches"] == patches
    assert run("status", "--check").code == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--with", ""], "--with needs a name"),
        (["--with", ","], "--with needs a name"),
        (["--without", ", ,"], "--without needs a name"),
        (["--with", "bata"], r"no extra named bata\.\nhint: Did you mean beta"),
        (["--without", "core"], r"no extra named core\."),
    ],
)
def test_an_invalid_selection_is_refused(
    run: Run, options: list[str], says: str
) -> None:
    ran = run("apply", *options)
    assert ran.code == 2
    assert re.search(says, ran.err)
    assert run("status").out.count("not patched") == 1
