"""One run of `verify`: launch a server or connect to one, run the checks, report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import requests

from agentcore_patches import api
from agentcore_patches.errors import Interrupted, ServerError, UsageError
from agentcore_patches.patches import registry
from agentcore_patches.results import PatchState, StatusResult
from agentcore_patches.shell.advice import with_target
from agentcore_patches.shell.text_output import NO_RUST_SERVER

from . import checks, contract, router
from .audit.tokens import Tokens
from .checks import Check
from .identity import find_profile, identify
from .launching import Launching, server_options, temporary_log
from .profiles import AGENTCORE, named
from .progress import Progress
from .results import Identity, Outcome, Report, Result, Skipped, Versions
from .server import Server, option_value
from .subject import NO_IDS, Subject

KEY_OPTIONS = ("--api-key", "--admin-api-key")
DEATH_SECONDS = 3.0
"""Seconds to wait for a server that gave no answer to exit."""


@dataclass(frozen=True)
class Options(Launching):
    """Options of a verify run, as the command explains them.

    Those for launching have no effect with `base_url`.
    """

    checks: tuple[str, ...] = checks.NAMES
    base_url: str | None = None
    api_key: str | None = None
    log: Path | None = None
    strict: bool = False
    profile: str | None = None
    levels: tuple[str, ...] = ()
    expect_logprobs: str | None = None
    tokenizer: Path | None = None


def run(options: Options, progress: Progress) -> Report:
    """Verify a running server, or launch one, verify it and stop it.

    If the server does not start or dies, the report has an `error`.

    Raises:
        UsageError: the options do not fit together or to the server.
        UnsupportedTarget: there is no SGLang, or one of an unsupported version.
        AccessError: a file could not be read.
    """
    running = _Run(options, progress)
    try:
        if options.base_url is not None:
            running.verify_running(options.base_url)
        else:
            running.verify_launched()
    except ServerError as error:
        running.record(error=error.message, hint=error.hint)
    except Interrupted:
        raise
    except KeyboardInterrupt:
        raise Interrupted(f"{running.doing}.") from None
    return running.report()


class _Run:
    """One run, and its report so far."""

    def __init__(self, options: Options, progress: Progress) -> None:
        self.options = options
        self.progress = progress
        self.began = time.monotonic()
        self.doing = "before SGLang was started"
        self.subject: Subject | None = None
        self.levels = options.levels or contract.LEVELS
        self.draft = Report(
            target="",
            model=options.model or "",
            strict=options.strict,
            time=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            required=options.levels,
            expect_logprobs=options.expect_logprobs,
        )
        if options.levels:
            self._judge()

    def record(self, **more: Any) -> None:
        """Put these attributes into the report."""
        self.draft = replace(self.draft, **more)

    def _note(self, *lines: str) -> None:
        self.record(notes=(*self.draft.notes, *lines))

    def report(self) -> Report:
        """Return the report, with the time that the run took and the verdicts on rules."""
        self.record(seconds=time.monotonic() - self.began)
        if self.subject:
            rules = self.subject.ledger.results(self.levels)
            levels = tuple(contract.level_of(level, rules) for level in self.levels)
            profile = self.subject.profile.name
            self.record(profile=profile, rules=rules, levels=levels)
        return self.draft

    def verify_running(self, base_url: str) -> None:
        options = self.options
        url = base_url.rstrip("/").removesuffix("/v1")
        self.record(target=f"Server at {url}")
        self.doing = "while the server was being identified"
        subject = Subject(
            url, api_key=options.api_key, expect_logprobs=options.expect_logprobs
        )
        _assert_serves(subject)
        subject.model = options.model or subject.served_model()
        if options.tokenizer:
            subject.decoder = Tokens.load(options.tokenizer).decode_all
        found = identify(subject)
        subject.is_sglang = found.engine == "SGLang"
        device = subject.info.get("device")
        self.record(
            model=subject.model,
            target=f"{found} at {url}",
            server=found,
            versions=Versions(sglang=found.version if subject.is_sglang else None),
            device=None if device is None else str(device),
        )
        self._note_patches_of(subject)
        subject.is_routed = router.is_router(subject)
        asked = named(options.profile or AGENTCORE.name)
        # Naming a profile does not make a server patched.
        shown = find_profile(subject, found.engine) if asked is AGENTCORE else asked
        subject.profile = asked if options.profile else shown
        subject.is_patched = subject.is_sglang and shown is AGENTCORE
        if not subject.is_patched:
            subject.needs_logprobs = "logprobs" in self.levels
            subject.sends_bad_ids = "token-in" in options.levels
            if subject.info.get("frontend") == "rust":
                self._note("This is SGLang's Rust server, which runs no patched code.")
            if not subject.profile.tokens:
                self._note(NO_IDS)
            self._judge()
        elif problem := self._first_look(subject):
            self._refuse(problem)
            return
        elif subject.is_routed:
            self._look_for_router(subject)
        self._run_checks(subject, None)

    def _refuse(self, problem: str) -> None:
        """Report an SGLang of which nothing is checked."""
        results = (Result(n, Outcome.FAILED, problem) for n in self.options.checks)
        self.record(results=tuple(results), unpatched=problem)

    def _note_patches_of(self, subject: Subject) -> None:
        """Record a running server's report about its patches, if there is one."""
        reported = subject.info.get("agentcore_patches")
        if not isinstance(reported, dict):
            return
        version = reported.get("version")
        patches = tuple(str(name) for name in reported.get("patches") or ())
        patched_by = None if version is None else str(version)
        versions = replace(self.draft.versions, patched_by=patched_by)
        self.record(patches=patches, versions=versions)
        self._note(f"The server has agentcore-patch {version}: {', '.join(patches)}.")
        if reported.get("release") is None:
            self._note(
                f"agentcore-patch {version} does not support the release that this "
                "server runs."
            )

    def _first_look(self, subject: Subject) -> str:
        """Return why checking a patched server would be useless, or an empty string."""
        if self.draft.patches is None and (subject.is_routed or not subject.info):
            self._note(
                "The server does not report its patches: a router hides /server_info. "
                "Run `agentcore-patch status` on its machine."
            )
        elif registry.CORE not in (self.draft.patches or ()):
            return (
                f"The server at {subject.base_url} was patched by an older "
                "agentcore-patch. Run `agentcore-patch apply` on its machine, and "
                "restart it."
            )
        return ""

    def _look_for_router(self, subject: Subject) -> None:
        """Note what a router drops."""
        if not subject.can_decode:
            self._note(router.NOT_DECODED)
        self._note(
            *(
                f"The router drops the request field {field.name}: {field.meaning}."
                for field in router.dropped_fields(subject)
            ),
        )

    def verify_launched(self) -> None:
        options = self.options
        if "--skip-tokenizer-init" in options.server_args:
            raise UsageError(
                "The checks need the server's tokenizer: leave --skip-tokenizer-init "
                "out."
            )
        status = api.status(
            sglang_dir=options.sglang_dir,
            python=None if options.sglang_dir else options.python,
        )
        if status.rust_server:
            raise UsageError(f"{NO_RUST_SERVER} Unset it to verify.")
        self._note_state(status)
        install = status.install
        target = f"SGLang {install.version} in {install.package}"
        self.record(
            target=target,
            server=Identity("SGLang", install.version),
            versions=Versions(sglang=install.version, patched_by=status.applied_by),
            patches=status.patches,
        )
        if not status.patches:
            install.require_release()
            self._refuse(
                self._advice(
                    f"{target} is not patched, so no server was started. Run "
                    "`agentcore-patch apply` first."
                )
            )
            return
        # SGLang may hang: its log is kept after Ctrl-C.
        given = nullcontext(options.log) if options.log else None
        with given or temporary_log("verify", Interrupted) as log:
            try:
                self._launch_and_check(install.package, log)
            except ServerError as error:
                self.record(error=error.message, hint=error.hint)
            if options.log:
                return
            if not (self.report().exit_code and log.stat().st_size):
                log.unlink(missing_ok=True)
                self.record(log=None)

    def _launch_and_check(self, package: Path, log: Path) -> None:
        launching = server_options(
            self.options,
            log=log,
            notify=self.progress.message,
            package=package,
            mirror_sampler=True,
        )
        device = option_value(launching.args, "--device")
        self.record(
            device=device or ("cpu" if launching.cpu else "cuda"),
            server_args=_without_keys(launching.args),
            log=log,
        )
        server = Server(launching)
        try:
            self.doing = "while SGLang was starting"
            self.progress.message(f"Starting SGLang; its log is {log}")
            began = time.monotonic()
            server.start(self.progress.loading)
            startup = time.monotonic() - began
            self.record(startup=startup)
            self.progress.message(
                f"SGLang is ready at {server.base_url} after {startup:.0f} s"
            )
            subject = Subject(
                server.base_url,
                api_key=server.api_key or self.options.api_key,
                python=launching.python,
                launched=True,
                expect_logprobs=self.options.expect_logprobs,
            )
            self._run_checks(subject, server)
        except KeyboardInterrupt:
            kept = f" Its log is {log}." if log.exists() and log.stat().st_size else ""
            raise Interrupted(f"{self.doing}. The server was stopped.{kept}") from None
        finally:
            server.stop()

    def _judge(self) -> None:
        """Let the rules decide, and run only the checks that are about one."""
        numbers = {rule.number for rule in contract.RULES if rule.level in self.levels}
        names = self.options.checks
        judging = tuple(name for name in names if {*checks.get(name).rules} & numbers)
        self.options = replace(self.options, checks=judging)
        self.record(by_rules=True)

    def _why_skipped(self, check: Check, subject: Subject) -> Skipped | None:
        """Return why a check cannot be run here.

        Rules are judged all the same: a router that drops the fields fails them.
        """
        if without := check.without_extra(self.draft.patches):
            return without
        routed = subject.is_routed and not self.draft.by_rules
        return router.NOT_CHECKED if routed and not check.through_router else None

    def _run_checks(self, subject: Subject, server: Server | None) -> None:
        """Run the checks; if the server dies, skip the rest and raise ServerError."""
        self.subject = subject
        if subject.info.get("skip_tokenizer_init"):
            raise UsageError(
                "The server runs with --skip-tokenizer-init, but the checks need its "
                "tokenizer."
            )
        names = self.options.checks
        for number, name in enumerate(names, 1):
            self.progress.check_started(name, number, len(names))
            self.doing = f"during the check {name} ({number} of {len(names)})"
            check = checks.get(name)
            result = check.run(subject, self._why_skipped(check, subject))
            self.record(results=(*self.draft.results, result))
            self.progress.check_ended(result)
            if server and result.outcome is Outcome.FAILED:
                try:
                    _wait_for_death(server)
                except ServerError as error:
                    died = "The server had already died."
                    left = [Result(n, Outcome.SKIPPED, died) for n in names[number:]]
                    self.record(results=(*self.draft.results, *left))
                    where = f"During {result.name}: {error.message}"
                    raise ServerError(where, error.hint) from error

    def _advice(self, text: str) -> str:
        """Add the options of the verified SGLang to the commands in an advice."""
        given = (
            ("--sglang-dir", self.options.sglang_dir),
            ("--python", self.options.python),
        )
        target = [(name, str(path)) for name, path in given if path]
        return with_target(text, dict(target[:1]))

    def _note_state(self, status: StatusResult) -> None:
        """Note that the patches are incomplete or outdated."""
        notes = {
            PatchState.CHANGED: "Some files were changed after they were patched: "
            "`agentcore-patch status` lists them.",
            PatchState.OUTDATED: "The patches are from another version of "
            "agentcore-patch: `agentcore-patch apply` replaces them.",
        }
        if status.state in notes:
            self._note(self._advice(notes[status.state]))


def _without_keys(args: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments with API keys replaced by `***`."""
    shown: list[str] = []
    for before, arg in zip(("", *args), args, strict=False):
        name, has_value, _ = arg.partition("=")
        if before in KEY_OPTIONS:
            arg = "***"
        elif has_value and name in KEY_OPTIONS:
            arg = f"{name}=***"
        shown.append(arg)
    return tuple(shown)


def _assert_serves(subject: Subject) -> None:
    """Raise ServerError if no server answers, and UsageError if it needs a key."""
    url = subject.base_url
    try:
        response = subject.get("/v1/models")
    except OSError as error:
        hint = ""
        if isinstance(error, requests.exceptions.SSLError):
            hint = "Its certificate is not accepted: SSL_CERT_FILE names the CA's file."
        elif not isinstance(error, requests.RequestException):
            hint = str(error)  # There is no such file of certificates.
        raise ServerError(f"No server answers at {url}.", hint) from error
    if response.status_code in (401, 403):
        raise UsageError(f"The server at {url} needs an API key: give --api-key.")


def _wait_for_death(server: Server) -> None:
    """Raise ServerError if the server is dead or about to die."""
    deadline = time.monotonic() + DEATH_SECONDS
    while time.monotonic() < deadline:
        server.ensure_alive()
        with suppress(requests.RequestException):
            Subject(server.base_url, api_key=server.api_key).get("/v1/models")
            return
        time.sleep(0.1)
