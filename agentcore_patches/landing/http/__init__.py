"""Code that runs in the HTTP server and in the tokenizer manager."""

from __future__ import annotations

from . import adapters as adapters
from . import answers as answers
from . import defaults as defaults
from . import ended_requests as ended_requests
from . import exchanges as exchanges
from . import images as images
from . import logprobs as logprobs
from . import messages as messages
from . import prefix as prefix
from . import prompts as prompts
from . import request_ids as request_ids
from . import response_turns as response_turns
from . import responses as responses
from . import routed_experts as routed_experts
from . import server as server
from . import stream_output as stream_output
from . import traces as traces
from . import weight_versions as weight_versions
