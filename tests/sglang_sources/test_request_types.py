"""Values that SGLang's own annotations allow are never refused, in any release."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from agentcore_patches.landing.crash_fixes import guards
from agentcore_patches.landing.http import request_fields
from agentcore_patches.patches.releases import SUPPORTED_VERSIONS
from tests.helpers.wheels import wheel_files

IO_STRUCT = "srt/managers/io_struct.py"
PROTOCOL = "srt/entrypoints/openai/protocol.py"
SAMPLING_PARAMS = ("srt/sampling/sampling_params.py", "SamplingParams")
MODELS = (
    (IO_STRUCT, "GenerateReqInput"),
    (IO_STRUCT, "EmbeddingReqInput"),
    SAMPLING_PARAMS,
    (PROTOCOL, "CompletionRequest"),
    (PROTOCOL, "ChatCompletionRequest"),
)
FILES = ("srt/managers/schedule_batch.py", *dict(MODELS))
"""Where annotations and the names that they use are defined."""

ONE: Mapping[str, list[Any]] = {
    "None": [None],
    "bool": [True, False],
    "int": [1],
    "float": [0.5, 1],
    "str": ["", "a"],
    "Dict": [{}],
}
"""Values of a type."""

MANAGER: Any = SimpleNamespace(
    model_config=SimpleNamespace(vocab_size=100),
    server_args=SimpleNamespace(
        skip_tokenizer_init=False, enable_custom_logit_processor=False
    ),
    tokenizer=SimpleNamespace(eos_token_id=2),
)


def fields_of(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield the fields of a class, or the parameters of its constructor."""
    for part in node.body:
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            yield part.target.id, part.annotation
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            for argument in part.args.args[1:]:
                assert argument.annotation is not None
                yield argument.arg, argument.annotation


def values_of(node: ast.expr, aliases: Mapping[str, ast.expr]) -> list[Any]:
    """Return some values of an annotated type, none of a type that is unknown here.

    A list has two elements: the request that gets it has two prompts.
    """
    match node:
        case ast.Constant():
            return ONE[str(node.value)]
        case ast.Name(name) if name in aliases:
            return values_of(aliases[name], aliases)
        case ast.Name(name):
            return ONE.get(name, [])
        case ast.Subscript(ast.Name(kind), inside):
            parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            if kind == "Literal":
                return [ast.literal_eval(part) for part in parts]
            if kind == "Dict":
                return ONE[kind]
            each = [value for part in parts for value in values_of(part, aliases)]
            if kind in ("List", "list"):
                return [[value, value] for value in each]
            if kind == "Set":
                return [{value} for value in each]
            return each if kind == "Union" else [None, *each]
    return []


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS)
def test_a_value_of_the_annotated_type_passes(version: str) -> None:
    trees = [ast.parse(text) for text in wheel_files(version, FILES).values()]
    nodes = [node for tree in trees for node in tree.body]
    classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
    aliases = {
        node.targets[0].id: node.value
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Subscript)
    }
    params = {*dict(fields_of(classes[SAMPLING_PARAMS[1]]))}
    tried, refused = 0, []
    for _, model in MODELS:
        for name, annotation in fields_of(classes[model]):
            for value in values_of(annotation, aliases):
                obj: Any = SimpleNamespace(text=["a", "b"], input_ids=None)
                obj.sampling_params = {name: value} if name in params else {}
                vars(obj).setdefault(name, value)
                tried += 1
                if request_fields.find_error(MANAGER, obj) is not None:
                    refused.append((model, name, value))
                guards.refuse(MANAGER, obj)
    assert tried > 200
    assert refused == []
