"""A tiny model that answers a fixed script word for word.

As a module it has the script and `ensure_scripted_model`. Run by file path, in an
interpreter with torch and transformers, it trains the model:

    PYTHON scripted_model.py OUTPUT_DIR

The tokenizer splits every non-ASCII character into its bytes and every tag into several
tokens, so that text is held back while streaming. Training aims at a different
probability for each token (between 0.45 and 0.95), so that the logprob of another token
is noticed, while the scripted answer stays far more probable than any other.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python puts this file's folder first; torch must not import from it.
    _HERE = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != _HERE]

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]

ENV = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    # On a busy machine, threads that spin while they wait make this much slower.
    "OMP_WAIT_POLICY": "PASSIVE",
}
"""Environment variables of the training."""


def _tool(name: str, description: str, *parameters: str) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {key: {"type": "string"} for key in parameters},
                "required": list(parameters),
            },
        },
    }


TOOLS: tuple[dict[str, Any], ...] = (
    _tool("get_weather", "The weather in a city right now.", "city"),
    _tool("get_time", "The local time in a city.", "city"),
)
"""The tools of the script, as in an OpenAI request."""


@dataclass(frozen=True)
class Line:
    """One line of the script: a question and the exact answer.

    `text` is what the model generates, including tags, without the end token. It is the
    same with and without `TOOLS` in the prompt; `tool_calls` are the calls in the text
    that a tool-call parser finds, as (name, arguments).
    """

    name: str
    question: str
    text: str
    tool_calls: tuple[tuple[str, dict[str, str]], ...] = ()
    history: tuple[Message, ...] = ()

    @property
    def messages(self) -> list[Message]:
        """The messages of the request that `text` answers."""
        return [*self.history, {"role": "user", "content": self.question}]


def _call(name: str, **arguments: str) -> str:
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{call}\n</tool_call>"


def _turn(question: str, answer: str) -> tuple[Message, ...]:
    return (
        {"role": "user", "content": question},
        {"role": "assistant", "content": answer},
    )


_WORD_LIST = """
anchor apple autumn badge basket beacon cabin candle carpet castle chair daisy dinner
dragon earth engine fabric fence ferry field finger garden ginger grain harbor kettle
lantern lemon letter marble meadow mirror monkey ocean orange orchard paddle parrot
puzzle quarry ribbon river saddle silver spider sugar temple tunnel village yellow
"""

STOP_WORD = "lantern"
"""A word that occurs once, in the middle of the line named `long`."""

SCRIPT: tuple[Line, ...] = (
    Line("plain", "Say hello.", "Hello! I am a small model, and I know my lines."),
    Line(
        "emoji",
        "Show me emoji.",
        "Look: 😀🎉 a rocket 🚀, a family 👨‍👩‍👧, flags 🇪🇺 and ✨!",
    ),
    Line(
        "cjk",
        "Greet me in Chinese and Japanese.",
        "你好，世界！很高兴见到你。こんにちは、世界。",  # noqa: RUF001
    ),
    Line("silent", "Say nothing.", ""),
    Line(
        "tool",
        "What is the weather in Paris?",
        _call("get_weather", city="Paris"),
        tool_calls=(("get_weather", {"city": "Paris"}),),
    ),
    Line(
        "two_tools",
        "Weather in Oslo and time in 東京?",
        _call("get_weather", city="Oslo") + "\n" + _call("get_time", city="東京"),
        tool_calls=(("get_weather", {"city": "Oslo"}), ("get_time", {"city": "東京"})),
    ),
    Line(
        "text_then_tool",
        "Tell me the time in Lima.",
        "I will look at the clock 🕐 there.\n" + _call("get_time", city="Lima"),
        tool_calls=(("get_time", {"city": "Lima"}),),
    ),
    Line(
        "tool_result",
        "And now in words?",
        "It is sunny in Paris ☀, twenty degrees.",
        history=(
            {"role": "user", "content": "What is the weather in Paris?"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {
                        "id": "call_0",
                        "type": "function",
                        "function": {
                            "name": "get_weather",
                            "arguments": '{"city": "Paris"}',
                        },
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_0", "content": "sunny, 20 C"},
        ),
    ),
    Line(
        "reasoning",
        "What is two plus three?",
        "<think>\nTwo and three 🤔 make five.\n</think>\n\nIt is five.",
    ),
    Line(
        "reasoning_then_tool",
        "Think, then get the weather in Rome.",
        "<think>\nRome is in Italy, so I ask for it.\n</think>\n\n"
        + _call("get_weather", city="Rome"),
        tool_calls=(("get_weather", {"city": "Rome"}),),
    ),
    Line(
        "long",
        "Name many things.",
        "Here they are: " + ", ".join(_WORD_LIST.split()) + ". 🏁",
    ),
    Line(
        "second_turn_ada",
        "What is my name?",
        "Your name is Ada.",
        history=_turn("My name is Ada.", "Nice to meet you, Ada."),
    ),
    Line(
        "second_turn_bob",
        "What is my name?",
        "You told me that it is Bob.",
        history=_turn("My name is Bob.", "Good day to you, Bob."),
    ),
    Line(
        "call_list",
        "Answer with a list of calls.",
        '[{"name": "get_weather", "parameters": {"city": "Paris"}}]',
    ),
)
"""All lines. `call_list` is for `tool_choice: "required"`, whose grammar allows only a
JSON list of calls."""


def line(name: str) -> Line:
    """The line of the script with this name; KeyError if there is none."""
    return {entry.name: entry for entry in SCRIPT}[name]


def ensure_scripted_model(
    python: Path,
    cache_dir: Path | None = None,
    *,
    notify: Callable[[str], None] | None = None,
) -> Path:
    """Folder of the scripted model; `python` trains it if it is not in the cache.

    Training takes about 20 s on two cores, and is announced to `notify`. Processes that
    share a cache may call this concurrently: the model is trained once.

    Raises ServerError with the last lines of the training's output if it fails.
    """
    import filelock
    import platformdirs

    from agentcore_patches.errors import ServerError

    cache = cache_dir or platformdirs.user_cache_path("agentcore-patches")
    script = Path(__file__).resolve()
    key = hashlib.sha256(script.read_bytes()).hexdigest()[:16]
    model = cache / f"scripted-model-{key}"
    if model.is_dir():
        return model
    cache.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(cache / f"{model.name}.lock"):
        if model.is_dir():
            return model
        if notify:
            notify("Training the scripted model (once, about 20 s)")
        making = cache / f"{model.name}.making"
        # An earlier call may have been killed.
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir()
        try:
            done = subprocess.run(
                [python, script, making],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env={**os.environ, **ENV},
            )
            if done.returncode != 0:
                tail = "\n".join(done.stdout.splitlines()[-20:])
                raise ServerError(
                    f"Training the scripted model with {python} failed (exit "
                    f"{done.returncode}). The last lines of its output:\n{tail}"
                )
            making.rename(model)
        except OSError as error:
            raise ServerError(f"Cannot train the scripted model: {error}.") from error
        finally:
            shutil.rmtree(making, ignore_errors=True)
    return model


# What follows runs in the target interpreter.

END = "<|im_end|>"
START = "<|im_start|>"
PAD = "<|endoftext|>"
VOCABULARY = 420
THINK_TAGS = ("<think>", "</think>")
"""One token each, as in reasoning models; required by SGLang from 0.5.12 on."""
TENSOR_MULTIPLE = 64
"""GPU kernels need tensor sizes that are multiples of this, and heads of this size."""
MIN_MARGINS = {"float32": 2.0, "bfloat16": 1.5, "float16": 1.5}
"""Required lead of every scripted token over the next best one, in logits by dtype."""

CHAT_TEMPLATE = """\
{%- if messages[0].role == 'system' or tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n' }}{% endif %}
{%- if tools %}
{{- '<tools>\\n' }}
{%- for tool in tools %}
{{- tool.function.name }}({{ tool.function.parameters.properties | join(', ') }})
{{- '\\n' }}
{%- endfor %}
{{- '</tools>\\nCall as <tool_call>{"name": ..., "arguments": ...}</tool_call>\\n' }}
{%- endif %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content }}
{{- '\\n</tool_response><|im_end|>\\n' }}
{%- elif message.role != 'system' %}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{%- if message.content or not loop.first %}{{- '\\n' }}{% endif %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{%- if call.function.arguments is string %}{{- call.function.arguments }}
{%- else %}{{- call.function.arguments | tojson }}{% endif %}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}
"""


def make_tokenizer(tags: Sequence[str] = THINK_TAGS) -> Any:
    """A byte-level BPE tokenizer that splits non-ASCII characters into bytes.

    Each of the tags is one token.
    """
    from tokenizers import (
        AddedToken,
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
        trainers,
    )
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    texts = [said for entry in SCRIPT for said in (entry.question, entry.text)]
    texts.append(CHAT_TEMPLATE)
    bpe.train_from_iterator(
        ["".join(c if c.isascii() else " " for c in text) for text in texts],
        trainers.BpeTrainer(
            vocab_size=VOCABULARY - len(tags),
            special_tokens=[PAD, START, END],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    bpe.add_tokens([AddedToken(tag, normalized=False, special=False) for tag in tags])
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=END,
        pad_token=PAD,
        chat_template=CHAT_TEMPLATE,
        model_max_length=40960,
        clean_up_tokenization_spaces=False,
    )


Pairs = list[tuple[list[int], list[int]]]
"""The IDs of prompts and of their answers, which end with the end token."""


def _encode(tokenizer: Any) -> Pairs:
    """(prompt IDs, answer IDs with end token) of each line, without and with tools."""
    pairs = []
    for entry in SCRIPT:
        answer = tokenizer.encode(entry.text + END, add_special_tokens=False)
        for tools in (None, list(TOOLS)):
            prompt = tokenizer.apply_chat_template(
                entry.messages, tools=tools, add_generation_prompt=True, tokenize=False
            )
            pairs.append((tokenizer.encode(prompt, add_special_tokens=False), answer))
    return pairs


def _batches(pairs: Pairs) -> list[Any]:
    """(input IDs, labels, with -100 outside the answer), padded; long lines separately."""
    import torch

    batches = []
    for group in (
        [pair for pair in pairs if len(pair[1]) <= 200],
        [pair for pair in pairs if len(pair[1]) > 200],
    ):
        if not group:
            continue
        width = max(len(prompt) + len(answer) for prompt, answer in group) - 1
        ids = torch.zeros(len(group), width, dtype=torch.long)
        labels = torch.full((len(group), width), -100)
        for row, (prompt, answer) in enumerate(group):
            whole = torch.tensor(prompt + answer)
            ids[row, : len(whole) - 1] = whole[:-1]
            labels[row, len(prompt) - 1 : len(whole) - 1] = whole[len(prompt) :]
        batches.append((ids, labels))
    return batches


def _train(config: Any, batches: list[Any], steps: int) -> Any:
    import torch
    from transformers import Qwen2ForCausalLM

    torch.manual_seed(steps)
    model = Qwen2ForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=4e-3, total_steps=steps + 1, pct_start=0.1
    )
    # The probability that each token should get where it is the scripted one.
    aims = 0.45 + 0.5 * ((torch.arange(config.vocab_size) * 0.618034) % 1)
    for _ in range(steps):
        optimizer.zero_grad()
        for ids, labels in batches:
            asked = labels != -100
            hidden = model.model(input_ids=ids).last_hidden_state[asked]
            logprobs = model.lm_head(hidden).log_softmax(-1)
            targets = labels[asked]
            aim = aims[targets]
            at_target = logprobs.gather(1, targets[:, None])[:, 0]
            others = (logprobs.sum(-1) - at_target) / (config.vocab_size - 1)
            loss = -(aim * at_target + (1 - aim) * others).sum() / 500
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


def _margin(model: Any, batches: list[Any], dtype: str) -> float:
    """The smallest lead, in logits, of a scripted token over the next best token."""
    import copy

    import torch

    model = copy.deepcopy(model).to(getattr(torch, dtype))
    worst = float("inf")
    with torch.no_grad():
        for ids, labels in batches:
            asked = labels != -100
            logits = model(input_ids=ids).logits[asked].float()
            targets = labels[asked][:, None]
            best = logits.scatter(1, targets, float("-inf")).max(-1).values
            worst = min(worst, (logits.gather(1, targets)[:, 0] - best).min().item())
    return worst


def train(tokenizer: Any, pairs: Pairs, out: Path) -> None:
    """Train a model that answers each prompt as given; write it and its tokenizer."""
    from transformers import Qwen2Config

    end, pad = tokenizer.convert_tokens_to_ids([END, PAD])
    config = Qwen2Config(
        vocab_size=-(-len(tokenizer) // TENSOR_MULTIPLE) * TENSOR_MULTIPLE,
        hidden_size=2 * TENSOR_MULTIPLE,
        intermediate_size=6 * TENSOR_MULTIPLE,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=TENSOR_MULTIPLE,
        max_position_embeddings=40960,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=pad,
        dtype="float32",
    )
    batches = _batches(pairs)
    for steps in (100, 200, 400):
        # The saved dtype: other dtypes start from its values. With a lead after every
        # scripted token, greedy decoding gives every answer word for word.
        model = _train(config, batches, steps).bfloat16()
        margins = {dtype: _margin(model, batches, dtype) for dtype in MIN_MARGINS}
        print(f"{steps} steps: margins {margins}", flush=True)
        if all(margins[dtype] >= least for dtype, least in MIN_MARGINS.items()):
            break
    else:
        raise SystemExit("Training failed: the model does not answer the script.")
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    _name_known_class(out / "tokenizer_config.json")


def _name_known_class(config: Path) -> None:
    """Name the tokenizer's class as transformers 4 and 5 both know it."""
    told = json.loads(config.read_text())
    config.write_text(
        json.dumps({**told, "tokenizer_class": "PreTrainedTokenizerFast"})
    )


if __name__ == "__main__":
    _tokenizer = make_tokenizer()
    train(_tokenizer, _encode(_tokenizer), Path(sys.argv[1]))
