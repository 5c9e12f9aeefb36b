"""SGLang's unit tests that rightly fail on a patched tree, with the reasons."""

from __future__ import annotations

from typing import NamedTuple


class Accepted(NamedTuple):
    """An accepted failure.

    Attributes:
        test: the class and the name of the test.
        says: a part of the failure's message; any other failure counts.
    """

    test: str
    says: str
    reason: str


ACCEPTED = (
    Accepted(
        "ServingChatTestCase.test_streaming_logprobs_not_flushed_on_empty_delta_step"
        "_without_parser",
        "KeyError: 'output_ids'",
        "Each token's logprobs are sent, on an empty delta, too; which tokens these are "
        "is said by output_ids, which the test's engine lacks.",
    ),
    Accepted(
        "ServingChatTestCase.test_convert_to_internal_request_rejects_stream_token_ids",
        "KeyError: 'llama-3'",
        "A stream has token IDs: return_token_ids is not refused, and the prompt is made, "
        "for which the test has no template.",
    ),
    Accepted(
        "ServingCompletionTestCase.test_non_streaming_response",
        "ValueError: The engine gave 0 logprobs for 2 tokens",
        "The test asks for logprobs (false counts as 0), and its engine delivers none: "
        "that is an error, so that no answer lacks them.",
    ),
    Accepted(
        "TestGenerateRequestCleanupOnDispatchFailure"
        ".test_single_failure_before_dispatch_cleans_up",
        "AssertionError: Expected mock to have been awaited once.",
        "The fields of the test's request are mocks, for which it is refused before it is "
        "tokenized.",
    ),
    Accepted(
        "ReasoningRequestForwardingTestCase"
        ".test_create_responses_uses_processed_reasoning_state",
        "object has no attribute 'rid_to_state'",
        "A response is refused if its rid is in use; which ones are is said by "
        "rid_to_state, which the test's tokenizer manager lacks.",
    ),
    Accepted(
        "MultimodalRequestTestCase"
        ".test_multimodal_create_responses_sends_text_and_media_to_engine",
        "object has no attribute 'rid_to_state'",
        "A response is refused if its rid is in use; which ones are is said by "
        "rid_to_state, which the test's tokenizer manager lacks.",
    ),
)
