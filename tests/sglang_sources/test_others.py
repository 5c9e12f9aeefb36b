"""Sources with another patch for token IDs, or with a part of this one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from agentcore_patches.patches import registry
from tests.helpers.planning import VERSION, refusal
from tests.sglang_sources.releases import changed_files, planned, sources

PROTOCOL = "srt/entrypoints/openai/protocol.py"
SERVING_CHAT = "srt/entrypoints/openai/serving_chat.py"
FILES = changed_files(VERSION)
SOURCES = sources(VERSION)

_BEFORE = {
    "    hidden_states: Optional[object] = None\n\n    @model_serializer": "token_ids",
    "    matched_stop: Union[None, int, str] = None\n\n\nclass ChatC": "token_ids",
    "    metadata: Optional[Dict[str, Any]] = None\n    sglext": "prompt_token_ids",
}
"""Fields of SGLang, and the fields that a patch declares before them."""

_BUILT = "                index=idx,\n                message=ChatMessage("
_FILLED = {_BUILT: f'                token_ids=ret_item["output_ids"],\n{_BUILT}'}


def _fields(kind: str) -> dict[str, str]:
    """Add fields for token IDs by replacing strings, as such patches do."""
    return {old: f"    {new}: {kind} = None\n{old}" for old, new in _BEFORE.items()}


OURS = {PROTOCOL: _fields("Optional[List[int]]")}
OTHERS = {
    "with fields as ours": {**OURS, SERVING_CHAT: _FILLED},
    "with fields of another type": {PROTOCOL: _fields("Optional[list]")},
    "with fields as ours and nothing to fill them": OURS,
    "that fills fields declared elsewhere": {SERVING_CHAT: _FILLED},
}


@pytest.mark.parametrize(
    "selection", [(registry.CORE,), registry.names()], ids="+".join
)
@pytest.mark.parametrize("other", OTHERS)
def test_another_token_id_patch_is_refused_with_a_hint(
    other: str, selection: tuple[str, ...]
) -> None:
    changed = dict(SOURCES)
    for file, replacements in OTHERS[other].items():
        text = changed[file].decode()
        for old, new in replacements.items():
            assert old in text
            text = text.replace(old, new, 1)
        compile(text, file, "exec")
        changed[file] = text.encode()
    message = refusal_with_advice(changed, selection)
    assert any(file in message for file in OTHERS[other])
    assert "token_ids" in message


def refusal_with_advice(sources: Mapping[str, bytes], patches: Sequence[str]) -> str:
    message = refusal(sources, patches)
    for advice in (
        "Nothing was written.",
        "put the originals back first",
        "`pip install --force-reinstall --no-deps sglang==0.5.9`",
        "then apply again.",
    ):
        assert advice in message
    return message


@pytest.mark.parametrize("file", FILES)
def test_one_file_in_another_state_than_the_rest_is_refused(file: str) -> None:
    patched = planned(SOURCES, VERSION).files
    for mixed, said in (
        ({**SOURCES, file: patched[file]}, f"{file}: "),
        ({**patched, file: SOURCES[file]}, f"but {file}: "),
    ):
        message = refusal_with_advice(mixed, registry.names())
        assert said in message
        assert "another version of this patch, or only a part of it" in message
