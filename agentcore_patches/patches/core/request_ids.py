"""Request IDs: an ID in use is rejected, and no two requests share one in the engine.

0.5.8 and 0.5.9 serve two concurrent requests with the same `rid`, and mix up their
tokens. Later releases reject the second request. But up to 0.5.21 they leak a part of a
rejected batch, and release an ID before the engine does, so that the next request with
this ID gets late outputs. On all releases, an abort ends every request whose ID starts
with the given ID.
"""

from __future__ import annotations

from agentcore_patches.edits import Decorate, Insert, Replace
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import (
    SERVING_BASE,
    SERVING_RESPONSES,
    TOKENIZER_MANAGER,
)

HOOKS: tuple[Hook, ...] = (
    Hook(
        "request-ids/reserve",
        "reject a rid in use: two requests would share one state",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager.generate_request",
            "agentcore.http.request_ids.reserve(self, obj)",
            after="obj.normalize_batch_and_arguments()",
        ),
    ),
    Hook(
        "request-ids/release",
        "release the rid once the request is over",
        Decorate(
            TOKENIZER_MANAGER,
            "TokenizerManager.generate_request",
            "agentcore.http.request_ids.reserving",
        ),
    ),
    Hook(
        "request-ids/check-stream",
        "reject a rid in use before a stream sends its status",
        Insert(
            SERVING_BASE,
            "OpenAIServingBase.handle_request",
            "agentcore.http.request_ids.refuse(\n"
            "    self.tokenizer_manager, adapted_request\n"
            ")",
            before="return await self._handle_streaming_request(...)",
        ),
        since={
            "0.5.10": absent("a stream's first line is made before its status is sent"),
        },
    ),
    Hook(
        "request-ids/check-responses",
        "reject a rid in use: it would overwrite another conversation",
        Insert(
            SERVING_RESPONSES,
            "OpenAIServingResponses.create_responses",
            "agentcore.http.request_ids.refuse(\n"
            "    self.tokenizer_manager, adapted_request\n"
            ")",
            before="generator = self._generate_with_builtin_tools(...)",
        ),
    ),
    *(
        Hook(
            f"request-ids/{name}",
            "replace each rid by a unique one on its way to the engine",
            Replace(
                TOKENIZER_MANAGER,
                f"TokenizerManager.{function}",
                f"self.send_to_scheduler.send_pyobj({message})",
                "self.send_to_scheduler.send_pyobj(\n"
                f"    agentcore.http.request_ids.for_engine(self, {message})\n"
                ")",
            ),
            since={
                "0.5.15": absent("requests and aborts are sent in one place"),
            },
        )
        for name, function, message in (
            ("send", "_send_one_request", "tokenized_obj"),
            ("send-batch", "_send_batch_request", "batch_req"),
            ("abort", "abort_request", "req"),
        )
    ),
    Hook(
        "request-ids/dispatch",
        "replace each rid by a unique one on its way to the engine",
        absent("requests and aborts are sent in three places"),
        since={
            "0.5.15": Replace(
                TOKENIZER_MANAGER,
                "TokenizerManager._dispatch_to_scheduler",
                "sock_send(self.send_to_scheduler, obj)",
                "sock_send(\n"
                "    self.send_to_scheduler,\n"
                "    agentcore.http.request_ids.for_engine(self, obj),\n"
                ")",
            ),
        },
    ),
    Hook(
        "request-ids/keep",
        "record the engine's rid to recognize outputs of the request",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager._send_one_request",
            "agentcore.http.request_ids.record(self, state, $OBJ.rid)",
            before="self.rid_to_state[$OBJ.rid] = state",
        ),
        since={
            "0.5.10": absent("a request has its state before it is sent"),
        },
        also=("TokenizerManager._send_batch_request",),
    ),
    Hook(
        "request-ids/output",
        "map rids back; a late output must not reach a reused rid",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager._handle_batch_output",
            "agentcore.http.request_ids.from_engine(self, recv_obj)",
        ),
    ),
    Hook(
        "request-ids/aborted",
        "map the rid back; a late abort must not end a reused rid",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager._handle_abort_req",
            "agentcore.http.request_ids.abort_from_engine(self, recv_obj)",
        ),
    ),
    Hook(
        "request-ids/left",
        "abort only this client's request: its rid may be reused by now",
        Replace(
            TOKENIZER_MANAGER,
            "TokenizerManager.create_abort_task",
            "self.abort_request(obj.rid)",
            "agentcore.http.request_ids.abort_own(self, obj.rid, obj)",
        ),
        since={
            "0.5.20": absent("one statement aborts requests and batches"),
        },
    ),
    Hook(
        "request-ids/left-batch",
        "abort only this client's batch: its rids may be reused by now",
        Replace(
            TOKENIZER_MANAGER,
            "TokenizerManager.create_abort_task",
            "self.abort_request(rid)",
            "agentcore.http.request_ids.abort_own(self, rid, obj)",
        ),
    ),
    Hook(
        "request-ids/session",
        "find the earlier turn that the client names by its own rid",
        Insert(
            "$session_controller",
            "Session.create_req",
            "agentcore.scheduler.requests.find_turn(session_params, self.req_nodes)",
            after="session_params = req.session_params",
        ),
    ),
)
