"""Logprobs with the bytes of their tokens: lands in `serving_base.py`, `serving_chat.py`.

For `fast-answers`. From v0.5.21 on the bytes of a logprob are not those of its text,
which has U+FFFD where a token is a part of a character, and tokens with the same text
stand side by side in the top logprobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List

if TYPE_CHECKING:
    import orjson
    from sglang.srt.entrypoints.openai.serving_base import _dump_numbers
    from sglang.srt.entrypoints.openai.utils import token_id_to_bytes


def _with_token_bytes(ret: List[Any], tokenizer: Any) -> List[Dict[str, Any]]:
    """The engine's answers, each with the bytes of its logprobs' tokens by their IDs.

    There are none where the bytes are those of the text.
    """
    from sglang.srt.entrypoints.openai.utils import _is_byte_level_tokenizer

    is_byte_level = _is_byte_level_tokenizer(tokenizer)
    answers = []
    for ret_item in ret:
        meta_info = dict(ret_item["meta_info"])
        tops = meta_info.get("output_top_logprobs") or ()
        token_ids = {row[1] for row in meta_info["output_token_logprobs"]}
        token_ids.update(row[1] for top in tops for row in top)
        meta_info["token_bytes"] = {
            token_id: token_id_to_bytes(tokenizer, token_id)
            for token_id in token_ids
            if is_byte_level
        }
        answers.append({**ret_item, "meta_info": meta_info})
    return answers


def _dump_logprobs(meta_info: Dict[str, Any]) -> bytes:
    """The JSON of a chat choice's logprobs, from the engine's lists.

    Args:
        meta_info: of the choice, as `_with_token_bytes` makes it.

    Raises:
        AttributeError, LookupError, TypeError, ValueError: they have another form.
    """
    entries = meta_info["output_token_logprobs"]
    tops = meta_info.get("output_top_logprobs") or []
    count = len(entries)
    if tops and len(tops) != count:
        raise ValueError(f"{len(tops)} top_logprobs for {count} tokens")
    rows = [*entries, *(row for top in tops for row in top)]
    numbers = _dump_numbers([row[0] for row in rows])
    token_bytes = meta_info["token_bytes"]
    # What stands before the logprob, once for each token: most come again and again.
    openings: Dict[int, bytes] = {}
    for _, token_id, text in rows:
        if token_id in openings:
            continue
        # A text is missing where tokens are to be named by ID.
        text = f"token_id:{token_id}" if text is None else text
        raw = token_bytes.get(token_id) or list(text.encode("utf-8"))
        token = orjson.dumps({"token": text, "bytes": raw})
        openings[token_id] = token[:-1] + b',"logprob":'
    written = [openings[row[1]] + number for row, number in zip(rows, numbers)]
    parts = []
    end = count
    for i, entry in enumerate(written[:count]):
        top = b""
        if tops:
            start, end = end, end + len(tops[i])
            top = b",".join([one + b"}" for one in written[start:end]])
        parts.append(b'%b,"top_logprobs":[%b]}' % (entry, top))
    return b'{"content":[%b]}' % b",".join(parts)
