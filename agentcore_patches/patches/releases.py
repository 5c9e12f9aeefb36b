"""The supported SGLang releases, and the differences between them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from string import Template
from typing import Generic, TypeVar

from agentcore_patches._version import full_version
from agentcore_patches.patches.paths import (
    COMMUNICATOR_MIXIN,
    CONTROL_MIXIN,
    OLD_SESSION_CONTROLLER,
    OUTPUT_PROCESSOR,
    OUTPUT_SENDER,
    OUTPUT_STREAMER,
    RELEASES,
    RESULT_PROCESSOR,
    SCHEDULER,
    SERVING_CHAT,
    SESSION_CONTROLLER,
    SSE_UTILS,
    UPDATE_WEIGHTS_MIXIN,
    WEIGHT_UPDATER,
)

SUPPORTED_VERSIONS = (
    "0.5.8",
    "0.5.8.post1",
    "0.5.9",
    "0.5.10",
    "0.5.10.post1",
    "0.5.11",
    "0.5.12",
    "0.5.12.post1",
    "0.5.13",
    "0.5.13.post1",
    "0.5.14",
    "0.5.15",
    "0.5.15.post1",
    "0.5.16",
    "0.5.17",
    "0.5.18",
    "0.5.19",
    "0.5.20",
    "0.5.21",
    "0.5.22",
    "0.5.23",
)

RUST_SERVER = "SGLANG_RUST_SERVER"
"""The environment variable that starts SGLang's Rust server."""

FIRST_WITH_RUST = "0.5.17"
"""The first release that has the Rust server."""

T = TypeVar("T")

_RELEASE = re.compile(r"\d+(\.\d+)*")


@dataclass(frozen=True, eq=False)
class ByRelease(Generic[T]):
    """A value per release: `start` from the oldest on, others from later releases on."""

    start: T
    since: Mapping[str, T] = field(default_factory=dict)

    def of(self, version: str) -> T:
        """Return the value for a release."""
        held = self.start
        for first, value in self.since.items():
            if is_between(version, first, ""):
                held = value
        return held

    def ranges(self) -> Iterator[tuple[str, str, T]]:
        """Yield each value with its first and last release."""
        firsts = [SUPPORTED_VERSIONS[0], *self.since]
        values = [self.start, *self.since.values()]
        for first, value, next_one in zip(
            firsts, values, [*self.since, ""], strict=True
        ):
            end = SUPPORTED_VERSIONS.index(next_one) if next_one else None
            yield first, SUPPORTED_VERSIONS[:end][-1], value

    def check(self) -> None:
        """Check the releases that the author wrote.

        Raises:
            ValueError: one is not supported, or a value is for no supported release.
        """
        firsts = list(self.since)
        for first in firsts:
            if is_first(first):
                raise ValueError(
                    f"no supported release is before {first}, so what {first} "
                    "replaces is unused"
                )
        listed = [version for version in SUPPORTED_VERSIONS if version in firsts]
        if firsts != listed or any(".post" in first for first in firsts):
            raise ValueError(
                f"it changes in {', '.join(firsts)}: these must be supported releases, "
                "oldest first, and no post-releases"
            )


NAMES: Mapping[str, ByRelease[str]] = {
    # Flag: chunks of a stream hold only new values (--stream-output, renamed since).
    "stream_output": ByRelease(
        "self.server_args.stream_output",
        {
            "0.5.10": "self.server_args.incremental_streaming_output",
            "0.5.20": "self.incremental_streaming_output",
        },
    ),
    "send_to_scheduler": ByRelease(
        "send_to_scheduler.send_pyobj", {"0.5.15": "_dispatch_to_scheduler"}
    ),
    # Where the scheduler stores sampled tokens, and where it sends them on. In
    # 0.5.13 the lists of a batch's output moved from locals into an object.
    "result_processor": ByRelease(OUTPUT_PROCESSOR, {"0.5.13": RESULT_PROCESSOR}),
    "collect_customized_info": ByRelease(
        "SchedulerOutputProcessorMixin.maybe_collect_customized_info",
        {"0.5.13": "SchedulerBatchResultProcessor._maybe_collect_customized_info"},
    ),
    "output_streamer": ByRelease(OUTPUT_PROCESSOR, {"0.5.13": OUTPUT_STREAMER}),
    "stream_output_generation": ByRelease(
        "SchedulerOutputProcessorMixin.stream_output_generation",
        {"0.5.13": "_GenerationStreamAccumulator.accept"},
    ),
    "output_lists": ByRelease("", {"0.5.13": "self."}),
    "output_streamer_class": ByRelease(
        "SchedulerOutputProcessorMixin", {"0.5.13": "SchedulerOutputStreamer"}
    ),
    # The class that updates weights.
    "weight_updater": ByRelease(UPDATE_WEIGHTS_MIXIN, {"0.5.13": WEIGHT_UPDATER}),
    "weight_updater_class": ByRelease(
        "SchedulerUpdateWeightsMixin", {"0.5.13": "SchedulerWeightUpdaterManager"}
    ),
    # The class that sends control requests to the scheduler.
    "control": ByRelease(COMMUNICATOR_MIXIN, {"0.5.11": CONTROL_MIXIN}),
    "control_class": ByRelease(
        "TokenizerCommunicatorMixin", {"0.5.11": "TokenizerControlMixin"}
    ),
    "session_controller": ByRelease(
        OLD_SESSION_CONTROLLER, {"0.5.11": SESSION_CONTROLLER}
    ),
    "output_sender": ByRelease(SCHEDULER, {"0.5.13": OUTPUT_SENDER}),
    # The method that waits for the outputs of a request, one by one.
    "wait_one_response": ByRelease(
        "_wait_one_response", {"0.5.19": "_stream_one_response"}
    ),
    # Its condition for the last output.
    "finished": ByRelease("state.finished", {"0.5.10": "finished"}),
    # File and name prefix of the chunk types that are not pydantic models.
    "stream_structs": ByRelease(SERVING_CHAT, {"0.5.13": SSE_UTILS}),
    "stream_struct": ByRelease("_Stream", {"0.5.13": "Stream"}),
    # The function that answers /generate.
    "generate_request": ByRelease(
        "generate_request", {"0.5.22": "serve_generate_request"}
    ),
}
"""Names that differ between releases, by first release: `$stream_output` in an edit."""

FACTS: Mapping[str, tuple[str, ByRelease[str] | ByRelease[bool]]] = {
    "STREAM_OUTPUT": (
        "Attribute of the tokenizer manager: chunks hold only new token IDs.",
        ByRelease(
            "server_args.stream_output",
            {
                "0.5.10": "server_args.incremental_streaming_output",
                "0.5.20": "incremental_streaming_output",
            },
        ),
    ),
    "FIRST_LINE_BEFORE_STATUS": (
        "SGLang generates a stream's first line before it sends the status.",
        ByRelease(False, {"0.5.10": True}),
    ),
    "TEXT_IS_NEW": (
        "Such chunks also hold only new text.",
        ByRelease(False, {"0.5.10": True}),
    ),
    "LOGPROBS_ARE_NEW": (
        "Such chunks also hold only new logprobs.",
        ByRelease(False, {"0.5.11": True}),
    ),
    "OUTPUT_IDS_GROW": (
        "The token IDs of cumulative chunks are one list that keeps growing.",
        ByRelease(False, {"0.5.11": True}),
    ),
    "REPORTED_INFO": (
        "Attribute of a request's state: the sampler's keys to report to clients.",
        ByRelease(
            "customized_info_accumulated", {"0.5.23": "customized_info_reported_keys"}
        ),
    ),
    "ABORTS_RELEASE_LORA": (
        "SGLang releases the LoRA adapter of an aborted request.",
        ByRelease(False, {"0.5.22": True}),
    ),
    "ROUTED_EXPERTS_HAVE_START": (
        "The engine's routed experts start at the requested token.",
        ByRelease(False, {"0.5.12": True}),
    ),
    "SPECULATION_LOSES_LOGPROBS": (
        "Speculative decoding with overlap records only the first token's logprobs.",
        ByRelease(True, {"0.5.10": False}),
    ),
    "BYTES_OF_ID": (
        "The `bytes` of a logprob are those of its token ID, not of its text.",
        ByRelease(False, {"0.5.21": True}),
    ),
    "SESSIONS_HAVE_PROMPTS": (
        "A request in a session may have an empty prompt.",
        ByRelease(False, {"0.5.20": True}),
    ),
    "PYDANTIC_ANSWERS": (
        "pydantic, not FastAPI's encoder, writes non-streaming responses.",
        ByRelease(False, {"0.5.22": True}),
    ),
    "RESPONSES_ARE_TRACED": (
        "/v1/responses supports function tools beyond gpt-oss, and is traced.",
        ByRelease(False, {"0.5.14": True}),
    ),
    "HAS_RUST_SERVER": (
        f"{RUST_SERVER} starts a server written in Rust.",
        ByRelease(False, {FIRST_WITH_RUST: True}),
    ),
    "IS_IDLE": (
        "Method of the scheduler: true if it has no requests.",
        ByRelease("_is_no_request", {"0.5.10": "is_fully_idle"}),
    ),
    "SESSIONS_MAY_STREAM": (
        "A session may keep its KV cache from turn to turn.",
        ByRelease(False, {"0.5.10": True}),
    ),
    "MIN_TOKENS_NEED_EOS": (
        "A request for min_new_tokens crashes if the tokenizer has no EOS token.",
        ByRelease(True, {"0.5.17": False}),
    ),
    "SPANS_ARE_STRUCTS": (
        "SGLang has a class for spans of tokens with one weight version.",
        ByRelease(False, {"0.5.19": True}),
    ),
    "DP_RANK": (
        "Field of a request: the data parallel rank to send it to.",
        ByRelease("data_parallel_rank", {"0.5.10": "routed_dp_rank"}),
    ),
    "LOADED_HAVE_IDS": (
        "A prompt that a processor has loaded has its token IDs beside its text.",
        ByRelease(False, {"0.5.13": True}),
    ),
    "IMAGE_CACHE": (
        "Module that caches image embeddings.",
        ByRelease("mm_utils", {"0.5.18": "mm_schedule"}),
    ),
}
"""Facts about a release for landing code, by first release."""


def with_names_of(version: str, code: str) -> str:
    """Replace each `$name` in an edit's code by the release's name; captures stay.

    Raises:
        KeyError, ValueError: a name is not in `NAMES`, or a `$` names nothing.
    """
    if "$" not in code:
        return code
    names = {name: NAMES[name].of(version) for name in NAMES if name in code}
    return Template(re.sub(r"\$(?=[A-Z])", "$$", code)).substitute(names)


def unused_lines() -> list[str]:
    """Return the mistakes in the release tables, such as lines for no release."""
    tables: dict[str, ByRelease[str] | ByRelease[bool]] = {
        **{f"NAMES, {name}": by_release for name, by_release in NAMES.items()},
        **{f"FACTS, {name}": by_release for name, (_, by_release) in FACTS.items()},
    }
    found = []
    for name, by_release in tables.items():
        try:
            by_release.check()
        except ValueError as error:
            found.append(f"{name}: {error}")
    for file, (first, last) in RELEASES.items():
        if first and is_first(first):
            found.append(f"RELEASES, {file}: no supported release is before {first}")
        if last and not is_between(last, SUPPORTED_VERSIONS[0], ""):
            found.append(f"RELEASES, {file}: {last} is no longer supported")
    return found


def facts_module(version: str, patches: Sequence[str]) -> str:
    """Write the text of `landing/release.py` for a release with these patches.

    It does not name the release: an SGLang that none lists gets the same text.
    """
    facts: list[tuple[str, str, object]] = [
        (name, meaning, by_release.of(version))
        for name, (meaning, by_release) in FACTS.items()
    ]
    facts += [
        ("VERSION", "The version of agentcore-patch that wrote this.", full_version()),
        ("INSTALLED", "The core and the installed extras.", tuple(patches)),
        (
            "LISTED",
            "The SGLang releases that this version of agentcore-patch supports.",
            SUPPORTED_VERSIONS,
        ),
    ]
    lines = [
        '"""Facts about this SGLang release, written by `agentcore-patch apply`."""'
    ]
    for name, meaning, value in facts:
        kind = ": tuple[str, ...]" if isinstance(value, tuple) else ""
        lines += ["", f"# {meaning}", f"{name}{kind} = {_literal(value)}"]
    return "\n".join([*lines, ""])


def _literal(value: object) -> str:
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, tuple):
        items = [f"{json.dumps(item)}," for item in value]
        # As a formatter writes it.
        return (
            f"({items[0]})" if len(items) == 1 else "\n    ".join(["(", *items]) + "\n)"
        )
    return repr(value)


def is_first(release: str) -> bool:
    """Return whether no supported release is older than this one."""
    oldest = SUPPORTED_VERSIONS[0]
    return bool(_RELEASE.fullmatch(release)) and is_between(oldest, release, "")


def is_between(version: str, since: str, until: str) -> bool:
    """True if a release is one of `since` to `until`, both included.

    An empty `since` or `until` is no limit. A post-release counts as its release: the
    patches change the two alike.
    """
    release = _numbers(version)
    first = _numbers(since) if since else release
    last = _numbers(until) if until else release
    return first <= release <= last


def _numbers(version: str) -> tuple[int, ...]:
    """Return the release's numbers, without a post-release number."""
    try:
        return tuple(map(int, version.partition(".post")[0].split(".")))
    except ValueError:
        raise ValueError(f"Invalid version: {version!r}") from None
