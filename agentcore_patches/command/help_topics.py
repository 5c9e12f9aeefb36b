"""Texts of `agentcore-patch help TOPIC`, beside the help of commands."""

from __future__ import annotations

TOPICS = {
    "exit-codes": """\
Exit codes:
  0  done, or nothing left to do
  1  status --check: not fully applied; verify: a check failed; audit:
     something was found; --ray: a node failed
  2  usage; audit: a line that is not a recorded turn
  3  no SGLang there, or a version that is not supported
  4  the sources do not have the expected shape, or somebody changed them
  5  files could not be read, written or locked, or a Ray cluster not reached
  6  verify, serve: the server did not start, or died
  7  a patch module is written wrongly; the message names patch and edit
 70  a bug in this command (AGENTCORE_DEBUG=1 shows the traceback)
130  interrupted

With 3, 4 and 5 nothing was changed.
`agentcore-patch docs troubleshooting` says what to do about each.""",
    "environment": """\
Environment variables:
  NO_COLOR         if set, no colours, as with TERM=dumb; --color goes first
  PAGER            the program that `docs` shows a page in
  RAY_ADDRESS      the cluster that --ray auto means
  VIRTUAL_ENV, CONDA_PREFIX
                   where to look for the SGLang that a hint names, if there is
                   none
  AGENTCORE_DEBUG  if set, show the traceback of a bug

`agentcore-patch help verify` names those of verify.""",
}
"""The texts, by topic."""
