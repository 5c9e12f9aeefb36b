"""Detect a model's parsers from its chat template and its type."""

# ruff: noqa: RUF001  (DeepSeek's tokens have a fullwidth vertical line)

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILES = (
    "config.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
)

# Run in the target interpreter: prints the path of each file, or an empty line.
_FETCH = """
import sys
from huggingface_hub import hf_hub_download
for name in sys.argv[2:]:
    try:
        print(hf_hub_download(sys.argv[1], name))
    except Exception:
        print()
"""


@dataclass(frozen=True)
class Parsers:
    """Values for SGLang's --tool-call-parser and --reasoning-parser."""

    tool_call: str | None = None
    reasoning: str | None = None


@dataclass(frozen=True)
class Rule:
    """The models that a parser is for.

    The model has this `model_type`, if one is given, and its chat template contains all
    strings of `template`.
    """

    parser: str
    model_type: str = ""
    template: tuple[str, ...] = ()

    def fits(self, model_type: str, template: str) -> bool:
        return self.model_type in ("", model_type) and all(
            text in template for text in self.template
        )


# In both lists, the first rule counts that fits and names a parser of the release.
TOOL_CALL = (
    Rule("gpt-oss", "gpt_oss"),
    Rule("pythonic", "llama4"),
    Rule("deepseekv32", "deepseek_v32"),
    Rule("deepseekv3", template=("<｜tool▁calls▁begin｜>", "```json")),
    Rule("deepseekv31", template=("<｜tool▁calls▁begin｜>",)),
    Rule("kimi_k2", template=("<|tool_calls_section_begin|>",)),
    Rule("minimax-m2", template=("<minimax:tool_call>",)),
    Rule("step3", template=("<｜tool_calls_begin｜>",)),
    Rule("lfm2", template=("<|tool_call_start|>",)),
    Rule("interns1", template=("<|action_start|>",)),
    Rule("mistral", template=("[TOOL_CALLS]",)),
    Rule("llama3", template=("<|python_tag|>",)),
    Rule("llama3", "llama", ('"parameters": dictionary of argument name',)),
    Rule("glm", template=("<tool_call>", "<arg_key>")),
    Rule("mimo", "mimo", ("<function=",)),
    Rule("qwen3_coder", template=("<tool_call>", "<function=")),
    Rule("qwen", template=("<tool_call>\\n",)),
    Rule("hermes", template=("<tool_call>",)),
)

REASONING = (
    Rule("gpt-oss", "gpt_oss"),
    Rule("kimi", template=("◁think▷",)),
    Rule("kimi_k2", "kimi_k2", ("</think>",)),
    Rule("glm45", "glm4_moe"),
    Rule("minimax", "minimax_m2"),
    Rule("step3", "step3_vl"),
    Rule("interns1", "interns1", ("enable_thinking",)),
    Rule("nano_v3", "nemotron_h", ("enable_thinking",)),
    Rule("nemotron_3", "nemotron_h", ("enable_thinking",)),
    Rule("qwen3", template=("</think>", "enable_thinking")),
    Rule("qwen3-thinking", "qwen3", ("<|im_start|>assistant\\n<think>",)),
    Rule("qwen3-thinking", "qwen3_moe", ("<|im_start|>assistant\\n<think>",)),
    Rule("deepseek-v3", "deepseek_v3", ("</think>", "thinking")),
    Rule("deepseek-r1", template=("<｜Assistant｜>", "</think>")),
)

TOOL_CALL_PARSERS = "srt/function_call/function_call_parser.py"
REASONING_PARSERS = "srt/parser/reasoning_parser.py"
"""SGLang's files that name its parsers."""


def detect(python: Path, model: str, package: Path | None = None) -> Parsers:
    """Detect the parsers of a model in a folder or on the Hugging Face hub.

    Files of a model on the hub that are not in the cache are downloaded by `python`; they
    are small, and the server needs them too.

    Args:
        package: `sglang` package folder; only parsers in it count. None: all parsers.
    """
    files = _read(python, model)
    model_type = str(_json(files, "config.json").get("model_type", ""))
    template = _template(files)

    def first(rules: tuple[Rule, ...], path: str) -> str | None:
        source = _text(package / path) if package else ""
        known = (
            rule.parser
            for rule in rules
            if rule.fits(model_type, template)
            and (not source or f'"{rule.parser}": ' in source)
        )
        return next(known, None)

    return Parsers(
        first(TOOL_CALL, TOOL_CALL_PARSERS), first(REASONING, REASONING_PARSERS)
    )


def _text(path: Path) -> str:
    """Return the text of a file; empty if it cannot be read."""
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text("utf-8")
    return ""


def _read(python: Path, model: str) -> dict[str, str]:
    """Return the contents of the existing `FILES`, by name."""
    folder = Path(model)
    if folder.is_dir():
        paths = {name: folder / name for name in FILES}
    else:
        done = subprocess.run(
            [python, "-c", _FETCH, model, *FILES],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        found = zip(FILES, done.stdout.splitlines(), strict=False)
        paths = {name: Path(path) for name, path in found if path}
    texts = {name: _text(path) for name, path in paths.items()}
    return {name: text for name, text in texts.items() if text}


def _template(files: Mapping[str, str]) -> str:
    """The chat template; if there are several, all of them joined."""
    if "chat_template.jinja" in files:
        return _escaped(files["chat_template.jinja"])
    for name in ("chat_template.json", "tokenizer_config.json"):
        template = _json(files, name).get("chat_template")
        if isinstance(template, str):
            return _escaped(template)
        if isinstance(template, list):
            return _escaped("\n".join(str(part.get("template")) for part in template))
    return ""


def _escaped(template: str) -> str:
    """Return the template with line ends written as in its own string literals."""
    return template.replace("\n", "\\n")


def _json(files: Mapping[str, str], name: str) -> dict[str, Any]:
    with suppress(ValueError):
        value = json.loads(files.get(name, "{}"))
        if isinstance(value, dict):
            return value
    return {}
