"""Verdicts on the rules of a token-exact server, from what the checks saw."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentcore_verify import checks, client, profiles
from agentcore_verify.contract import LEVELS, RULES, level_of
from agentcore_verify.profiles import PROFILES, at, named
from agentcore_verify.report import page_of
from agentcore_verify.results import (
    Failed,
    Inconclusive,
    NotExercised,
    NotPassed,
    Outcome,
    Report,
    Skipped,
)
from agentcore_verify.scoring import score
from agentcore_verify.subject import Subject


def test_the_page_has_every_rule_and_profile() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/token-exact.md").read_text()
    for rule in RULES:
        assert f"| {rule.number} | {rule.text} | Otherwise" in page
    for profile in PROFILES:
        [row] = [line for line in page.splitlines() if f"| `{profile.name}` |" in line]
        for name in (*profile.ask, *profile.ask_whole, profile.prompt, *profile.tokens):
            assert not name or f"{name}`" in row


def choice(*ids: int, **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "Hi."}
    return {"index": 0, "message": message, "token_ids": [*ids], **more}


Check = Callable[[Subject], str]


def passing(subject: Subject) -> str:
    return "seen"


def ending(ended: NotPassed) -> Check:
    def check(subject: Subject) -> str:
        raise ended

    return check


def breaking(number: int, ended: NotPassed) -> Check:
    """A check in which a part about one rule ends like this."""

    def check(subject: Subject) -> str:
        with subject.rule(number):
            raise ended
        return "seen"

    return check


def run(*checked: tuple[tuple[int, ...], Check], names: str = "some") -> Subject:
    """Run checks of these rules."""
    subject = Subject("http://nowhere")
    for name, (rules, check) in zip(names.split() * 9, checked, strict=False):
        checks.Check(name, check, rules).run(subject)
    return subject


def verdicts(subject: Subject) -> dict[int, str]:
    """Return the verdicts other than `not exercised`."""
    results = subject.ledger.results(LEVELS)
    return {
        one.number: one.verdict for one in results if one.verdict != "not exercised"
    }


PASSES = (7,), passing
FAILS = (7,), ending(Failed("wrong"))
SKIPS = (7,), ending(Skipped("no such field"))
VARIES = (7,), ending(Inconclusive("they vary"))
SILENT = (7,), ending(NotExercised("no tool was called"))
BROKEN = breaking(2, Failed("usage counts 8"))


@pytest.mark.parametrize(
    ("checked", "found"),
    [
        ([PASSES], {7: "pass"}),
        ([FAILS], {7: "fail"}),
        ([SKIPS], {7: "unsupported"}),
        ([VARIES], {7: "inconclusive"}),
        ([SILENT], {}),
        ([SKIPS, PASSES], {7: "pass"}),
        ([PASSES, SKIPS], {7: "pass"}),
        ([PASSES, FAILS], {7: "fail"}),
        ([PASSES, VARIES], {7: "inconclusive"}),
        ([VARIES, SKIPS], {7: "inconclusive"}),
        # A failure is of its own rule in a check of several.
        ([((1, 2, 3), BROKEN)], {1: "pass", 2: "fail"}),
        # A special request is blamed only for what simple ones keep.
        ([((6,), BROKEN)], {6: "fail"}),
        ([((1, 2, 3), BROKEN), ((6,), BROKEN)], {1: "pass", 2: "fail", 6: "pass"}),
        # A rule that cannot be judged in a check leaves the others.
        ([((1, 2, 3), breaking(1, Skipped("no decoder")))], {1: "unsupported"}),
    ],
)
def test_a_rule_gets_its_verdict_from_the_ends_of_checks(
    checked: list[tuple[tuple[int, ...], Check]], found: dict[int, str]
) -> None:
    assert verdicts(run(*checked)) == found


SAW = passing
QUIET = ending(NotExercised("no call"))
REFUSED = ending(Skipped("it has no parser"))


@pytest.mark.parametrize(
    ("ends", "verdict", "word"),
    [
        ((SAW, SAW), "pass", "tools: seen; reasoning: seen"),
        ((SAW, REFUSED), "pass", "reasoning: unsupported: it has no parser"),
        ((REFUSED, SAW), "pass", "tools: unsupported"),
        ((SAW, QUIET), "not exercised", "reasoning: not exercised: no call"),
        ((QUIET, SAW), "not exercised", "tools: not exercised"),
        ((REFUSED, REFUSED), "unsupported", "no parser"),
        ((SAW, ending(Failed("no IDs"))), "fail", "no IDs"),
        ((SAW, ending(Inconclusive("they vary"))), "inconclusive", "they vary"),
        ((SAW,), "not exercised", "reasoning: not exercised: not run"),
    ],
)
def test_a_rule_of_two_parts_holds_if_each_was_seen_or_is_unsupported(
    ends: tuple[Check, ...], verdict: str, word: str
) -> None:
    subject = run(*(((8,), check) for check in ends), names="tools reasoning")
    [found] = [one for one in subject.ledger.results(LEVELS) if one.number == 8]
    assert found.verdict == verdict and word in found.message, found


def judged(subject: Subject, name: str, number: int) -> str:
    """Run a check; return its verdict on a rule."""
    checks.get(name).run(subject)
    found = {one.number: one for one in subject.ledger.results(LEVELS)}
    return found[number].verdict


def test_a_check_fails_with_its_first_failure() -> None:
    def check(subject: Subject) -> str:
        for number in (1, 2):
            with subject.rule(number):
                raise Failed(f"rule {number}")
        raise Failed("afterwards")

    result = checks.Check("some", check, (1, 2)).run(Subject("http://h"))
    assert (result.outcome, result.message) == (Outcome.FAILED, "rule 1")


Serve = Callable[..., Subject]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Make the subject whose server gives an answer, or what a function returns."""

    def make(answer: Any, profile: str = "vllm", **more: Any) -> Subject:
        post = answer if callable(answer) else lambda *args, **named: answer
        monkeypatch.setattr(client, "post_json", post)
        subject = Subject("http://h", profile=named(profile), **more)
        subject.decoder = None
        return subject

    return make


def report(*checked: tuple[tuple[int, ...], Check], **more: Any) -> Report:
    rules_ = run(*checked).ledger.results(LEVELS)
    levels = tuple(level_of(level, rules_) for level in LEVELS)
    return Report(
        *("vLLM 0.32.0 at URL", "m", (), (), 1.0),
        rules=rules_,
        levels=levels,
        by_rules=True,
        **more,
    )


def test_a_run_passes_if_every_offered_level_holds() -> None:
    exact = report(((1,), passing), ((18, 19), ending(Skipped("no versions"))))
    assert exact.exit_code == 0
    assert {one.level: one.verdict for one in exact.levels} == {
        **dict.fromkeys(LEVELS, "not offered"),
        "ids": "token-exact",
    }
    assert report(((1,), passing), ((12,), ending(Failed("-")))).exit_code == 1
    assert report(((1,), passing), ((12,), ending(Inconclusive("-")))).exit_code == 1
    assert report(((18, 19), ending(Skipped("-")))).exit_code == 1
    assert report(((1,), passing), required=("ids",)).exit_code == 0
    assert report(((1,), passing), required=("ids", "turns")).exit_code == 1


@pytest.mark.parametrize(
    ("ended", "levels", "code"),
    [
        (None, LEVELS, 0),
        (None, ("ids",), 1),
        (Skipped("no /generate"), LEVELS, 1),
        (NotExercised("no two tokens"), LEVELS, 1),
    ],
)
def test_an_expected_meaning_of_logprobs_must_be_seen(
    ended: NotPassed | None, levels: tuple[str, ...], code: int
) -> None:
    judged = passing if ended is None else ending(ended)
    made = report(((1,), passing), ((13,), judged), expect_logprobs="raw")
    rules = tuple(rule for rule in made.rules if rule.level in levels)
    made = replace(made, rules=rules)
    assert made.exit_code == code
    assert ("Nothing shows that logprobs are raw." in page_of(made).text(120)) is bool(
        code
    )
    assert replace(made, expect_logprobs=None).exit_code == 0


@pytest.mark.parametrize(
    ("factor", "expected", "verdict"),
    [
        (1.0, None, "pass"),
        (1 / 0.7, None, "pass"),
        (2.0, None, "not exercised"),
        (2.0, "raw", "inconclusive"),
        (1 / 0.7, "raw", "fail"),
    ],
)
def test_the_meaning_of_logprobs_is_only_reported_unless_one_is_expected(
    served: Serve, factor: float, expected: str | None, verdict: str
) -> None:
    tops = [{"token": "", "logprob": factor * one} for one in (-0.5, -3.0)]
    entry = {"token": "", "logprob": factor * -0.5, "top_logprobs": tops}
    chat = {"choices": [choice(7, logprobs={"content": [entry]})]}
    scored = {
        "prompt_token_ids": [5, 7],
        "token_ids": [6],
        "prompt_logprobs": [None, {"7": {"logprob": -0.5}, "8": {"logprob": -3.0}}],
    }
    answers = {"chat": {**chat, "prompt_token_ids": [5]}, "": {"choices": [scored]}}
    subject = served(
        lambda url, *_, **__: answers["chat" * ("chat" in url)],
        expect_logprobs=expected,
    )
    assert judged(subject, "logprob-mode", 13) == verdict


def test_paths_lead_through_objects_and_lists() -> None:
    rows = {"meta_info": {"output_token_logprobs": [[-0.5, 7, "a"], [-1.0, 8, None]]}}
    names = {
        "logprobs": {"content": [{"token": "token_id:7"}, {"token": "token_id:8"}]}
    }
    assert named("sglang").tokens_of(rows) == (7, 8)
    assert named("token-names").tokens_of(names) == (7, 8)
    assert named("sglang").prompt_of({"choices": [{"prompt_token_ids": [1]}]}) == (1,)
    for profile in PROFILES:
        assert profile.tokens_of({"token_ids": None, "logprobs": None}) is None
        assert profile.prompt_of({"prompt_token_ids": None, "choices": []}) is None
    assert at({"a": None}, "a.b") is None and at([], "0.a") is None


def test_only_what_a_profile_knows_is_sent() -> None:
    for profile in PROFILES:
        subject = Subject("http://h", profile=profile)
        known = {
            *("model", "messages", "temperature", "max_tokens"),
            *profile.fields(stream=False),
        }
        if profile is not profiles.AGENTCORE:
            assert {*subject.body("plain")} == known


def test_the_program_token_exact_needs_neither_sglang_nor_libcst() -> None:
    code = (
        "import sys\n"
        "from agentcore_patches.command.token_exact import run\n"
        "sys.argv[1:] = ['verify', '--base-url', 'http://127.0.0.1:9']\n"
        "assert run() == 6\n"
        "print({name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "'agentcore_verify'" in done.stdout
    for name in ("sglang", "libcst", "torch"):
        assert f"'{name}'" not in done.stdout


def test_the_program_token_exact_has_the_checks_of_rules_and_launches_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentcore_patches.command.token_exact import run

    def said(*args: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["token-exact", "verify", *args])
        return (run(), *capsys.readouterr())

    _, out, _ = said("--list-checks")
    listed = [line.split()[0] for line in out.splitlines()]
    assert listed == [name for name in checks.NAMES if checks.get(name).rules]
    code, _, err = said("--model", "scripted")
    assert code == 2 and err.startswith("error: Give --base-url.\n")
    url = "http://127.0.0.1:9"
    code, _, err = said("--base-url", url, "--check", "determinism")
    assert code == 2 and "no check named determinism" in err
    code, _, err = said("--base-url", url)
    assert (code, err) == (6, f"error: No server answers at {url}.\n")


@pytest.mark.parametrize(
    ("refused", "verdicts"),
    [
        ("", ("pass", "pass")),
        ("top_logprobs", ("pass", "pass")),
        ("logprobs", ("unsupported", "unsupported")),
        ("none", ("fail", "unsupported")),  # It is silent about them.
    ],
)
@pytest.mark.parametrize("needed", [True, False])
def test_ids_are_judged_without_the_logprobs_that_a_server_refuses(
    served: Serve, refused: str, verdicts: tuple[str, str], needed: bool
) -> None:
    tops = [{"token": "token_id:7", "logprob": -0.5}]
    entry = {"token": "token_id:7", "logprob": -0.5, "top_logprobs": tops}
    sent = set[str]()

    def post(url: str, body: dict[str, Any], **more: object) -> dict[str, Any]:
        sent.update(body)
        if refused in body:
            raise client.HttpError(400, f"{refused} is no field")
        has_some = body.get("logprobs") and refused != "none"
        given = {"content": [entry]} if has_some else None
        if given and "top_logprobs" not in body:
            given = {"content": [{**entry, "top_logprobs": []}]}
        traced = choice(7, prompt_token_ids=[5], logprobs=given, finish_reason="stop")
        usage = {"prompt_tokens": 1, "completion_tokens": 1}
        return {"choices": [traced], "usage": usage}

    subject = served(post, "sglang")
    subject.needs_logprobs = needed
    for name in ("same-ids", "logprobs") if needed else ("same-ids",):
        checks.get(name).run(subject)
    found = {one.number: one.verdict for one in subject.ledger.results(LEVELS)}
    assert found[2] == found[3] == "pass", found
    assert (found[11], found[14]) == (verdicts if needed else ("not exercised",) * 2)
    assert needed or "logprobs" not in sent


@pytest.mark.parametrize(
    ("n_empty", "n_ids", "verdict"),
    [(0, 4, "not exercised"), (8, 4, "not exercised"), (0, 12, "pass")],
    ids=["all", "none", "some"],
)
def test_a_disconnect_is_judged_if_a_part_of_the_answer_had_arrived(
    served: Serve,
    monkeypatch: pytest.MonkeyPatch,
    n_empty: int,
    n_ids: int,
    verdict: str,
) -> None:
    def stream(*args: object, **more: object) -> Iterator[dict[str, Any]]:
        ids: list[list[int]] = [[]] * n_empty + [[one] for one in range(n_ids)]
        for position, part in enumerate(ids, 1):
            finish = "stop" if position == len(ids) else None
            piece = {"index": 0, "token_ids": part, "finish_reason": finish}
            yield {"choices": [{**piece, "delta": {}}], "prompt_token_ids": [5]}

    whole = {"choices": [choice(*range(n_ids), finish_reason="stop")]}
    monkeypatch.setattr(client, "chat_stream", stream)
    subject = served({**whole, "prompt_token_ids": [5]})
    assert judged(subject, "interruption", 10) == verdict


@pytest.mark.parametrize(
    ("name", "number"),
    [("tito", 15), ("logprob-mode", 13), ("choices", 6), ("tools", 8)],
)
@pytest.mark.parametrize(
    ("status", "verdict"),
    [(400, "unsupported"), (422, "unsupported"), (501, "unsupported"), (500, "fail")],
)
def test_what_a_server_refuses_is_unsupported(
    served: Serve, name: str, number: int, status: int, verdict: str
) -> None:
    def post(url: str, body: dict[str, Any], **more: object) -> dict[str, Any]:
        if "prompt" in body or {"n", "tools", "top_p"} & body.keys():
            raise client.HttpError(status, "no such field")
        return {"choices": [choice(7, finish_reason="stop")], "prompt_token_ids": [5]}

    assert judged(served(post), name, number) == verdict


@pytest.mark.parametrize(("token", "outcome"), [(6, "passed"), (9, "failed")])
def test_the_answer_after_bad_ids_may_have_other_logprobs(
    served: Serve, monkeypatch: pytest.MonkeyPatch, token: int, outcome: str
) -> None:
    def scored(logprob: float, token: int) -> dict[str, Any]:
        rows = [None, {"6": {"logprob": logprob}}, {"7": {"logprob": logprob}}]
        ids = {"prompt_token_ids": [5, 6, 7], "token_ids": [token]}
        return {"choices": [{**ids, "prompt_logprobs": rows}]}

    answers = iter([scored(-0.5, 6), scored(-0.25, token)])
    monkeypatch.setattr(Subject, "assert_refused", lambda *args, **more: None)
    monkeypatch.setattr(Subject, "longest_prompt", lambda subject: None)
    subject = served(lambda *args, **more: next(answers))
    result = checks.get("refusals").run(subject)
    assert result.outcome.value == outcome, result


SPANS = [
    {"version": "1", "start": 0, "end": 1},
    {"version": "2", "start": 1, "end": 2},
]


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ({"choices": [choice(7)], "metadata": "x"}, "fail"),
        ({"choices": [choice(-1)]}, "fail"),
        ({"choices": [choice(7)]}, "unsupported"),
        (
            {"choices": [choice(7)], "metadata": {"weight_version": "1"}},
            "not exercised",
        ),
        ({"choices": [choice(7, 8, weight_versions=SPANS)]}, "pass"),
        ({"choices": [choice(7, 8, 9, weight_versions=SPANS)]}, "fail"),
    ],
    ids=["unreadable", "no ID", "no versions", "one version", "spans", "a gap"],
)
def test_the_versions_of_a_running_server(
    served: Serve, answer: dict[str, Any], verdict: str
) -> None:
    assert judged(served(answer), "weight-versions", 18) == verdict


def test_the_last_id_of_the_vocabulary_is_named_0_by_sglang_in_a_scored_prompt(
    served: Serve,
) -> None:
    rows = [[None, 5, None], [-0.5, 0, None], [-2.0, 0, None], [-1.0, 0, None]]
    answer = {"meta_info": {"input_token_logprobs": rows}, "output_ids": [6]}
    found = score(served(answer, "agentcore"), (5, 9, 0, 7))
    # Another ID that comes back as 0 was not prefilled.
    assert found.prompt == (5, 9, 0, 0)
    assert found.logprobs == ({}, {9: -0.5}, {0: -2.0}, {0: -1.0})
