"""Requests that end or pause before their answer is whole.

0.5.9 never removes a request that was aborted while it was queued, and hangs when a
later output arrives for an aborted request. An aborted response lacks fields that
others have, and repeats sent tokens under --stream-output. A request that the scheduler
itself rejects runs on a stand-in prompt for one token, which is not the model's answer.
"""

from __future__ import annotations

from agentcore_patches.edits import AddCondition, AddField, Insert, Replace
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import (
    CHAT_AND_COMPLETIONS,
    HTTP_SERVER,
    MULTI_TOKENIZER,
    SCHEDULE_BATCH,
    SCHEDULER,
    TOKENIZER_MANAGER,
)

HOOKS: tuple[Hook, ...] = (
    Hook(
        "ended-requests/customized-info",
        "collect a custom sampler's values of all tokens, by key",
        AddField(
            TOKENIZER_MANAGER,
            "ReqState",
            "customized_info_accumulated: Dict[str, List[Any]] = dataclasses.field(\n"
            "    default_factory=dict\n"
            ")",
        ),
        since={
            "0.5.13": absent("SGLang has it"),
        },
        upstream="PR 27205",
    ),
    Hook(
        "ended-requests/answered",
        "ignore the abort if an output has already finished the request",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager._handle_abort_req",
            "if recv_obj.rid not in self.rid_to_state:\n    return",
            before="state = self.rid_to_state[recv_obj.rid]",
        ),
        since={
            "0.5.14": absent("SGLang does the same"),
        },
        upstream="PR 28341, 0.5.14",
    ),
    Hook(
        "ended-requests/finish",
        "complete the final output with the fields that others have",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager._handle_abort_req",
            "agentcore.http.ended_requests.finish(\n"
            "    self,\n"
            "    state,\n"
            "    recv_obj,\n"
            "    out,\n"
            "    is_stream and $stream_output,\n"
            ")",
            before="state.out_list.append(out)",
        ),
    ),
    Hook(
        "ended-requests/count",
        "count the requests that the scheduler aborted, for /metrics",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager._handle_batch_output",
            "if recv_obj.finished_reasons[i] is not None:\n"
            "    agentcore.http.ended_requests.count(recv_obj.finished_reasons[i])",
            after="state.finished = recv_obj.finished_reasons[i] is not None",
        ),
    ),
    Hook(
        "ended-requests/refused",
        "drop the token sampled from the scheduler's stand-in prompt",
        Insert(
            SCHEDULE_BATCH,
            "Req.set_finish_with_abort",
            "self.finished_len = 0",
            before="self.to_finish = FINISH_ABORT(...)",
        ),
    ),
    *(
        Hook(
            f"ended-requests/refused-{endpoint}",
            "fail the stream with the scheduler's reason for the rejection",
            Insert(
                file,
                f"{serving}._generate_{endpoint}_stream",
                'if content["meta_info"]["finish_reason"]:\n'
                "    agentcore.http.ended_requests.raise_refusal(content)",
                after='index = content.get("index", 0)',
            ),
        )
        for endpoint, file, serving in CHAT_AND_COMPLETIONS
    ),
    # With `n` above 1, SGLang registers `n` requests for a prompt, then makes new ones
    # to run, and removes only the first of the registered ones.
    # With several tokenizer workers, any of them may be asked to abort a request, but
    # the scheduler answers only the worker that has it.
    Hook(
        "ended-requests/abort-elsewhere",
        "abort a request even if another tokenizer worker owns it",
        Insert(
            HTTP_SERVER,
            "abort_request",
            "agentcore.http.ended_requests.abort_elsewhere(\n"
            "    _global_state.tokenizer_manager, obj.rid\n"
            ")",
            before="_global_state.tokenizer_manager.abort_request(...)",
        ),
        since={
            "0.5.13": absent("a worker passes on the aborts of unknown requests"),
        },
        upstream="PR 25561, 0.5.13",
    ),
    Hook(
        "ended-requests/address",
        "send the abort to the tokenizer worker that owns the request",
        Insert(
            "$output_sender",
            "SenderWrapper.send_output",
            "agentcore.scheduler.requests.address(output, recv_obj)",
            after="if self.socket is None: ...",
        ),
        since={
            "0.5.18": absent("SGLang addresses the outputs of every request"),
        },
        upstream="issue 33858; PR 33940, 0.5.18",
    ),
    Hook(
        "ended-requests/samples",
        "drop the placeholder requests that n > 1 never runs",
        absent("a request is kept when it is sent"),
        since={
            "0.5.10": Insert(
                TOKENIZER_MANAGER,
                "TokenizerManager._handle_batch_request",
                "for agentcore_rid in obj.rid[batch_size:]:\n"
                "    self.rid_to_state.pop(agentcore_rid, None)",
                before="objs = [obj[i] for i in range(batch_size)]",
            ),
            "0.5.22": absent("SGLang does it"),
        },
        upstream="PR 30723, closed; 0.5.22",
    ),
    # From 0.5.20 on, a request is aborted only once. An abort that reached the
    # scheduler before the request, while its images were loading, had no effect.
    Hook(
        "ended-requests/abort-sent",
        "allow another abort if the scheduler has no such request yet",
        absent("a request may be aborted again"),
        since={
            "0.5.20": Replace(
                TOKENIZER_MANAGER,
                "TokenizerManager.abort_request",
                "state.abort_sent = True",
                "state.abort_sent = state.dispatched",
            ),
        },
    ),
    *(
        Hook(
            f"ended-requests/aborted-{endpoint}",
            "an abort that a client asked for is not an error",
            absent("no abort is an error"),
            since={
                "0.5.10": AddCondition(
                    file,
                    f"{serving}._generate_{endpoint}_stream",
                    'if finish_reason_type == "abort": ...',
                    '(\n    finish_reason.get("status_code")\n)',
                ),
                "0.5.11": absent("SGLang looks at the status code"),
            },
            upstream="PR 22535, 0.5.11",
        )
        for endpoint, file, serving in CHAT_AND_COMPLETIONS
    ),
    # A pause may come at any time, also during another pause.
    Hook(
        "ended-requests/pause-after-prefill",
        "check both batches first: either one may be empty",
        Replace(
            SCHEDULER,
            "Scheduler.pause_generation",
            "self.running_batch.merge_batch(self.last_batch)",
            "agentcore.scheduler.requests.merge_last_batch(self)",
        ),
        since={
            "0.5.10": absent("SGLang checks whether they are"),
        },
        upstream="PR 21514, 0.5.10",
    ),
    Hook(
        "ended-requests/abort-paused",
        "resume the scheduler: a paused one never finishes the aborts",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager.pause_generation",
            "self.$send_to_scheduler(ContinueGenerationReqInput())",
            after="self.abort_request(...)",
        ),
    ),
    Hook(
        "ended-requests/pause-with-workers",
        "reject the pause: the other tokenizer workers would not see it",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager.pause_generation",
            "agentcore.http.ended_requests.refuse_pause(self)",
        ),
        since={
            "0.5.12": absent("a pause reaches all tokenizer workers"),
        },
        upstream="issue 21235; PR 24462, 0.5.12",
        also=("TokenizerManager.continue_generation",),
    ),
    Hook(
        "ended-requests/workers-hear",
        "start the handle loop now, or a worker misses an early pause",
        absent("with several tokenizer workers, pauses are rejected"),
        since={
            "0.5.12": Insert(
                HTTP_SERVER,
                "init_multi_tokenizer",
                "tokenizer_manager.auto_create_handle_loop()",
                before="return server_args",
            ),
        },
        upstream="issue 39689; PR 39693, open",
    ),
    Hook(
        "ended-requests/router-abort-paused",
        "resume the scheduler: a paused one never finishes the aborts",
        absent("a pause reaches only one tokenizer worker"),
        since={
            "0.5.12": Insert(
                MULTI_TOKENIZER,
                "MultiTokenizerRouter.router_worker_obj",
                'if is_pause and recv_obj.mode == "abort":\n'
                "    recv_obj = ContinueGenerationReqInput()",
                before="if not (...): ...",
            ),
        },
    ),
)
