"""The templates of the families say what the published ones say, and lose what they lose.

`LOST` is the table of what a template does not write as it was sampled.
"""

# ruff: noqa: RUF001  (DeepSeek's tokens have a fullwidth vertical line)

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.helpers.chat_templates import (
    FAMILIES,
    FOLDER,
    Family,
    conversation,
    sampled,
    template_of,
    tokenizer,
)
from tests.helpers.chat_templates.continued import AFTER, prompts

pytest.importorskip("transformers")

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Its name"},
                "days": {"type": "integer", "default": 1},
            },
            "required": ["city"],
        },
    },
}

EXPECTED: dict[str, str] = {
    "qwen2.5": (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nWeather?<|im_end|>\n"
        '<|im_start|>assistant\nLet me look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n</tool_call>\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\nParis: sunny\n</tool_response>\n<tool_response>\nRome: sunny\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\nSunny.<|im_end|>\n"
        "<|im_start|>user\nThanks.<|im_end|>\n"
        "<|im_start|>assistant\n"
    ),
    "qwen3": (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nWeather?<|im_end|>\n"
        '<|im_start|>assistant\nLet me look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n</tool_call>\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\nParis: sunny\n</tool_response>\n<tool_response>\nRome: sunny\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\nSunny.<|im_end|>\n"
        "<|im_start|>user\nThanks.<|im_end|>\n"
        "<|im_start|>assistant\n"
    ),
    "qwen3-no-thinking": (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nWeather?<|im_end|>\n"
        '<|im_start|>assistant\nLet me look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n</tool_call>\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\nParis: sunny\n</tool_response>\n<tool_response>\nRome: sunny\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\nSunny.<|im_end|>\n"
        "<|im_start|>user\nThanks.<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    ),
    "qwen3-coder": (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nWeather?<|im_end|>\n"
        "<|im_start|>assistant\nLet me look.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nParis: sunny\n</tool_response>\n<tool_response>\nRome: sunny\n</tool_response>\n<|im_end|>\n"
        "<|im_start|>assistant\nSunny.<|im_end|>\n"
        "<|im_start|>user\nThanks.<|im_end|>\n"
        "<|im_start|>assistant\n"
    ),
    "llama-3.1": (
        "<|begin_of_text|>"
        "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nWeather?<|eot_id|>"
        '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "get_weather", "parameters": {"city": "Paris", "days": 2}}<|eot_id|>'
        '<|start_header_id|>ipython<|end_header_id|>\n\n"Paris: sunny"<|eot_id|>'
        "<|start_header_id|>assistant<|end_header_id|>\n\nSunny.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nThanks.<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    "deepseek-v3": (
        "\n<｜begin▁of▁sentence｜>Be brief."
        "<｜User｜>Weather?"
        '<｜Assistant｜>Let me look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{"city": "Paris", "days": 2}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>'
        "Use the results below to formulate an answer to the user question unless additional information is needed.<｜tool▁outputs▁begin｜>"
        "<｜tool▁output▁begin｜>Paris: sunny<｜tool▁output▁end｜><｜tool▁outputs▁end｜>"
        "Sunny.<｜end▁of▁sentence｜>"
        "<｜User｜>Thanks."
        "<｜Assistant｜>"
    ),
    "deepseek-v3.1": (
        "<｜begin▁of▁sentence｜>Be brief."
        "<｜User｜>Weather?"
        '<｜Assistant｜></think>Let me look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris", "days": 2}<｜tool▁call▁end｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Rome", "days": 2}<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>'
        "<｜tool▁output▁begin｜>Paris: sunny<｜tool▁output▁end｜>"
        "<｜tool▁output▁begin｜>Rome: sunny<｜tool▁output▁end｜>"
        "Sunny.<｜end▁of▁sentence｜>"
        "<｜User｜>Thanks."
        "<｜Assistant｜><think>"
    ),
    "deepseek-v3.1-no-thinking": (
        "<｜begin▁of▁sentence｜>Be brief."
        "<｜User｜>Weather?"
        '<｜Assistant｜></think>Let me look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris", "days": 2}<｜tool▁call▁end｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Rome", "days": 2}<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>'
        "<｜tool▁output▁begin｜>Paris: sunny<｜tool▁output▁end｜>"
        "<｜tool▁output▁begin｜>Rome: sunny<｜tool▁output▁end｜>"
        "Sunny.<｜end▁of▁sentence｜>"
        "<｜User｜>Thanks."
        "<｜Assistant｜></think>"
    ),
    "glm-4.5": (
        "[gMASK]<sop>"
        "<|system|>\nBe brief."
        "<|user|>\nWeather?"
        "<|assistant|>\n<think></think>\nLet me look.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>"
        "<|observation|>\n<tool_response>\nParis: sunny\n</tool_response>\n<tool_response>\nRome: sunny\n</tool_response>"
        "<|assistant|>\n<think></think>\nSunny."
        "<|user|>\nThanks."
        "<|assistant|>"
    ),
    "glm-4.6-no-thinking": (
        "[gMASK]<sop>"
        "<|system|>\nBe brief."
        "<|user|>\nWeather?/nothink"
        "<|assistant|>\n<think></think>\nLet me look.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>"
        "<|observation|>\n<tool_response>\nParis: sunny\n</tool_response>\n<tool_response>\nRome: sunny\n</tool_response>"
        "<|assistant|>\n<think></think>\nSunny."
        "<|user|>\nThanks./nothink"
        "<|assistant|>\n<think></think>"
    ),
    "glm-4.7": (
        "[gMASK]<sop>"
        "<|system|>Be brief."
        "<|user|>Weather?"
        "<|assistant|></think>Let me look.<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value><arg_key>days</arg_key><arg_value>2</arg_value></tool_call><tool_call>get_weather<arg_key>city</arg_key><arg_value>Rome</arg_value><arg_key>days</arg_key><arg_value>2</arg_value></tool_call>"
        "<|observation|><tool_response>Paris: sunny</tool_response><tool_response>Rome: sunny</tool_response>"
        "<|assistant|></think>Sunny."
        "<|user|>Thanks."
        "<|assistant|><think>"
    ),
    "kimi-k2": (
        "<|im_system|>system<|im_middle|>Be brief.<|im_end|>"
        "<|im_user|>user<|im_middle|>Weather?<|im_end|>"
        '<|im_assistant|>assistant<|im_middle|>Let me look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Paris", "days": 2}<|tool_call_end|><|tool_call_begin|>functions.get_weather:1<|tool_call_argument_begin|>{"city": "Rome", "days": 2}<|tool_call_end|><|tool_calls_section_end|><|im_end|>'
        "<|im_system|>tool<|im_middle|>## Return of functions.get_weather:0\nParis: sunny<|im_end|>"
        "<|im_system|>tool<|im_middle|>## Return of functions.get_weather:1\nRome: sunny<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|>Sunny.<|im_end|>"
        "<|im_user|>user<|im_middle|>Thanks.<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|>"
    ),
    "kimi-k2-counted": (
        "<|im_system|>system<|im_middle|>Be brief.<|im_end|>"
        "<|im_user|>user<|im_middle|>Weather?<|im_end|>"
        '<|im_assistant|>assistant<|im_middle|>Let me look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Paris", "days": 2}<|tool_call_end|><|tool_call_begin|>functions.get_weather:1<|tool_call_argument_begin|>{"city": "Rome", "days": 2}<|tool_call_end|><|tool_calls_section_end|><|im_end|>'
        "<|im_system|>tool<|im_middle|>## Return of functions.get_weather:0\nParis: sunny<|im_end|>"
        "<|im_system|>tool<|im_middle|>## Return of functions.get_weather:1\nRome: sunny<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|>Sunny.<|im_end|>"
        "<|im_user|>user<|im_middle|>Thanks.<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|>"
    ),
    "kimi-k2-thinking": (
        "<|im_system|>system<|im_middle|>Be brief.<|im_end|>"
        "<|im_user|>user<|im_middle|>Weather?<|im_end|>"
        '<|im_assistant|>assistant<|im_middle|><think></think>Let me look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Paris", "days": 2}<|tool_call_end|><|tool_call_begin|>functions.get_weather:1<|tool_call_argument_begin|>{"city": "Rome", "days": 2}<|tool_call_end|><|tool_calls_section_end|><|im_end|>'
        "<|im_system|>tool<|im_middle|>## Return of functions.get_weather:0\nParis: sunny<|im_end|>"
        "<|im_system|>tool<|im_middle|>## Return of functions.get_weather:1\nRome: sunny<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|><think></think>Sunny.<|im_end|>"
        "<|im_user|>user<|im_middle|>Thanks.<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|>"
    ),
    "gpt-oss": (
        "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\nCurrent date: DATE\n\nReasoning: medium\n\n# Valid channels: analysis, commentary, final. Channel must be included for every message.<|end|>"
        "<|start|>developer<|message|># Instructions\n\nBe brief.\n\n<|end|>"
        "<|start|>user<|message|>Weather?<|end|>"
        '<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Paris", "days": 2}<|call|>'
        '<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>"Paris: sunny"<|end|>'
        "<|start|>assistant<|channel|>final<|message|>Sunny.<|end|>"
        "<|start|>user<|message|>Thanks.<|end|>"
        "<|start|>assistant"
    ),
    "mistral-nemo": (
        "<s>"
        "[INST]Weather?[/INST]"
        '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}, "id": "paris0001"}, {"name": "get_weather", "arguments": {"city": "Rome", "days": 2}, "id": "rome00002"}]</s>'
        '[TOOL_RESULTS]{"content": Paris: sunny, "call_id": "paris0001"}[/TOOL_RESULTS]'
        '[TOOL_RESULTS]{"content": Rome: sunny, "call_id": "rome00002"}[/TOOL_RESULTS]'
        "Sunny.</s>"
        "[INST]Be brief.\n\nThanks.[/INST]"
    ),
    "mistral-small-3.2": (
        "<s>"
        "[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT]"
        "[INST]Weather?[/INST]"
        '[TOOL_CALLS]get_weather[CALL_ID]paris0001[ARGS]{"city": "Paris", "days": 2}'
        '[TOOL_CALLS]get_weather[CALL_ID]rome00002[ARGS]{"city": "Rome", "days": 2}</s>'
        "[TOOL_RESULTS]paris0001[TOOL_CONTENT]Paris: sunny[/TOOL_RESULTS]"
        "[TOOL_RESULTS]rome00002[TOOL_CONTENT]Rome: sunny[/TOOL_RESULTS]"
        "Sunny.</s>"
        "[INST]Thanks.[/INST]"
    ),
    "phi-4": (
        "<|im_start|>system<|im_sep|>Be brief.<|im_end|>"
        "<|im_start|>user<|im_sep|>Weather?<|im_end|>"
        "<|im_start|>assistant<|im_sep|>Sunny.<|im_end|>"
        "<|im_start|>user<|im_sep|>Thanks.<|im_end|>"
        "<|im_start|>assistant<|im_sep|>"
    ),
    "gemma-3": (
        "<bos>"
        "<start_of_turn>user\nBe brief.\n\nWeather?<end_of_turn>\n"
        "<start_of_turn>model\nSunny.<end_of_turn>\n"
        "<start_of_turn>user\nThanks.<end_of_turn>\n"
        "<start_of_turn>model\n"
    ),
    "nemotron-3": (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nWeather?<|im_end|>\n"
        "<|im_start|>assistant\n<think></think>Let me look.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>\n<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nParis: sunny\n</tool_response>\n<tool_response>\nRome: sunny\n</tool_response>\n<|im_end|>\n"
        "<|im_start|>assistant\n<think></think>Sunny.<|im_end|>\n"
        "<|im_start|>user\nThanks.<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n"
    ),
    "nemotron-nano-2": (
        "<SPECIAL_10>System\nBe brief.\n\n"
        "<SPECIAL_11>User\nWeather?\n"
        '<SPECIAL_11>Assistant\nLet me look.\n<TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}, {"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}]</TOOLCALL>\n<SPECIAL_12>\n'
        "<SPECIAL_11>User\n<TOOL_RESPONSE>[Paris: sunny, Rome: sunny]</TOOL_RESPONSE>"
        "<SPECIAL_11>Assistant\nSunny.\n<SPECIAL_12>\n"
        "<SPECIAL_11>User\nThanks.\n"
        "<SPECIAL_11>Assistant\n<think>\n"
    ),
}

THINKING = "thinking"
"""Gone at once: the next prompt has none."""
THINKING_LATER = "thinking, at the next question"
"""There beside the tool results, and gone when the user has spoken again."""
ARGUMENTS = "spelling of tool calls"
SPACES = "white space around the text"
LINES = "line ends between text and tool calls"
TEXT_BESIDE_CALLS = "text beside tool calls"
STOP = "stop token"
"""Another token stands where the sampled one was."""
NEWLINE = "line end before the stop token"
"""It is there whether it was sampled or not."""

LOST: dict[str, set[str]] = {
    "qwen2.5": {ARGUMENTS},
    "qwen3": {THINKING_LATER, ARGUMENTS, SPACES},
    "qwen3-no-thinking": {ARGUMENTS},
    "qwen3-coder": {SPACES, LINES},
    "llama-3.1": {ARGUMENTS, SPACES, TEXT_BESIDE_CALLS},
    "deepseek-v3": {ARGUMENTS},
    "deepseek-v3.1": {THINKING, ARGUMENTS},
    "deepseek-v3.1-no-thinking": {ARGUMENTS},
    "glm-4.5": {THINKING_LATER, SPACES},
    "glm-4.6-no-thinking": {SPACES},
    "glm-4.7": {THINKING_LATER, SPACES},
    "kimi-k2": {ARGUMENTS},
    "kimi-k2-counted": {ARGUMENTS},
    "kimi-k2-thinking": {THINKING_LATER, ARGUMENTS},
    "gpt-oss": {THINKING_LATER, ARGUMENTS, STOP, TEXT_BESIDE_CALLS},
    "mistral-nemo": {ARGUMENTS, TEXT_BESIDE_CALLS},
    "mistral-small-3.2": {ARGUMENTS, TEXT_BESIDE_CALLS},
    "phi-4": set(),
    "gemma-3": {SPACES},
    "nemotron-3": {THINKING_LATER, SPACES},
    "nemotron-nano-2": {THINKING, ARGUMENTS, SPACES, NEWLINE},
}


@pytest.fixture(params=FAMILIES, ids=str)
def family(request: pytest.FixtureRequest) -> Family:
    found: Family = request.param
    return found


def rendered(
    family: Family, messages: list[dict[str, Any]], tools: list[Any] | None = None
) -> str:
    """The prompt for the next answer."""
    text: str = tokenizer(family).apply_chat_template(
        messages,
        tools=tools,
        tokenize=False,
        add_generation_prompt=True,
        **family.template_kwargs,
    )
    return text


def test_each_template_is_of_a_family_and_says_of_which_model() -> None:
    names = {family.template or family.name for family in FAMILIES}
    assert names == {path.stem for path in FOLDER.glob("*.jinja")}
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    for found in FAMILIES:
        first = template_of(found).splitlines()[0]
        assert re.fullmatch(r"\{#- [A-Z].*\. -#\}|\{#- gpt-oss.*\. -#\}", first)


def test_a_conversation_is_written_as_the_family_documents(family: Family) -> None:
    text = rendered(family, conversation(family))
    dated = re.sub(r"Current date: \d{4}-\d\d-\d\d", "Current date: DATE", text)
    assert dated == EXPECTED[family.name]


def test_special_tokens_are_single_ids(family: Family) -> None:
    known = tokenizer(family)
    names = {*family.special_tokens, *family.added_tokens}
    assert {*family.stop_tokens, *family.before_text} <= names
    ids = [known.encode(name, add_special_tokens=False) for name in names]
    assert {len(found) for found in ids} == {1}
    assert len({found[0] for found in ids}) == len(names)
    hidden = known.decode([found[0] for found in ids], skip_special_tokens=True)
    assert not any(name in hidden for name in family.special_tokens)
    assert all(name in hidden for name in family.added_tokens)


def test_the_prompt_is_the_same_as_text_and_as_ids(family: Family) -> None:
    known = tokenizer(family)
    ids = known.apply_chat_template(
        conversation(family),
        add_generation_prompt=True,
        return_dict=False,
        **family.template_kwargs,
    )
    text = rendered(family, conversation(family))
    assert known.decode(ids) == text
    assert known.encode(text, add_special_tokens=False) == ids
    before = [known.convert_tokens_to_ids(name) for name in family.before_text]
    assert known.encode("Hello") == [
        *before,
        *known.encode("Hello", add_special_tokens=False),
    ]


def test_tools_are_described_where_the_family_has_tools(family: Family) -> None:
    asked = conversation(family)[:2]
    without, with_tools = rendered(family, asked), rendered(family, asked, [WEATHER])
    assert "get_weather" not in without
    assert ("get_weather" in with_tools) is family.tools
    assert (with_tools != without) is family.tools


def test_gpt_oss_describes_tools_in_typescript() -> None:
    (family,) = (found for found in FAMILIES if found.name == "gpt-oss")
    assert (
        "# Tools\n\n## functions\n\nnamespace functions {\n\n"
        "// Weather of a city.\ntype get_weather = (_: {\n"
        "// Its name\ncity: string,\ndays?: number, // default: 1,\n"
        "}) => any;\n\n} // namespace functions<|end|>"
    ) in rendered(family, conversation(family)[:2], [WEATHER])


def test_parallel_calls_are_taken_where_the_family_says_so(family: Family) -> None:
    if not family.tools:
        pytest.skip("The family has no tools.")
    messages = conversation(family)
    calling = messages[2]
    call = {**calling["tool_calls"][0], "id": family.call_ids[1]}
    call["function"] = {"name": "get_time", "arguments": {"zone": "CET"}}
    calling["tool_calls"] = [calling["tool_calls"][0], call]
    try:
        taken = "CET" in rendered(family, messages)
    except Exception:
        taken = False
    assert taken is family.parallel_calls


def test_what_is_sampled_ends_with_a_stop_token(family: Family) -> None:
    for message in conversation(family):
        if message["role"] == "assistant":
            stop = family.stop_tokens[-1 if "tool_calls" in message else 0]
            text = sampled(family, message)
            assert text.endswith(stop)
            assert (message["content"] or "Paris") in text
            assert ("I need the weather." in text) == (
                family.reasoning and "tool_calls" in message
            )
            parsed = tokenizer(family).encode(text, add_special_tokens=False)
            assert parsed[-1] == tokenizer(family).convert_tokens_to_ids(stop)


def test_prompts_that_continue_what_was_sampled_go_on_as_the_template(
    family: Family,
) -> None:
    messages = conversation(family)
    after_calls, after_answer = AFTER[family.name]
    *earlier, last = prompts(family)
    assert len(earlier) == (2 if family.tools else 1)
    assert rendered(family, messages).endswith(after_answer)
    assert last.endswith(after_answer) and last.startswith(earlier[-1])
    if family.tools:
        assert rendered(family, messages[:-2]).endswith(after_calls)
        assert earlier[1].startswith(earlier[0]) and earlier[1].endswith(after_calls)
    differs = last != rendered(family, messages)
    assert differs is bool(LOST[family.name] - {SPACES, TEXT_BESIDE_CALLS})


def test_what_a_template_loses(family: Family) -> None:
    assert lost(family) == LOST[family.name]


def lost(family: Family) -> set[str]:
    """What the prompts for later answers have otherwise than it was sampled."""
    messages = conversation(family)
    at_question = rendered(family, messages)
    answer = sampled(family, {"role": "assistant", "content": "Sunny."})
    closing = answer[answer.index("Sunny.") :]
    found = set()
    if closing not in at_question:
        found.add(STOP)
    elif "Sunny.\n" in closing:
        found.add(NEWLINE)
    if trims(family):
        found.add(SPACES)
    if not family.tools:
        return found
    calling = messages[2]
    said = sampled(family, calling)
    calls = said[said.index("get_weather") : -len(family.stop_tokens[-1])]
    if calls.strip() not in at_question:
        found.add(ARGUMENTS)
    elif said[said.index(calling["content"]) :].partition(calls)[0] not in at_question:
        found.add(LINES)
    if family.reasoning and "I need the weather." not in rendered(
        family, messages[:-2]
    ):
        found.add(THINKING)
    elif family.reasoning and "I need the weather." not in at_question:
        found.add(THINKING_LATER)
    calling.pop(family.reasoning_field, None)
    calling["content"] = "Let me look."
    if "Let me look." not in rendered(family, messages):
        found.add(TEXT_BESIDE_CALLS)
    return found


def trims(family: Family) -> bool:
    """Whether white space around the text of an answer is lost."""
    messages = conversation(family)
    texts = []
    for message in messages:
        if message["role"] == "assistant" and message["content"]:
            message["content"] = f"\n\n\n {message['content']} \n"
            texts.append(message["content"])
    after_results = rendered(family, messages[:-2])
    at_question = rendered(family, messages)
    return not (
        all(text in at_question for text in texts)
        and all(text in after_results for text in texts[:-1])
    )
