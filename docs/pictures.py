"""Make the pictures of `docs/`, with the SGLang of this interpreter.

    python docs/pictures.py [retokenization] [prefix]

`retokenization` tokenizes a text of the scripted model again, and `prefix` a turn of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from agentcore_verify.scripted_model import ensure_scripted_model, line

HERE = Path(__file__).parent

# The last token of the eight is a part of an emoji.
LIMIT = 8
BOX, GAP, ROW, LEFT = 62, 6, 92, 20


def retokenization() -> str:
    """Draw the sampled tokens, their text, and the tokens of that text."""
    tokenizer = _tokenizer()
    sampled = _encode(tokenizer, line("emoji").text)[:LIMIT]
    text = tokenizer.decode(sampled)
    again = _encode(tokenizer, text)
    same = next(
        i
        for i, pair in enumerate(zip(sampled, again, strict=False))
        if pair[0] != pair[1]
    )
    return _rows(
        f"1. The model samples {len(sampled)} tokens:",
        _boxes(34, tokenizer, sampled, same),
        "2. The server answers with their text:",
        _label(LEFT, ROW + 54, f'"{text}"'),
        f"3. The trainer tokenizes the text, and gets {len(again)} tokens:",
        _boxes(ROW * 2 + 34, tokenizer, again, same),
        n_boxes=max(len(sampled), len(again)),
    )


def prefix() -> str:
    """Draw the sampled tokens, the template's rendering, and a prompt with a prefix."""
    tokenizer = _tokenizer()
    thinking, answer = "<think>\nHello\n</think>\n", "Hello!<|im_end|>"
    following = "\n<|im_start|>user"
    sampled = _encode(tokenizer, f"{thinking}{answer}")
    template = _encode(tokenizer, f"{answer}{following}")
    continued = _encode(tokenizer, f"{thinking}{answer}{following}")
    return _rows(
        "1. The model samples an answer:",
        _boxes(34, tokenizer, sampled, len(sampled)),
        "2. The next turn, as the chat template writes it: the thinking is gone",
        _boxes(ROW + 34, tokenizer, template, 0),
        "3. The next turn with the prefix: what was sampled, then what the template writes",
        _boxes(ROW * 2 + 34, tokenizer, continued, len(continued)),
        n_boxes=len(continued),
    )


def _tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(
        str(ensure_scripted_model(Path(sys.executable)))
    )


def _encode(tokenizer: Any, text: str) -> list[int]:
    return [int(one) for one in tokenizer.encode(text, add_special_tokens=False)]


def _rows(*rows: str, n_boxes: int) -> str:
    width = LEFT * 2 + (BOX + GAP) * n_boxes
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{ROW * 3}" '
        'font-family="sans-serif" font-size="14">',
        f'<rect width="{width}" height="{ROW * 3}" fill="#ffffff"/>',
    ]
    for number, (title, drawn) in enumerate(zip(rows[::2], rows[1::2], strict=True)):
        parts += [_label(LEFT, ROW * number + 24, title), drawn]
    return "\n".join([*parts, "</svg>", ""])


def _boxes(top: int, tokenizer: Any, ids: Sequence[int], same: int) -> str:
    """Draw a box for each token; only the first `same` tokens are as sampled."""
    drawn = []
    for number, token_id in enumerate(ids):
        text = tokenizer.decode([token_id])
        shown = text.replace(" ", "\u2423") if text.strip() else "\u2423"
        fill = "#e8f1fa" if number < same else "#f9d9d4"
        drawn.append(
            f'<g transform="translate({LEFT + number * (BOX + GAP)} {top})">'
            f'<rect width="{BOX}" height="44" rx="4" fill="{fill}" stroke="#555555"/>'
            f"{_label(BOX // 2, 18, shown)}{_label(BOX // 2, 37, str(token_id))}</g>"
        )
    boxes = "\n".join(drawn)
    return f'<g text-anchor="middle">\n{boxes}\n</g>'


def _label(left: int, top: int, text: str) -> str:
    return f'<text x="{left}" y="{top}">{escape(text)}</text>'


PICTURES: dict[str, tuple[Path, Callable[[], str]]] = {
    "retokenization": (HERE / "explanation/retokenization.svg", retokenization),
    "prefix": (HERE / "explanation/prefix.svg", prefix),
}


def main(names: Sequence[str]) -> None:
    for name in names or PICTURES:
        file, draw = PICTURES[name]
        file.write_text(draw(), "utf-8")
        print(file)


if __name__ == "__main__":
    main(sys.argv[1:])
