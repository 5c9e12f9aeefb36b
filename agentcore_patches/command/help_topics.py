"""Texts of `agentcore-patch help TOPIC`."""

from __future__ import annotations

TOPICS = {
    "exit-codes": """\
Exit codes:
  0  done, or nothing left to do
  1  status --check: not fully applied; verify: a check failed; audit:
     something was found; --ray: a node failed
  2  usage; audit: a line that is not a recorded turn
  3  SGLang was not found, or its version is not supported
  4  the sources do not have the expected shape, or were changed
  5  files could not be read, written or locked, or a Ray cluster not reached
  6  verify, serve: the server did not start, or died
  7  a patch module has a mistake; the message names patch and edit
 70  a bug in this command (AGENTCORE_DEBUG=1 shows the traceback)
130  interrupted

With 3, 4 and 5 nothing was changed.
`agentcore-patch docs troubleshooting` explains what to do about each.""",
    "environment": """\
Environment variables of this command:
  NO_COLOR         if set, no colours, as with TERM=dumb; --color overrides it
  PAGER            the pager in which `docs` shows a page
  RAY_ADDRESS      the cluster that --ray auto means
  VIRTUAL_ENV, CONDA_PREFIX
                   where to look for an SGLang to suggest, if there is none
  AGENTCORE_DEBUG  if set, show the traceback of a bug

Environment variables of a patched server:
  AGENTCORE_REQUIRE
                   patches, as core,vllm-api: a server that lacks one exits
                   with 78 (SGLang 0.5.11 and later, with this package in its
                   environment)
  AGENTCORE_APPLY  1 applies these patches first; likewise
  AGENTCORE_DEFAULTS
                   request fields that are true without being sent, such as
                   return_token_ids; NAME=false switches one off
  AGENTCORE_PREFIX_CACHE_MB
                   the size of the memory of conversations
  AGENTCORE_PREFIX_IGNORE
                   patterns of text that the memory leaves out, one a line
  AGENTCORE_VLLM_EXPERTS
                   the shape of routed experts of vllm-api: npy, object, nested
  SGLANG_RETURN_ORIGINAL_LOGPROB
                   1 returns logprobs from before the temperature

`agentcore-patch help verify` lists those of verify.""",
}
"""The texts, by topic."""
