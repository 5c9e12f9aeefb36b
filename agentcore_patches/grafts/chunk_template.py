"""Lands beside the structs of chat chunks, from v0.5.11 on, for the patch `token-ids`.

Most chunks of a choice differ in their text and their tokens alone. To make and encode the
structs of each costs three times what it costs to fill a template.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from sglang.srt.entrypoints.openai.sse_utils import _stream_encoder


def _keep_template(trace: Any, chunk: Any) -> None:
    """Keep the JSON around text, logprobs and token IDs of a chunk that is stamped."""
    part = chunk.choices[0]
    has_prompt = chunk.prompt_token_ids or part.prompt_token_ids
    if has_prompt or chunk.metadata or not part.token_ids:
        return
    rest = b"data: %b\n\n" % _stream_encoder.encode(chunk)
    around = []
    for name, value in (
        (b"content", part.delta.content),
        (b"logprobs", part.logprobs),
        (b"token_ids", part.token_ids),
    ):
        key = b'"%b":' % name
        before, found, rest = rest.partition(key + _stream_encoder.encode(value))
        if not found:
            return
        around.append(before + key)
    choice = trace.choices[part.index]
    trace.templates[part.index] = (chunk.created, choice, *around, rest)


def _fill_template(trace: Any, created: int, index: int, text: str) -> Optional[str]:
    """The SSE line of a chunk of text, with the tokens that wait for its choice.

    None where no template has that second's `created`, or where the chunk has more than
    text and tokens to say.

    Raises:
        ValueError: the engine gave fewer logprobs than tokens.
    """
    template = trace.templates.get(index)
    if template is None or template[0] != created:
        return None
    _, choice, to_text, to_logprobs, to_token_ids, rest = template
    start, end = choice.n_sent, choice.n_received
    version = choice.meta_info.get("weight_version")
    if start == end or (version is not None and version != trace.known_version):
        return None
    logprobs = b"null"
    if trace.build_logprobs is not None:
        built = trace.build_logprobs({"meta_info": trace._cut(index, choice)})
        logprobs = _stream_encoder.encode(trace._dump_logprobs(built))
    token_ids = _stream_encoder.encode(choice.output_ids[start:end])
    choice.n_sent = end
    content = _stream_encoder.encode(text)
    line = (to_text, content, to_logprobs, logprobs, to_token_ids, token_ids, rest)
    return b"".join(line).decode()
