"""Parsers detected from a model's files."""

# ruff: noqa: RUF001

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from agentcore_verify.parsers import Parsers, detect
from agentcore_verify.scripted_model import CHAT_TEMPLATE

PYTHON = Path(sys.executable)

QWEN25 = 'XML tags:\\n<tool_call>\\n{\\"name\\": <function-name>}\\n</tool_call>'
QWEN3 = QWEN25 + "{% if enable_thinking is false %}<think>\\n\\n</think>{% endif %}"

MODELS = {
    # name: (type, chat template, parsers)
    "scripted": ("qwen2", CHAT_TEMPLATE, Parsers("qwen")),
    "Qwen2.5": ("qwen2", QWEN25, Parsers("qwen")),
    "Qwen3": ("qwen3", QWEN3, Parsers("qwen", "qwen3")),
    "Qwen3-Thinking": ("qwen3_moe", QWEN25 + "'<|im_start|>assistant\\n<think>\\n'", Parsers("qwen", "qwen3-thinking")),
    "Qwen3-Coder": ("qwen3_moe", "<tool_call>\n<function=example>\n<parameter=a>", Parsers("qwen3_coder")),
    "Hermes": ("llama", "<tool_call>{{ call }}</tool_call>", Parsers("hermes")),
    "Llama 3.1": ("llama", "<|python_tag|>", Parsers("llama3")),
    "Llama 3.2": ("llama", '{"name": function name, "parameters": dictionary of argument name and its value}', Parsers("llama3")),
    "Mistral": ("mistral", "[TOOL_CALLS] [", Parsers("mistral")),
    "GLM-4.5": ("glm4_moe", "<tool_call>{name}\n<arg_key>enable_thinking</think>", Parsers("glm", "glm45")),
    "DeepSeek-R1": ("deepseek_v3", "<｜tool▁calls▁begin｜>\n```json <｜Assistant｜> split('</think>')", Parsers("deepseekv3", "deepseek-r1")),
    "DeepSeek-V3.1": ("deepseek_v3", "{% if thinking %}<think></think><｜tool▁calls▁begin｜><｜Assistant｜>", Parsers("deepseekv31", "deepseek-v3")),
    "R1-Distill-Qwen": ("qwen2", "<｜Assistant｜> content.split('</think>')[-1]", Parsers(None, "deepseek-r1")),
    "gpt-oss": ("gpt_oss", "", Parsers("gpt-oss", "gpt-oss")),
    "a base model": ("opt", "", Parsers()),
}  # fmt: skip


def write(folder: Path, model_type: str, template: object) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    config = {"chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("name", MODELS)
def test_parsers_are_detected_from_type_and_template(tmp_path: Path, name: str) -> None:
    model_type, template, expected = MODELS[name]
    write(tmp_path, model_type, template)
    assert detect(PYTHON, str(tmp_path)) == expected


def test_a_template_may_be_a_file_or_one_of_several(tmp_path: Path) -> None:
    write(tmp_path, "qwen3", [{"name": "default", "template": QWEN3}])
    assert detect(PYTHON, str(tmp_path)) == Parsers("qwen", "qwen3")
    (tmp_path / "chat_template.jinja").write_text("[TOOL_CALLS]")
    assert detect(PYTHON, str(tmp_path)) == Parsers("mistral")


def test_a_model_without_readable_files_has_none(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    (tmp_path / "tokenizer_config.json").write_bytes(b"\xff\xfe")
    assert detect(PYTHON, str(tmp_path)) == Parsers()


def test_a_model_that_cannot_be_fetched_has_none() -> None:
    assert detect(Path("/bin/false"), "nobody/no-model") == Parsers()
