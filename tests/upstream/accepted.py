"""Unit tests of SGLang's that fail on a patched tree, and why that is right."""

from __future__ import annotations

from typing import NamedTuple


class Accepted(NamedTuple):
    """A failure that is accepted.

    Attributes:
        test: the class and the name of the test.
        says: a part of what the failure says; any other failure counts.
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
        "TestGenerateRequestCleanupOnDispatchFailure"
        ".test_single_failure_before_dispatch_cleans_up",
        "AssertionError: Expected mock to have been awaited once.",
        "The prompt of the test's request is a mock, which counts as an empty list: it "
        "is refused before it is tokenized.",
    ),
)
