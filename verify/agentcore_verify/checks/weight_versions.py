"""After weight updates, each token has its version and no prompt reuses old caches.

The server is paused in place and gets weights that can sample only one token. Each token
must belong to the version of its span, and all answers must finish. Then the server gets
weights with another KV cache. A prompt that it answered before must have the logprobs
that it has with an empty cache. If not, a trainer learns from tokens and logprobs of
other weights than it assumes.
"""

from __future__ import annotations

import json
import shutil
import struct
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from agentcore_verify.audit.readers import turns_of
from agentcore_verify.audit.readers.fields import BadRecord
from agentcore_verify.checks.pauses import paused
from agentcore_verify.checks.registry import check
from agentcore_verify.client import HttpError, Json
from agentcore_verify.differences import first_difference
from agentcore_verify.parallel import in_threads
from agentcore_verify.results import Failed, NotExercised, Skipped
from agentcore_verify.signals import unless_signalled
from agentcore_verify.subject import INTERRUPTION_ATTEMPTS, Exchange, Subject

N_STREAMS = 4
LONG: dict[str, Any] = {"ignore_eos": True, "return_weight_versions": True}
FILE = "model.safetensors"
MAX_BYTES = 100_000_000
"""Size limit of a model that is copied twice."""
NOISE = 1e-3
"""Tolerance between logprobs of the same weights."""
FLUSH_ATTEMPTS = 20


@check(18, 19)
def weight_versions(subject: Subject) -> str:
    if not subject.launched:
        with subject.rule(18):
            _assert_named(subject)
        raise Skipped("Other weights would answer other clients' requests here.")
    model = _model(subject)
    version = str(subject.info.get("weight_version", "default"))
    restore = partial(_update, subject, model, version)
    with tempfile.TemporaryDirectory() as scratch, unless_signalled(restore):
        mute = _without(model, Path(scratch, "mute"), ("model.norm.weight",))
        other = _without(model, Path(scratch, "other"), ("v_proj.weight",))
        n_tokens = _check_tokens(subject, model, mute)
        subject.ledger.turn_to(19)
        distance = _check_cache(subject, model, other)
    return f"{n_tokens} tokens of two versions, a later prompt within {distance:.0e}"


def _assert_named(subject: Subject) -> None:
    """Check that the versions which an answer names are those of all its tokens."""
    asked = {"return_weight_versions": True} if subject.is_patched else {}
    reply = subject.reference("plain", **asked)
    try:
        [turn] = turns_of({"request": reply.body, "response": reply.answer.events[0]})
    except BadRecord as error:
        raise Failed(f"{reply.where}: the answer {error}.") from error
    spans = turn.answers[0].versions
    if not spans:
        raise Skipped("Answers do not name the weights.")
    if spans[-1].end is None:
        raise NotExercised("Answers name one version for all tokens, without spans.")
    _assert_covered(reply, [(span.start, span.end) for span in spans])


def _assert_covered(reply: Exchange, spans: list[tuple[Any, Any]]) -> None:
    ends = [0, *(end for _, end in spans)]
    n_ids = len(reply.ids())
    if [start for start, _ in spans] != ends[:-1] or ends[-1] != n_ids:
        raise Failed(f"{reply.where}: {spans} are not {n_ids} tokens without gaps.")


def _model(subject: Subject) -> Path:
    """Return the folder of the server's model; Skipped unless it is small and local."""
    folder = Path(str(subject.info.get("model_path")))
    if not (folder / FILE).is_file() or (folder / FILE).stat().st_size > MAX_BYTES:
        raise Skipped(
            "Other weights are made only for a small model on disk.",
            advice="Use `--model scripted`.",
        )
    return folder


def _without(model: Path, folder: Path, zeroed: tuple[str, ...]) -> Path:
    """Copy a model, with zeros in the tensors whose names have this ending."""
    shutil.copytree(model, folder)
    content = bytearray((model / FILE).read_bytes())
    [n_header] = struct.unpack_from("<Q", content)
    header: Json = json.loads(content[8 : 8 + n_header])
    found = [name for name in header if name.endswith(zeroed)]
    if not found:
        raise Skipped(
            f"The model has no tensor {zeroed[0]}, by which the check tells weights apart."
        )
    for name in found:
        begin, end = (8 + n_header + offset for offset in header[name]["data_offsets"])
        content[begin:end] = bytes(end - begin)
    (folder / FILE).write_bytes(content)
    return folder


def _check_tokens(subject: Subject, model: Path, mute: Path) -> int:
    """Count the tokens open at an update; Failed unless all have a version."""
    _update(subject, model, "first")
    wanted = subject.reference("long", **LONG).ids()
    for _ in range(INTERRUPTION_ATTEMPTS):
        _update(subject, model, "first")
        replies = _replies_through(subject, mute)
        for reply in replies:
            _assert_versions(reply, wanted)
        if any(len(_spans(reply)) == 2 for reply in replies):
            return sum(len(reply.ids()) for reply in replies)
    raise NotExercised("Every answer finished before the update.")


def _replies_through(subject: Subject, mute: Path) -> list[Exchange]:
    """Return the answers to streams during which the server gets other weights."""
    with in_threads(
        partial(subject.ask, "long", stream=bool(i % 2), logprobs=True, **LONG)
        for i in range(N_STREAMS)
    ) as asked:
        # It is answered after the first tokens of the others.
        subject.stream("plain", max_tokens=8)
        with paused(subject, "in_place"):
            _update(subject, mute, "second", flush_cache=False)
    return [reply.result() for reply in asked]


def _spans(reply: Exchange) -> list[Json]:
    """Return the versions of a reply's only choice; Failed if it has none."""
    [completion] = reply.completions
    if "weight_versions" not in completion.raw:
        raise Failed(f"{reply.where}: the last chunk has no weight_versions.")
    spans: list[Json] = completion.raw["weight_versions"]
    return spans


def _assert_versions(reply: Exchange, wanted: tuple[int, ...]) -> None:
    ids, spans = reply.ids(), _spans(reply)
    _assert_covered(reply, [(span["start"], span["end"]) for span in spans])
    for span in spans:
        sampled = ids[span["start"] : span["end"]]
        right = (
            wanted[span["start"] : span["end"]]
            if span["version"] == "first"
            else sampled[:1] * len(sampled)
        )
        if sampled != right:
            position = span["start"] + first_difference(sampled, right)
            raise Failed(
                f"{reply.where}: token {position} has the version "
                f"{span['version']!r}, which did not sample it."
            )


def _check_cache(subject: Subject, model: Path, other: Path) -> float:
    """Compare a later prompt's logprobs with those from an empty cache."""
    _update(subject, model, "first")
    subject.ask("long", max_tokens=8, logprobs=True)
    with paused(subject, "in_place"):
        _update(subject, other, "third", flush_cache=False)
    found = _first_logprob(subject)
    _flush(subject)
    distance = abs(found - _first_logprob(subject))
    if distance > NOISE:
        raise Failed(
            "A prompt reused KV cache that other weights computed: its first "
            f"logprob differs by {distance:.3f} from the one with an empty cache."
        )
    return distance


def _flush(subject: Subject) -> None:
    """Flush the cache, which the server refuses while an answer is still open."""
    for _ in range(FLUSH_ATTEMPTS):
        try:
            subject.post("/flush_cache", {})
            return
        except HttpError as error:
            refusal = error
            time.sleep(0.1)
    raise Failed(f"/flush_cache: {refusal}")


def _first_logprob(subject: Subject) -> float:
    reply = subject.ask("long", max_tokens=8, logprobs=True)
    [completion] = reply.completions
    if not completion.logprobs:
        raise Failed(f"{reply.where}, after an update: the answer has no logprobs.")
    return float(completion.logprobs[0]["logprob"])


def _update(subject: Subject, folder: Path, version: str, **more: Any) -> None:
    body = {"model_path": str(folder), "weight_version": version, **more}
    with subject.asking("/update_weights_from_disk"):
        subject.post("/update_weights_from_disk", body)
