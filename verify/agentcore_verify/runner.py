"""One run of `verify`: launch a server or connect to one, run the checks, report."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

import requests

from agentcore_patches import api
from agentcore_patches.errors import Interrupted, ServerError, UsageError
from agentcore_patches.patches import registry
from agentcore_patches.results import PatchState, StatusResult
from agentcore_patches.shell.advice import with_target
from agentcore_patches.shell.text_output import NO_RUST_SERVER

from . import checks, contract, router
from .audit.tokens import Tokens
from .decoding import by_tokenizer
from .identity import find_profile, identify
from .launching import Device, server_options
from .profiles import AGENTCORE, named
from .progress import Progress
from .results import Identity, Outcome, Report, Result, RuleResult, Skipped, Versions
from .server import Server, ServerOptions, option_value
from .subject import NO_IDS, Subject

KEY_OPTIONS = ("--api-key", "--admin-api-key")
DEATH_SECONDS = 3.0
"""Seconds to wait for a server that gave no answer to exit."""


@dataclass(frozen=True)
class Options:
    """Options of a verify run.

    Attributes:
        model: path or name, or `scripted`; with `base_url`, the name in the requests.
        checks: names of the checks to run.
        base_url: a server that is running already; then only `model`, `checks`,
            `api_key` and `strict` are used.
        api_key: the key that the running server expects.
        python: interpreter to launch SGLang in; None: the one that runs this.
        sglang_dir: `sglang` package folder to launch; None: that of the interpreter.
        device: `cuda` launches SGLang as it is, `cpu` without a GPU; `auto` chooses.
        tool_call_parser, reasoning_parser: SGLang's parsers; None: those of the model.
        server_args: for `sglang.launch_server`; they override the default ones.
        startup_timeout: seconds until the server must generate.
        log: file for the server's output; None: a temporary file, which is kept if the
            run fails.
        strict: whether a check that was not exercised counts as failed.
        profile: how the running server is asked for token IDs; None: found by asking.
        levels: the levels of the contract to judge, which must all hold; none: all, and
            those that the server offers must hold.
        expect_logprobs: what logprobs must mean; None: it is only reported.
        tokenizer: the model's tokenizer, for a running server without /detokenize.
    """

    model: str | None = None
    checks: tuple[str, ...] = checks.NAMES
    base_url: str | None = None
    api_key: str | None = None
    python: Path | None = None
    sglang_dir: Path | None = None
    device: Device = "auto"
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    server_args: tuple[str, ...] = ()
    startup_timeout: float = 600.0
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
            return running.verify_running(options.base_url)
        return running.verify_launched()
    except Interrupted:
        raise
    except KeyboardInterrupt:
        raise Interrupted(f"{running.doing}.") from None


class _Run:
    """One run: its results and notes so far."""

    def __init__(self, options: Options, progress: Progress) -> None:
        self.options = options
        self.progress = progress
        self.began = time.monotonic()
        self.time = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self.results: list[Result] = []
        self.notes: list[str] = []
        self.patches: tuple[str, ...] | None = None
        self.sglang: str | None = None
        self.served = Identity()
        self.patched_by: str | None = None
        self.device: str | None = None
        self.doing = "before SGLang was started"
        self.by_rules = False
        self.subject: Subject | None = None
        self.levels = options.levels or contract.LEVELS
        self.numbers = {
            rule.number for rule in contract.RULES if rule.level in self.levels
        }
        if options.levels:
            self._judge()

    def verify_running(self, base_url: str) -> Report:
        url = base_url.rstrip("/").removesuffix("/v1")
        target = f"Server at {url}"
        self.doing = "while the server was being identified"
        try:
            served = _served_model(url, self.options.api_key)
            model = self.options.model or served
            subject = Subject(
                url,
                model=model,
                api_key=self.options.api_key,
                expect_logprobs=self.options.expect_logprobs,
            )
            if self.options.tokenizer:
                subject.decoder = by_tokenizer(Tokens.load(self.options.tokenizer))
            found = self.served = identify(subject)
            subject.is_sglang = found.engine == "SGLang"
            target = f"{found} at {url}"
            if found.engine == "SGLang":
                self.sglang = found.version
            self.device = _text(subject.info.get("device"))
            self._note_patches_of(subject)
            is_router = subject.is_routed = router.is_router(subject)
            asked = named(self.options.profile or AGENTCORE.name)
            if asked is AGENTCORE:
                shown = find_profile(subject, found.engine)
                subject.is_patched = subject.is_sglang and shown is AGENTCORE
                asked = asked if self.options.profile else shown
            subject.profile = asked
            if subject.is_patched:
                if problem := self._first_look(subject, is_router=is_router):
                    return self._unpatched(target, problem, model)
                skipped = self._look_for_router(subject) if is_router else {}
                self._run_checks(subject, None, skipped)
            else:
                self._note_other_engine(subject)
                self._judge()
                self._run_checks(subject, None, {})
        except ServerError as error:
            return self._report(target, error=error)
        return self._report(target, model=model)

    def _unpatched(self, target: str, problem: str, model: str = "") -> Report:
        """Return the report about an SGLang of which nothing was checked."""
        self.results = [
            Result(name, Outcome.FAILED, problem) for name in self.options.checks
        ]
        return replace(self._report(target, model=model), unpatched=problem)

    def _note_patches_of(self, subject: Subject) -> None:
        """Record a running server's report about its patches, if there is one."""
        reported = subject.info.get("agentcore_patches")
        if not isinstance(reported, dict):
            return
        patches = [str(name) for name in reported.get("patches") or ()]
        self.patches = tuple(patches)
        self.patched_by = _text(reported.get("version"))
        self.notes.append(
            f"The server has agentcore-patch {reported.get('version')}: {', '.join(patches)}."
        )
        if reported.get("release") is None:
            self.notes.append(
                f"agentcore-patch {reported.get('version')} does not support the release "
                "that this server runs."
            )

    def _first_look(self, subject: Subject, *, is_router: bool) -> str:
        """Return why checking a running server would be useless, or an empty string."""
        if self.patches is not None:
            return "" if registry.CORE in self.patches else self._too_old(subject)
        if subject.info and not is_router:
            return self._too_old(subject)
        self.notes.append(
            "The server does not report its patches: a router hides /server_info. Run "
            "`agentcore-patch status` on its machine."
        )
        return ""

    def _too_old(self, subject: Subject) -> str:
        return (
            f"The server at {subject.base_url} was patched by an older agentcore-patch. "
            "Run `agentcore-patch apply` on its machine, and restart it."
        )

    def _look_for_router(self, subject: Subject) -> dict[str, Skipped]:
        """Note what a router drops; return why checks are impossible, by their names."""
        self.notes.append(router.NOT_DECODED)
        self.notes += [
            f"The router drops the request field {field.name}: {field.meaning}."
            for field in router.dropped_fields(subject)
        ]
        return {
            name: Skipped(router.NOT_CHECKED, advice=router.ADVICE)
            for name in checks.NAMES
            if name not in router.THROUGH_ROUTER
        }

    def verify_launched(self) -> Report:
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
        self.sglang, self.patched_by = install.version, status.applied_by
        self.served = Identity("SGLang", install.version)
        self.patches = status.patches
        target = f"SGLang {install.version} in {install.package}"
        if not self.patches:
            install.require_release()
            problem = (
                f"{target} is not patched, so no server was started. Run "
                "`agentcore-patch apply` first."
            )
            return self._unpatched(target, self._advice(problem))
        without = [
            checks.get(name).without_extra(self.patches) for name in options.checks
        ]
        if all(without):
            self.results = [result for result in without if result]
            return self._report(target)
        with _log_file(options.log) as log:
            return self._launch_and_check(target, install.package, log)

    def _launch_and_check(self, target: str, package: Path, log: Path) -> Report:
        server: Server | None = None
        startup: float | None = None
        error: ServerError | None = None
        try:
            launching = self._server_options(log, package)
            self.device = option_value(launching.args, "--device") or (
                "cpu" if launching.cpu else "cuda"
            )
            server = Server(launching)
            self.doing = "while SGLang was starting"
            self.progress.message(f"Starting SGLang; its log is {log}")
            began = time.monotonic()
            server.start(self.progress.loading)
            startup = time.monotonic() - began
            self.progress.message(
                f"SGLang is ready at {server.base_url} after {startup:.0f} s"
            )
            subject = Subject(
                server.base_url,
                api_key=server.api_key or self.options.api_key,
                python=server.options.python,
                launched=True,
                expect_logprobs=self.options.expect_logprobs,
            )
            self._run_checks(subject, server, skipped={})
        except ServerError as failure:
            error = failure
        except KeyboardInterrupt:
            ended = " The server was stopped." if server else ""
            kept = f" Its log is {log}." if log.exists() and log.stat().st_size else ""
            raise Interrupted(f"{self.doing}.{ended}{kept}") from None
        finally:
            if server is not None:
                server.stop()
        report = self._report(target, server, startup=startup, error=error)
        if self.options.log is None and (report.passed or not log.stat().st_size):
            log.unlink(missing_ok=True)
            return replace(report, log=None)
        return report

    def _server_options(self, log: Path, package: Path) -> ServerOptions:
        options = self.options
        return server_options(
            str(options.model),
            log=log,
            python=options.python,
            sglang_dir=options.sglang_dir,
            package=package,
            device=options.device,
            tool_call_parser=options.tool_call_parser,
            reasoning_parser=options.reasoning_parser,
            server_args=options.server_args,
            startup_timeout=options.startup_timeout,
            mirror_sampler=True,
            notify=self.progress.message,
        )

    def _judge(self) -> None:
        """Let the rules decide, and run only the checks that are about one."""
        self.by_rules = True
        names = self.options.checks
        judging = (name for name in names if {*checks.get(name).rules} & self.numbers)
        self.options = replace(self.options, checks=tuple(judging))

    def _note_other_engine(self, subject: Subject) -> None:
        subject.needs_logprobs = "logprobs" in self.levels
        subject.sends_bad_ids = "token-in" in self.options.levels
        if subject.info.get("frontend") == "rust":
            self.notes.append(
                "This is SGLang's Rust server, which runs no patched code."
            )
        if not subject.profile.tokens:
            self.notes.append(NO_IDS)

    def _run_checks(
        self,
        subject: Subject,
        server: Server | None,
        skipped: Mapping[str, Skipped],
    ) -> None:
        """Run the checks; if the server dies, skip the rest and raise ServerError.

        `skipped` tells, by name, why checks cannot be run here.
        """
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
            result = check.without_extra(self.patches) or check.run(
                subject, skipped.get(name)
            )
            self.results.append(result)
            self.progress.check_ended(result)
            if server and result.outcome is Outcome.FAILED:
                try:
                    _wait_for_death(server)
                except ServerError as error:
                    self.results += [
                        Result(left, Outcome.SKIPPED, "The server had already died.")
                        for left in names[number:]
                    ]
                    raise ServerError(
                        f"During {result.name}: {error.message}", error.hint
                    ) from error

    def _advice(self, text: str) -> str:
        """Add the options of the verified SGLang to the commands in an advice."""
        options = self.options
        if options.sglang_dir:
            return with_target(text, {"--sglang-dir": str(options.sglang_dir)})
        if options.python:
            return with_target(text, {"--python": str(options.python)})
        return text

    def _note_state(self, status: StatusResult) -> None:
        """Note that the patches are incomplete or outdated."""
        if status.state is PatchState.CHANGED:
            self.notes.append(
                self._advice(
                    "Some files were changed after they were patched: "
                    "`agentcore-patch status` lists them."
                )
            )
        if status.state is PatchState.OUTDATED:
            self.notes.append(
                self._advice(
                    "The patches are from another version of agentcore-patch: "
                    "`agentcore-patch apply` replaces them."
                )
            )

    def _report(
        self,
        target: str,
        server: Server | None = None,
        *,
        model: str | None = None,
        startup: float | None = None,
        error: ServerError | None = None,
    ) -> Report:
        rules: tuple[RuleResult, ...] = ()
        if self.subject:
            rules = self.subject.ledger.results(self.levels)
        return Report(
            target=target,
            model=model or self.options.model or "",
            server_args=_without_keys(server.options.args) if server else (),
            results=tuple(self.results),
            seconds=time.monotonic() - self.began,
            server=self.served,
            startup=startup,
            strict=self.options.strict,
            log=server.log if server else None,
            error=None if error is None else error.message,
            hint=error.hint if error else "",
            notes=tuple(self.notes),
            versions=Versions(sglang=self.sglang, patched_by=self.patched_by),
            patches=self.patches,
            time=self.time,
            device=self.device,
            profile=self.subject.profile.name if self.subject else None,
            rules=rules,
            levels=tuple(contract.level_of(level, rules) for level in self.levels)
            if rules
            else (),
            required=self.options.levels,
            by_rules=self.by_rules,
            expect_logprobs=self.options.expect_logprobs,
        )


@contextmanager
def _log_file(requested: Path | None) -> Iterator[Path]:
    """Yield the file for the output; keep a temporary one after Ctrl-C: SGLang may hang."""
    if requested is not None:
        yield requested
        return
    handle, path = tempfile.mkstemp(prefix="agentcore-verify-", suffix=".log")
    os.close(handle)
    try:
        yield Path(path)
    except BaseException as error:
        if not (isinstance(error, Interrupted) and Path(path).stat().st_size):
            Path(path).unlink(missing_ok=True)
        raise


def _text(value: object) -> str | None:
    return None if value is None else str(value)


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


def _served_model(url: str, api_key: str | None) -> str:
    """Return the name of the served model; also check that the server answers."""
    try:
        response = Subject(url, api_key=api_key).get("/v1/models")
    except OSError as error:
        hint = ""
        if isinstance(error, requests.exceptions.SSLError):
            hint = "Its certificate is not accepted: SSL_CERT_FILE names the CA's file."
        elif not isinstance(error, requests.RequestException):
            hint = str(error)  # There is no such file of certificates.
        raise ServerError(f"No server answers at {url}.", hint) from error
    if response.status_code in (401, 403):
        raise UsageError(f"The server at {url} needs an API key: give --api-key.")
    with suppress(ValueError, LookupError, TypeError):
        return str(response.json()["data"][0]["id"])
    return "default"


def _wait_for_death(server: Server) -> None:
    """Raise ServerError if the server is dead or about to die."""
    deadline = time.monotonic() + DEATH_SECONDS
    while time.monotonic() < deadline:
        server.ensure_alive()
        with suppress(requests.RequestException):
            Subject(server.base_url, api_key=server.api_key).get("/v1/models")
            return
        time.sleep(0.1)
