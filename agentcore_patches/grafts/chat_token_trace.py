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
        self.prompt_token_ids: Optional[List[int]] = None
        self.prompts_of_choices: Dict[int, Optional[List[int]]] = {}
        self.waiting: Dict[int, List[int]] = {}
        self.n_sent: Dict[int, int] = {}
        self.meta_info: Dict[int, Dict[str, Any]] = {}
        self.logprobs: Dict[int, Dict[str, List[Any]]] = {}
        self.first_version: Any = None
        self.known_version: Any = None
        self.is_plain: Optional[bool] = None

    def push(self, index: int, content: Dict[str, Any]) -> None:
        """Take in what the engine delivered for a choice."""
        if index not in self.waiting:
            self._start(index, content.get("prompt_token_ids"))
        waiting = self.waiting[index]
        output_ids = content["output_ids"]
        if not self.incremental:
            output_ids = output_ids[self.n_sent[index] + len(waiting) :]
        waiting.extend(output_ids)
        meta_info = content["meta_info"]
        if self.incremental_logprobs and self.build_logprobs is not None:
            joined = self.logprobs.setdefault(index, {})
            for key in self.LOGPROBS:
                if (values := meta_info.get(key)) is not None:
                    joined.setdefault(key, []).extend(values)
            meta_info = {**meta_info, **joined}
        self.meta_info[index] = meta_info

    def _start(self, index: int, prompt_token_ids: Optional[List[int]]) -> None:
        if self.chunk_prompt and not self.waiting:
            self.prompt_token_ids = prompt_token_ids
        if self.choice_prompts:
            self.prompts_of_choices[index] = prompt_token_ids
        self.waiting[index] = []
        self.n_sent[index] = 0

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
        for choice in chunk.choices:
            index = choice.index
            # Past pydantic's __setattr__: this is done for every token. Structs of
            # msgspec have no __dict__, and are written as they are.
            is_struct = not hasattr(choice, "__dict__")
            fields: Dict[str, Any] = {} if is_struct else choice.__dict__
            if index in self.prompts_of_choices:
                fields["prompt_token_ids"] = self.prompts_of_choices.pop(index)
            token_ids = self.waiting.get(index)
            if token_ids:
                start = self.n_sent[index]
                self.n_sent[index] = end = start + len(token_ids)
                self.waiting[index] = []
                fields["token_ids"] = token_ids
                if self.build_logprobs is not None:
                    logprobs = self._slice_logprobs(index, start, end)
                    fields["logprobs"] = (
                        logprobs.model_dump() if is_struct else logprobs
                    )
                meta_info = self.meta_info[index]
            if is_struct:
                for name, value in fields.items():
                    setattr(choice, name, value)
        if self.prompt_token_ids is not None:
            chunk.prompt_token_ids = self.prompt_token_ids
            self.prompt_token_ids = None
        if meta_info is None and self.first_version is None:
            meta_info = next(iter(self.meta_info.values()), None)
        if meta_info is not None:
            version = meta_info.get("weight_version")
            if version is not None and version != self.known_version:
                self._stamp_weight_version(chunk, version)

    def _stamp_weight_version(self, chunk: Any, version: Any) -> None:
        """Say which weights sampled a chunk's tokens, unless the reader knows.

        What is known is what the stream's first chunk said, if that was said last, too.
        """
        if self.first_version is None:
            self.first_version = version
        self.known_version = version if version == self.first_version else None
        chunk.metadata = {"weight_version": version}

    def _slice_logprobs(self, index: int, start: int, end: int) -> Any:
        # The lists are cumulative, and the engine's own by now maybe ahead of the IDs.
        meta_info = self.meta_info[index]
        logprobs = {
            key: values[start:end]
            for key in self.LOGPROBS
            if (values := meta_info.get(key)) is not None
        }
        n_logprobs = len(logprobs.get("output_token_logprobs", ()))
        if n_logprobs != end - start:
            raise ValueError(
                f"The engine gave {n_logprobs} logprobs for the {end - start} tokens "
                f"{start} to {end - 1} of choice {index}."
            )
        if start == 0:
            for key in ("input_token_logprobs", "input_top_logprobs"):
                if key in meta_info:
                    logprobs[key] = meta_info[key]
        return self.build_logprobs({"meta_info": logprobs})
