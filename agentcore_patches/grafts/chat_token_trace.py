"""Lands in `entrypoints/openai/serving_chat.py`, for the patch `token-ids`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional

if TYPE_CHECKING:
    import orjson


class ChatTokenTrace:
    """Token IDs of a stream that no chunk has carried yet, with their logprobs.

    The engine delivers tokens that no text follows: the detokenizer holds text back at
    word boundaries, the parsers half a tag or half a tool call. What `push` takes in
    for a choice leaves by `stamp`, on the choice's next chunk, whatever that carries.
    """

    LOGPROBS = ("output_token_logprobs", "output_top_logprobs")

    def __init__(
        self,
        incremental: bool,
        build_logprobs: Any = None,
        incremental_logprobs: bool = False,
        chunk_prompt: bool = True,
        choice_prompts: bool = False,
    ):
        """
        Args:
            incremental: whether `output_ids` has only the new ones (--stream-output).
            build_logprobs: makes the logprobs of a choice from the engine's answer, as
                for a request without streaming; None if the request asks for none.
            incremental_logprobs: whether the logprobs are only the new ones, too, where
                `output_ids` are.
            chunk_prompt: whether the stream's first chunk gets the prompt's IDs.
            choice_prompts: whether each choice gets them, on its first chunk.
        """
        self.incremental = incremental
        self.incremental_logprobs = incremental and incremental_logprobs
        self.build_logprobs = build_logprobs
        self.chunk_prompt = chunk_prompt
        self.choice_prompts = choice_prompts
        self.choices: Dict[int, ChatTokenTrace.Choice] = {}
        self.prompt_token_ids: Optional[List[int]] = None
        self.prompts_of_choices: Dict[int, Optional[List[int]]] = {}
        self.templates: Dict[int, Any] = {}
        self.first_version: Any = None
        self.known_version: Any = None
        self.is_plain: Optional[bool] = None
        self.has_plain_logprobs: Optional[bool] = None

    class Choice:
        """What the engine delivered for a choice, and how much of it chunks have."""

        __slots__ = ("logprobs", "meta_info", "n_received", "n_sent", "output_ids")

        def __init__(self) -> None:
            self.output_ids: List[int] = []
            self.n_received = 0
            self.n_sent = 0
            self.meta_info: Dict[str, Any] = {}
            self.logprobs: Dict[str, List[Any]] = {}

    def push(self, index: int, content: Dict[str, Any]) -> None:
        """Take in what the engine delivered for a choice."""
        choice = self.choices.get(index)
        if choice is None:
            choice = self._start(index, content.get("prompt_token_ids"))
        if self.incremental:
            choice.output_ids.extend(content["output_ids"])
        else:
            choice.output_ids = content["output_ids"]
        # The engine may add to its list before a chunk is stamped.
        choice.n_received = len(choice.output_ids)
        choice.meta_info = meta_info = content["meta_info"]
        if self.incremental_logprobs and self.build_logprobs is not None:
            for key in self.LOGPROBS:
                if (values := meta_info.get(key)) is not None:
                    choice.logprobs.setdefault(key, []).extend(values)
            choice.meta_info = {**meta_info, **choice.logprobs}

    def _start(self, index: int, prompt_token_ids: Optional[List[int]]) -> Choice:
        if self.chunk_prompt and not self.choices:
            self.prompt_token_ids = prompt_token_ids
        if self.choice_prompts:
            self.prompts_of_choices[index] = prompt_token_ids
        self.choices[index] = choice = self.Choice()
        return choice

    def dump(self, chunk: Any) -> str:
        """The JSON of a chat chunk, with all that waits for its choices.

        Raises:
            ValueError: the engine gave fewer logprobs than tokens.
        """
        self.stamp(chunk)
        plain = None if self.is_plain is False else self._dump_plain(chunk)
        if self.is_plain and plain is not None:
            return plain
        text: str = chunk.model_dump_json()
        if self.is_plain is None:
            # Others may have changed the models: the first chunk is made both ways.
            self.is_plain = plain == text
        return text

    def _dump_plain(self, chunk: Any) -> Optional[str]:
        """What `model_dump_json` gives, without its cost; None where orjson refuses."""
        fields = chunk.__dict__.copy()
        if fields["prompt_token_ids"] is None:
            del fields["prompt_token_ids"]
        if fields["metadata"] is None:
            del fields["metadata"]
        if fields.get("sglext") is None:
            fields.pop("sglext", None)
        fields["choices"] = choices = []
        for choice in chunk.choices:
            data = choice.__dict__.copy()
            choices.append(data)
            if data["token_ids"] is None:
                del data["token_ids"]
            if data["prompt_token_ids"] is None:
                del data["prompt_token_ids"]
            data["delta"] = delta = choice.delta.__dict__.copy()
            if delta.get("hidden_states") is None:
                delta.pop("hidden_states", None)
        try:
            text: bytes = orjson.dumps(fields, default=self._dump_model)
        except TypeError:
            return None
        return text.decode()

    @staticmethod
    def _dump_model(model: Any) -> Dict[str, Any]:
        data: Dict[str, Any] = model.model_dump(mode="json")
        return data

    def stamp(self, chunk: Any) -> None:
        """Put on a chunk what waits for its choices.

        Raises:
            ValueError: the engine gave fewer logprobs than tokens.
        """
        meta_info = None
        for part in chunk.choices:
            if part.index in self.prompts_of_choices:
                part.prompt_token_ids = self.prompts_of_choices.pop(part.index)
            choice = self.choices.get(part.index)
            if choice is None or choice.n_sent == choice.n_received:
                continue
            meta_info = choice.meta_info
            token_ids = choice.output_ids[choice.n_sent : choice.n_received]
            logprobs = None
            if self.build_logprobs is not None:
                logprobs = self.build_logprobs(
                    {"meta_info": self._cut(part.index, choice)}
                )
            if hasattr(part, "__dict__"):
                # A model, past pydantic's __setattr__: this is done for every token.
                part.__dict__["token_ids"] = token_ids
                if logprobs is not None:
                    part.__dict__["logprobs"] = logprobs
            else:
                # A struct of msgspec, which holds plain data.
                part.token_ids = token_ids
                if logprobs is not None:
                    part.logprobs = self._dump_logprobs(logprobs)
            choice.n_sent = choice.n_received
        if self.prompt_token_ids is not None:
            chunk.prompt_token_ids = self.prompt_token_ids
            self.prompt_token_ids = None
        if meta_info is None and self.first_version is None and self.choices:
            meta_info = next(iter(self.choices.values())).meta_info
        if meta_info is not None:
            version = meta_info.get("weight_version")
            if version is not None and version != self.known_version:
                self._stamp_weight_version(chunk, version)

    def _dump_logprobs(self, logprobs: Any) -> Dict[str, Any]:
        """What `model_dump` gives, without its cost."""
        plain = {
            "content": [
                {
                    **entry.__dict__,
                    "top_logprobs": [top.__dict__ for top in entry.top_logprobs],
                }
                for entry in logprobs.content
            ]
        }
        if self.has_plain_logprobs:
            return plain
        data: Dict[str, Any] = logprobs.model_dump()
        if self.has_plain_logprobs is None:
            # Others may have changed the models: the first are made both ways.
            self.has_plain_logprobs = plain == data
        return data

    def _stamp_weight_version(self, chunk: Any, version: Any) -> None:
        """Say which weights sampled a chunk's tokens, unless the reader knows.

        What is known is what the stream's first chunk said, if that was said last, too.
        """
        if self.first_version is None:
            self.first_version = version
        self.known_version = version if version == self.first_version else None
        chunk.metadata = {"weight_version": version}

    @staticmethod
    def _cut(index: int, choice: Choice) -> Dict[str, Any]:
        """The logprobs of the tokens of a choice that wait."""
        meta_info, start, end = choice.meta_info, choice.n_sent, choice.n_received
        # The lists are cumulative, and the engine's own by now maybe ahead of the IDs.
        tokens = (meta_info.get("output_token_logprobs") or ())[start:end]
        if len(tokens) != end - start:
            raise ValueError(
                f"The engine gave {len(tokens)} logprobs for the {end - start} tokens "
                f"{start} to {end - 1} of choice {index}."
            )
        logprobs = {"output_token_logprobs": tokens}
        if (tops := meta_info.get("output_top_logprobs")) is not None:
            logprobs["output_top_logprobs"] = tops[start:end]
        if start == 0:
            for key in ("input_token_logprobs", "input_top_logprobs"):
                if key in meta_info:
                    logprobs[key] = meta_info[key]
        return logprobs
