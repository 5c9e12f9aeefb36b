"""Recognize a server by what it says of itself."""

from __future__ import annotations

from dataclasses import replace

from .client import Json
from .profiles import AGENTCORE, PROFILES, PROMPT, Profile, at, named
from .results import Identity
from .subject import Subject

ENGINES = {"sglang": "SGLang", "vllm": "vLLM"}
"""The engines, by the owner that /v1/models names."""

SGLANG_FIELD = "mem_fraction_static"
"""A field of /server_info that only SGLang has."""

SGLANG_STOP = "matched_stop"
"""A field of each choice that only SGLang has."""


def identify(subject: Subject) -> Identity:
    """Ask each endpoint where an engine names itself; a router may hide them."""
    owner = str(subject.listed_model().get("owned_by"))
    info: Json = subject.info
    engine = ENGINES.get(owner, "")
    if "agentcore_patches" in info or (not engine and SGLANG_FIELD in info):
        engine = "SGLang"
    elif not engine and "vllm_config" in info:
        engine = "vLLM"
    version = info.get("version")
    if engine == "vLLM":
        version = subject.json_at("/version").get("version")
    return Identity(engine or None, str(version) if version else None)


def find_profile(subject: Subject, engine: str | None) -> Profile:
    """Ask for token IDs in each way that fits the engine, until an answer has some."""
    if "agentcore_patches" in subject.info:
        return AGENTCORE
    own = {"vLLM": [named("vllm")], "SGLang": [AGENTCORE, named("sglang")]}
    candidates = own.get(engine or "", [*PROFILES])
    for profile in (*candidates, named("token-names")):
        if answer := subject.answer_with_ids(profile):
            choice = at(answer, "choices.0")
            if not engine and profile is AGENTCORE and SGLANG_STOP in choice:
                subject.is_sglang = True  # A router hides its name.
            if engine or profile.prompt_of(answer):
                return profile
            # A gateway may drop the prompt's IDs alone, or only the tokens'.
            return replace(profile, prompt=PROMPT if at(answer, PROMPT) else "")
    without = replace(candidates[-1], prompt="", tokens=())
    subject.answer_with_ids(replace(without, ask={}, ask_whole={}), may_refuse=False)
    return without
