"""RL with TRL's GRPOTrainer on rollouts of a patched SGLang: several turns and a tool.

    agentcore-patch serve --model MODEL --port 30000 &
    python train_with_trl.py MODEL --url http://127.0.0.1:30000

Needs a separate environment: `pip install trl==1.16.0 openai requests`. MODEL is the
folder that `weather_model.py` writes. Each step prints a line of JSON. For your own
training, keep `Turn`, `exact`, `Rollouts.push` and `Trainer`, and replace the tool,
`_play` and `reward_of`.

`--arm` chooses where the tokens and the logprobs of a trajectory come from:

exact       both from the server; each turn starts with the previous tokens
text        both from the server, but the history is sent as text only: the turns do not
            fit together, and are glued
recomputed  the conversation's text is tokenized again, and the trainer computes the
            logprobs of these tokens itself
padded      the same tokens with the logprobs that a stream of a server without patches
            has, and a zero for each one that is missing
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import openai
import requests
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer
from weather_model import END, QUESTIONS, WEATHER

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
MAX_TURNS, MAX_TOKENS = 3, 48
GENERATIONS = 8
"""Conversations with the same question, whose rewards are compared."""
RATIOS = (0.8, 1.25)
"""Outside of these, the trainer's and the server's probability are called apart."""

Message = dict[str, Any]


# The server's responses.


@dataclass
class Turn:
    """One response: its message, and its trace if the server sends one."""

    message: Message = field(
        default_factory=lambda: {"role": "assistant", "content": ""}
    )
    finish_reason: str | None = None
    prompt_ids: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    weight_versions: list[dict[str, Any]] = field(default_factory=list)

    def add(self, chunk: Any) -> None:
        """Add a chunk of the stream."""
        self.prompt_ids += getattr(chunk, "prompt_token_ids", None) or []
        for choice in chunk.choices:
            self.message["content"] += choice.delta.content or ""
            for call in choice.delta.tool_calls or []:
                self._add_call(call)
            self.token_ids += getattr(choice, "token_ids", None) or []
            if choice.logprobs:
                self.logprobs += [one.logprob for one in choice.logprobs.content or []]
            self.weight_versions += getattr(choice, "weight_versions", None) or []
            self.finish_reason = choice.finish_reason or self.finish_reason

    def _add_call(self, part: Any) -> None:
        calls = self.message.setdefault("tool_calls", [])
        if part.id:
            function = {"name": "", "arguments": ""}
            calls.append({"id": part.id, "type": "function", "function": function})
        function = calls[-1]["function"]
        function["name"] += part.function.name or ""
        function["arguments"] += part.function.arguments or ""

    @property
    def cities(self) -> list[str] | None:
        """The cities that the turn asks for; None if a call cannot be read."""
        try:
            calls = self.message.get("tool_calls", [])
            return [str(json.loads(c["function"]["arguments"])["city"]) for c in calls]
        except (ValueError, KeyError, TypeError):
            return None


@dataclass
class Trajectory:
    """Token IDs to learn from, and a mask of the tokens that the model sampled."""

    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    broken: bool | None = False
    """True if a turn's prompt did not start with the turns before; None if unknown."""
    never_sampled: int = 0
    """The number of tokens to learn from that the model did not sample."""

    def add(self, ids: Sequence[int], logprobs: Sequence[float] | None = None) -> None:
        """Add sampled tokens with their logprobs, or others without."""
        self.completion_ids += ids
        self.logprobs += [0.0] * len(ids) if logprobs is None else logprobs
        self.mask += [int(logprobs is not None)] * len(ids)
        assert len(self.completion_ids) == len(self.logprobs)


@dataclass
class Conversation:
    """A question, and the turns that answer it."""

    messages: list[Message]
    turns: list[Turn] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        """The prompt and the answer of the last turn."""
        return self.turns[-1].prompt_ids + self.turns[-1].token_ids


# The arms: from a conversation to a trajectory.


def exact(conversation: Conversation, tokenizer: Any) -> Trajectory:
    """Return the turns as the server saw and sampled them."""
    trajectory = Trajectory(conversation.turns[0].prompt_ids)
    past: list[int] = trajectory.prompt_ids
    for turn in conversation.turns:
        assert turn.prompt_ids[: len(past)] == past, "the prefix was not kept"
        trajectory.add(turn.prompt_ids[len(past) :])
        trajectory.add(turn.token_ids, turn.logprobs)
        past = turn.prompt_ids + turn.token_ids
    return trajectory


def glued(conversation: Conversation, tokenizer: Any) -> Trajectory:
    """Return the turns one after the other, although their prompts differ."""
    end = tokenizer.convert_tokens_to_ids(END)
    first, *others = conversation.turns
    trajectory = Trajectory(first.prompt_ids)
    trajectory.add(first.token_ids, first.logprobs)
    past = first.prompt_ids + first.token_ids
    for turn in others:
        trajectory.broken |= turn.prompt_ids[: len(past)] != past
        # The prompt after the answer: only the tool's message follows it.
        ends = [i for i, one in enumerate(turn.prompt_ids) if one == end]
        trajectory.add(turn.prompt_ids[ends[-2] + 1 :])
        trajectory.add(turn.token_ids, turn.logprobs)
        past = turn.prompt_ids + turn.token_ids
    return trajectory


def retokenized(conversation: Conversation, tokenizer: Any) -> Trajectory:
    """Return the tokens of the conversation's text; logprobs that it lacks are 0."""

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    def render(messages: Sequence[Message], *, ask: bool) -> str:
        return str(
            tokenizer.apply_chat_template(
                [_with_parsed_calls(message) for message in messages],
                add_generation_prompt=ask,
                tokenize=False,
            )
        )

    written = ""
    trajectory: Trajectory | None = None
    turns = iter(conversation.turns)
    for place, message in enumerate(conversation.messages):
        if message["role"] != "assistant":
            continue
        before = render(conversation.messages[:place], ask=True)
        after = render(conversation.messages[: place + 1], ask=False).rstrip("\n")
        prompt, ids = encode(before[len(written) :]), encode(after[len(before) :])
        if trajectory is None:
            trajectory = Trajectory(prompt, broken=None)
        else:
            trajectory.add(prompt)
        turn = next(turns)
        received = turn.logprobs[: len(ids)]
        trajectory.add(ids, received + [0.0] * (len(ids) - len(received)))
        same = SequenceMatcher(None, turn.token_ids, ids, autojunk=False)
        sampled = sum(block.size for block in same.get_matching_blocks())
        trajectory.never_sampled += len(ids) - sampled
        written = after
    assert trajectory
    return trajectory


def _with_parsed_calls(message: Message) -> Message:
    """Return a message with the arguments of calls as templates expect them."""
    calls = []
    for call in message.get("tool_calls", []):
        function = call["function"]
        try:
            arguments = json.loads(function["arguments"])
        except ValueError:
            arguments = function["arguments"]
        calls.append({"function": {**function, "arguments": arguments}})
    return {**message, "tool_calls": calls}


ARMS: dict[str, Callable[[Conversation, Any], Trajectory]] = {
    "exact": exact,
    "text": glued,
    "recomputed": retokenized,
    "padded": retokenized,
}


# Rollouts and weights.


@dataclass
class Rollouts:
    """TRL's `rollout_func`: plays conversations with the server's current weights."""

    url: str
    arm: str
    weights: Path
    measured: dict[str, Any] = field(default_factory=dict)

    @property
    def is_patched(self) -> bool:
        return self.arm != "padded"

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        """Return a trajectory for each prompt, and its reward."""
        version = str(trainer.state.global_step)
        self.push(trainer, version)
        conversations = asyncio.run(self._play_all(prompts))
        tokenizer = trainer.processing_class
        made = [ARMS[self.arm](one, tokenizer) for one in conversations]
        rewards = [reward_of(one) for one in conversations]
        broken = [one.broken for one in made]
        self.measured = {
            "reward": sum(rewards) / len(rewards),
            "turns": sum(len(one.turns) for one in conversations) / len(made),
            "broken": None if None in broken else sum(map(bool, broken)) / len(broken),
        }
        if self.is_patched:
            self.measured["stale"] = stale_tokens(conversations, version)
            self.measured["never_sampled"] = sum(one.never_sampled for one in made)
        return {
            "prompt_ids": [one.prompt_ids for one in made],
            "completion_ids": [one.completion_ids for one in made],
            "logprobs": [one.logprobs for one in made],
            "env_mask": [one.mask for one in made],
            "reward": rewards,
        }

    def push(self, trainer: Any, version: str) -> None:
        """Give the server the trainer's weights, under a version of their own."""
        trainer.model.save_pretrained(self.weights)
        update = {"model_path": str(self.weights), "weight_version": version}
        # An update crashes an unpatched SGLang 0.5.9 that is paused in place.
        if self.is_patched:
            self._post("/pause_generation", {"mode": "in_place"})
        self._post("/update_weights_from_disk", update)
        if self.is_patched:
            self._post("/continue_generation", {})

    def _post(self, path: str, body: dict[str, Any]) -> None:
        requests.post(self.url + path, json=body, timeout=120).raise_for_status()

    async def _play_all(self, prompts: list[Any]) -> list[Conversation]:
        async with openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="-") as client:
            return await asyncio.gather(*(self._play(client, one) for one in prompts))

    async def _play(self, client: openai.AsyncOpenAI, prompt: str) -> Conversation:
        """Play one conversation, with the tool's answers."""
        messages: list[Message] = [{"role": "user", "content": prompt}]
        played = Conversation(messages)
        for _ in range(MAX_TURNS):
            turn = await self._ask(client, played)
            played.turns.append(turn)
            messages.append(turn.message)
            if not turn.cities or turn.finish_reason == "length":
                break
            for call, city in zip(turn.message["tool_calls"], turn.cities, strict=True):
                sky = WEATHER.get(city, "unknown")
                messages.append(
                    {"role": "tool", "tool_call_id": call["id"], "content": sky}
                )
        return played

    async def _ask(self, client: openai.AsyncOpenAI, played: Conversation) -> Turn:
        asked: dict[str, Any] = {}
        if self.is_patched:
            asked["return_weight_versions"] = True
        if self.arm == "exact" and played.turns:
            asked["required_prefix_token_ids"] = played.tokens
        stream = await client.chat.completions.create(
            model="default",
            messages=played.messages,
            tools=[TOOL],
            stream=True,
            logprobs=True,
            temperature=1.0,
            max_tokens=MAX_TOKENS,
            extra_body=asked,
        )
        turn = Turn()
        async for chunk in stream:
            turn.add(chunk)
        return turn


def reward_of(played: Conversation) -> float:
    """Return the share of sunny cities: of two that are asked for, and two that are named."""
    called = {city for turn in played.turns for city in turn.cities or []}
    answer = "" if played.turns[-1].cities else played.messages[-1]["content"]
    named = set(answer.removesuffix(".").split(" and "))
    return sum(WEATHER.get(city) == "sunny" for c in (called, named) for city in c) / 4


def stale_tokens(conversations: list[Conversation], version: str) -> dict[str, int]:
    """Count the sampled tokens by weight version, for versions other than this one."""
    stale: Counter[str] = Counter()
    for turn in (turn for one in conversations for turn in one.turns):
        spans = turn.weight_versions
        assert spans[-1]["end"] == len(turn.token_ids)
        for span in spans:
            if span["version"] != version:
                stale[span["version"]] += span["end"] - span["start"]
    return dict(stale)


class Trainer(GRPOTrainer):
    """GRPO whose ratio is against the policy that sampled, with measurements."""

    def __init__(self, *args: Any, rollouts: Rollouts, **more: Any) -> None:
        super().__init__(*args, rollout_func=rollouts, **more)
        self.rollouts = rollouts
        self.began = time.monotonic()

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        sampled = batch["sampling_per_token_logps"]
        with torch.no_grad():
            trained, _, _ = self._get_per_token_logps_and_entropies(
                self.model,
                torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1),
                torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1),
                sampled.size(1),
            )
        if self.rollouts.arm == "recomputed":
            sampled = trained
        batch["old_per_token_logps"] = sampled
        difference = (trained - sampled)[
            (batch["completion_mask"] * batch["tool_mask"]).bool()
        ]
        ratio = difference.exp()
        row = {
            "arm": self.rollouts.arm,
            "step": self.state.global_step,
            **self.rollouts.measured,
            "mean": difference.abs().mean().item(),
            "max": difference.abs().max().item(),
            "apart": ((ratio < RATIOS[0]) | (ratio > RATIOS[1])).float().mean().item(),
            "tokens": difference.numel(),
            "seconds": round(time.monotonic() - self.began, 1),
        }
        print(json.dumps(row), flush=True)
        return batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:30000")
    parser.add_argument("--arm", choices=ARMS, default="exact")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=32, help="conversations per step")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weights-") as folder:
        Trainer(
            model=AutoModelForCausalLM.from_pretrained(asked.model),
            processing_class=AutoTokenizer.from_pretrained(asked.model),
            # The rollouts know the rewards.
            reward_funcs=lambda reward, **_: reward,
            train_dataset=Dataset.from_dict({"prompt": QUESTIONS * asked.steps}),
            rollouts=Rollouts(asked.url, asked.arm, Path(folder)),
            args=GRPOConfig(
                output_dir=folder,
                max_steps=asked.steps,
                per_device_train_batch_size=asked.batch,
                num_generations=GENERATIONS,
                learning_rate=1e-3,
                lr_scheduler_type="constant",
                seed=asked.seed,
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                save_strategy="no",
                report_to="none",
                logging_strategy="no",
                disable_tqdm=True,
            ),
        ).train()


if __name__ == "__main__":
    main()
