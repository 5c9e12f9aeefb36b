"""The tiny model of `train_with_trl.py`: `python weather_model.py FOLDER` writes it.

Runs on the CPU, in any environment with PyTorch and Transformers, in about a minute if
`OMP_NUM_THREADS=1` is set: more threads only wait for each other.
The model is warmed up on conversations in the right form: it calls a tool for two cities,
and names two cities. It chooses them at random: which are right is left for RL to learn.
Some merges of the tokenizer are left out at random, so that the model samples words in
several splits, of which a tokenizer gives only one.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

WEATHER = {
    "Oslo": "snowy",
    "Rome": "cloudy",
    "Lima": "foggy",
    "Cairo": "sunny",
    "Tokyo": "rainy",
    "Paris": "rainy",
    "Delhi": "sunny",
    "Quito": "windy",
}
QUESTIONS = (
    "Where is it sunny today?",
    "Which two cities are sunny?",
    "Name two sunny cities.",
)
DROPOUT = 0.02
"""The share of the tokenizer's merges that the warm-up leaves out."""
BATCH = 24

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = """\
{%- for message in messages %}
{%- if message.role == 'tool' %}
{{- '<|im_start|>tool\\n' + message.content + '<|im_end|>\\n' }}
{%- else %}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson + '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}
"""


def conversation(rng: random.Random) -> list[tuple[str, bool]]:
    """Return a conversation in pieces: the text, and True if the model says it."""
    cities = list(WEATHER)
    pieces = [(f"{START}user\n{rng.choice(QUESTIONS)}{END}\n", False)]
    for city in rng.choices(cities, k=2):
        arguments = json.dumps({"city": city})
        call = f'<tool_call>\n{{"name": "weather", "arguments": {arguments}}}\n</tool_call>'
        pieces += [
            (f"{START}assistant\n", False),
            (f"{call}{END}", True),
            (f"\n{START}tool\n{WEATHER[city]}{END}\n", False),
        ]
    said = " and ".join(rng.choices(cities, k=2))
    return [*pieces, (f"{START}assistant\n", False), (f"{said}.{END}", True)]


def make_tokenizer(rng: random.Random) -> PreTrainedTokenizerFast:
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    texts = ["".join(text for text, _ in conversation(rng)) for _ in range(500)]
    bpe.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=384,
            special_tokens=[PAD, START, END],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=END,
        pad_token=PAD,
        chat_template=CHAT_TEMPLATE,
        model_max_length=1024,
        clean_up_tokenization_spaces=False,
    )


def make_batch(tokenizer: Any, rng: random.Random) -> tuple[Any, Any]:
    """Return padded token IDs and labels, which are -100 where the model does not speak."""
    bpe = tokenizer.backend_tokenizer.model
    rows = []
    for _ in range(BATCH):
        ids, labels = [], []
        for text, said in conversation(rng):
            bpe.dropout = DROPOUT if said else None
            piece = tokenizer.encode(text, add_special_tokens=False)
            ids += piece
            labels += piece if said else [-100] * len(piece)
        rows.append((torch.tensor(ids), torch.tensor(labels)))
    bpe.dropout = None
    padded = torch.nn.utils.rnn.pad_sequence
    return (
        padded([ids for ids, _ in rows], batch_first=True),
        padded([labels for _, labels in rows], batch_first=True, padding_value=-100),
    )


def make(folder: Path, steps: int) -> None:
    """Train the model, and write it and its tokenizer."""
    rng = random.Random(0)
    torch.manual_seed(0)
    tokenizer = make_tokenizer(rng)
    end, pad = tokenizer.convert_tokens_to_ids([END, PAD])
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=384,
            hidden_size=64,
            intermediate_size=192,
            num_hidden_layers=2,
            num_attention_heads=1,
            num_key_value_heads=1,
            max_position_embeddings=1024,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=end,
            pad_token_id=pad,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=5e-3, total_steps=steps + 1
    )
    for step in range(steps):
        ids, labels = make_batch(tokenizer, rng)
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 99:
            print(
                f"warm-up step {step + 1} of {steps}: loss {loss.item():.3f}",
                flush=True,
            )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # Transformers 5 names a class that Transformers 4, which SGLang uses, does not have.
    config = folder / "tokenizer_config.json"
    named = {
        **json.loads(config.read_text()),
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    config.write_text(json.dumps(named, indent=2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=300)
    asked = parser.parse_args()
    make(asked.folder, asked.steps)
