"""The prompts of a conversation in which each continues exactly what was sampled."""

# ruff: noqa: RUF001  (DeepSeek's tokens have a fullwidth vertical line)

from __future__ import annotations

from tests.helpers.chat_templates import Family, conversation, sampled, tokenizer

AFTER: dict[str, tuple[str, str]] = {
    "qwen2.5": (
        "\n<|im_start|>user\n<tool_response>\nParis: sunny\n</tool_response>\n<tool_response>\nRome: sunny\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
        "\n<|im_start|>user\nThanks.<|im_end|>\n<|im_start|>assistant\n",
    ),
    "qwen3": (
        "\n<|im_start|>user\n<tool_response>\nParis: sunny\n</tool_response>\n<tool_response>\nRome: sunny\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
        "\n<|im_start|>user\nThanks.<|im_end|>\n<|im_start|>assistant\n",
    ),
    "qwen3-no-thinking": (
        "\n<|im_start|>user\n<tool_response>\nParis: sunny\n</tool_response>\n<tool_response>\nRome: sunny\n</tool_response><|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        "\n<|im_start|>user\nThanks.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    ),
    "qwen3-coder": (
        "\n<|im_start|>user\n<tool_response>\nParis: sunny\n</tool_response>\n<tool_response>\nRome: sunny\n</tool_response>\n<|im_end|>\n<|im_start|>assistant\n",
        "\n<|im_start|>user\nThanks.<|im_end|>\n<|im_start|>assistant\n",
    ),
    "llama-3.1": (
        '<|start_header_id|>ipython<|end_header_id|>\n\n"Paris: sunny"<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n',
        "<|start_header_id|>user<|end_header_id|>\n\nThanks.<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "deepseek-v3": (
        "Use the results below to formulate an answer to the user question unless additional information is needed.<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>Paris: sunny<｜tool▁output▁end｜><｜tool▁outputs▁end｜>\n",
        "<｜User｜>Thanks.<｜Assistant｜>",
    ),
    "deepseek-v3.1": (
        "<｜tool▁output▁begin｜>Paris: sunny<｜tool▁output▁end｜><｜tool▁output▁begin｜>Rome: sunny<｜tool▁output▁end｜>",
        "<｜User｜>Thanks.<｜Assistant｜><think>",
    ),
    "deepseek-v3.1-no-thinking": (
        "<｜tool▁output▁begin｜>Paris: sunny<｜tool▁output▁end｜><｜tool▁output▁begin｜>Rome: sunny<｜tool▁output▁end｜>",
        "<｜User｜>Thanks.<｜Assistant｜></think>",
    ),
    "glm-4.5": (
        "\n<tool_response>\nParis: sunny\n</tool_response>\n<tool_response>\nRome: sunny\n</tool_response><|assistant|>",
        "\nThanks.<|assistant|>",
    ),
    "glm-4.6-no-thinking": (
        "\n<tool_response>\nParis: sunny\n</tool_response>\n<tool_response>\nRome: sunny\n</tool_response><|assistant|>\n<think></think>",
        "\nThanks./nothink<|assistant|>\n<think></think>",
    ),
    "glm-4.7": (
        "<tool_response>Paris: sunny</tool_response><tool_response>Rome: sunny</tool_response><|assistant|><think>",
        "Thanks.<|assistant|><think>",
    ),
    "kimi-k2": (
        "<|im_system|>tool<|im_middle|>## Return of functions.get_weather:0\nParis: sunny<|im_end|><|im_system|>tool<|im_middle|>## Return of functions.get_weather:1\nRome: sunny<|im_end|><|im_assistant|>assistant<|im_middle|>",
        "<|im_user|>user<|im_middle|>Thanks.<|im_end|><|im_assistant|>assistant<|im_middle|>",
    ),
    "kimi-k2-counted": (
        "<|im_system|>tool<|im_middle|>## Return of functions.get_weather:0\nParis: sunny<|im_end|><|im_system|>tool<|im_middle|>## Return of functions.get_weather:1\nRome: sunny<|im_end|><|im_assistant|>assistant<|im_middle|>",
        "<|im_user|>user<|im_middle|>Thanks.<|im_end|><|im_assistant|>assistant<|im_middle|>",
    ),
    "kimi-k2-thinking": (
        "<|im_system|>tool<|im_middle|>## Return of functions.get_weather:0\nParis: sunny<|im_end|><|im_system|>tool<|im_middle|>## Return of functions.get_weather:1\nRome: sunny<|im_end|><|im_assistant|>assistant<|im_middle|>",
        "<|im_user|>user<|im_middle|>Thanks.<|im_end|><|im_assistant|>assistant<|im_middle|>",
    ),
    "gpt-oss": (
        '<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>"Paris: sunny"<|end|><|start|>assistant',
        "<|start|>user<|message|>Thanks.<|end|><|start|>assistant",
    ),
    "mistral-nemo": (
        '[TOOL_RESULTS]{"content": Paris: sunny, "call_id": "paris0001"}[/TOOL_RESULTS][TOOL_RESULTS]{"content": Rome: sunny, "call_id": "rome00002"}[/TOOL_RESULTS]',
        "[INST]Be brief.\n\nThanks.[/INST]",
    ),
    "mistral-small-3.2": (
        "[TOOL_RESULTS]paris0001[TOOL_CONTENT]Paris: sunny[/TOOL_RESULTS][TOOL_RESULTS]rome00002[TOOL_CONTENT]Rome: sunny[/TOOL_RESULTS]",
        "[INST]Thanks.[/INST]",
    ),
    "phi-4": (
        "",
        "<|im_start|>user<|im_sep|>Thanks.<|im_end|><|im_start|>assistant<|im_sep|>",
    ),
    "gemma-3": (
        "",
        "\n<start_of_turn>user\nThanks.<end_of_turn>\n<start_of_turn>model\n",
    ),
    "nemotron-3": (
        "\n<|im_start|>user\n<tool_response>\nParis: sunny\n</tool_response>\n<tool_response>\nRome: sunny\n</tool_response>\n<|im_end|>\n<|im_start|>assistant\n<think>\n",
        "\n<|im_start|>user\nThanks.<|im_end|>\n<|im_start|>assistant\n<think>\n",
    ),
    "nemotron-nano-2": (
        "\n<SPECIAL_11>User\n<TOOL_RESPONSE>[Paris: sunny, Rome: sunny]</TOOL_RESPONSE><SPECIAL_11>Assistant\n<think>\n",
        "\n<SPECIAL_11>User\nThanks.\n<SPECIAL_11>Assistant\n<think>\n",
    ),
}
"""What follows the stop token: behind the tool calls of the conversation, and its answer."""

CLOSED_WITH = {"gpt-oss": "<|end|>"}
"""What stands in place of the stop token that was sampled after the answer."""


def prompts(family: Family) -> list[str]:
    """The prompt for each answer of the conversation, and the one after its last question."""
    messages = conversation(family)
    after_calls, after_answer = AFTER[family.name]
    first: str = tokenizer(family).apply_chat_template(
        messages[:2],
        tokenize=False,
        add_generation_prompt=True,
        **family.template_kwargs,
    )
    found = [first]
    if family.tools:
        found.append(first + sampled(family, messages[2]) + after_calls)
    answer = sampled(family, messages[-2])
    if family.name in CLOSED_WITH:
        answer = answer.removesuffix(family.stop_tokens[0]) + CLOSED_WITH[family.name]
    return [*found, found[-1] + answer + after_answer]
