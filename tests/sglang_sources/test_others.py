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

_CHOICE = "    hidden_states: Optional[object] = None\n\n    @model_serializer"
_STREAM_CHOICE = "    matched_stop: Union[None, int, str] = None\n\n\nclass ChatCompletionStreamResponse"
_RESPONSE = "    metadata: Optional[Dict[str, Any]] = None\n    sglext"
_BUILT = "                index=idx,\n                message=ChatMessage("
_STREAMED = "                            delta=DeltaMessage(content=delta),\n"


def _fields(kind: str) -> list[tuple[str, str]]:
    """Add fields for token IDs by replacing strings, as such patches do."""
    new = f"    token_ids: {kind} = None\n"
    prompt = f"    prompt_token_ids: {kind} = None\n"
    return [
        (_CHOICE, f"{new}{_CHOICE}"),
        (_STREAM_CHOICE, f"{new}{_STREAM_CHOICE}"),
        (_RESPONSE, f"{prompt}{_RESPONSE}"),
    ]


_ARGUMENTS = [
    (_BUILT, f'                token_ids=ret_item["output_ids"],\n{_BUILT}'),
    (
        _STREAMED,
        f'{_STREAMED}                            token_ids=content["output_ids"],\n',
    ),
]

OTHERS = {
    "with fields as ours": {
        PROTOCOL: _fields("Optional[List[int]]"),
        SERVING_CHAT: _ARGUMENTS,
    },
    "with fields of another type": {
        PROTOCOL: _fields("Optional[list]"),
        SERVING_CHAT: _ARGUMENTS,
    },
    "with fields as ours and nothing to fill them": {
        PROTOCOL: _fields("Optional[List[int]]")
    },
    "that fills fields declared elsewhere": {SERVING_CHAT: _ARGUMENTS},
}


@pytest.mark.parametrize("selection", [("token-ids",), registry.names()], ids="+".join)
@pytest.mark.parametrize("other", OTHERS)
def test_another_token_id_patch_is_refused_with_a_hint(
    other: str, selection: tuple[str, ...]
) -> None:
    changed = dict(SOURCES)
    for file, replacements in OTHERS[other].items():
        text = changed[file].decode()
        for old, new in replacements:
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
