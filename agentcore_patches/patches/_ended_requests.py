"""Requests that end or pause before their answer is whole; all patches' edits of it."""

from __future__ import annotations

from agentcore_patches.edits import Edit, Graft, Insert, Narrow, Replace
from agentcore_patches.grafts.ended_requests import (
    _merge_last_batch,
    _raise_refusal,
    abort_request_of_another_worker,
)
from agentcore_patches.patches._files import (
    HTTP_SERVER,
    MULTI_TOKENIZER,
    OUTPUT_SENDER,
    SCHEDULE_BATCH,
    SCHEDULER,
    SERVING_BASE,
    SERVING_CHAT,
    SERVING_COMPLETIONS,
    TOKENIZER_MANAGER,
)

# v0.5.9 keeps a request that was aborted while it waited for ever, and hangs where an
# output that the abort has overtaken comes after it. A request that the scheduler itself
# refuses is run on a stand-in prompt for one token, which is not the model's answer.
ENDED_REQUESTS: tuple[Edit, ...] = (
    *(
        Replace(
            TOKENIZER_MANAGER,
            "TokenizerManager._handle_abort_req",
            "state = self.rid_to_state[recv_obj.rid]",
            f"state = self.rid_to_state.{find}",
            note="what comes later finds it answered",
            since=since,
            until=until,
        )
        for find, since, until in (
            ("pop(recv_obj.rid, None)", "", "0.5.12"),
            # It is deleted further down.
            ("get(recv_obj.rid)", "0.5.13", "0.5.13"),
        )
    ),
    Insert(
        TOKENIZER_MANAGER,
        "TokenizerManager._handle_abort_req",
        "if state is None:\n    return",
        before="state.finished = True",
        note="it was answered before",
        until="0.5.13",
    ),
    Insert(
        TOKENIZER_MANAGER,
        "TokenizerManager._handle_abort_req",
        "if (\n"
        "    self.server_args.enable_lora\n"
        "    and state.obj.lora_path\n"
        "    and not recv_obj.finished_reason\n"
        "):\n"
        "    asyncio.create_task(self.lora_registry.release(state.obj.lora_id))",
        before="state.out_list.append(out)",
        note="with a finished_reason, _wait_one_response does it",
        until="0.5.21",
    ),
    Insert(
        SCHEDULE_BATCH,
        "Req.set_finish_with_abort",
        "self.finished_len = 0",
        before="self.to_finish = FINISH_ABORT(...)",
        note="what is sampled from that token is no answer",
    ),
    Graft(
        SERVING_BASE,
        "OpenAIServingBase",
        _raise_refusal,
        inside=True,
        note="a stream says why its request was refused",
    ),
    *(
        Insert(
            file,
            stream,
            'if content["meta_info"]["finish_reason"]:\n'
            "    self._raise_refusal(content)",
            after='index = content.get("index", 0)',
            note="say why the scheduler ended it",
        )
        for file, stream in (
            (SERVING_CHAT, "OpenAIServingChat._generate_chat_stream"),
            (
                SERVING_COMPLETIONS,
                "OpenAIServingCompletion._generate_completion_stream",
            ),
        )
    ),
    # With several tokenizer workers any of them may be asked, and the scheduler says
    # only to the one that sent a request that it ended.
    Graft(
        TOKENIZER_MANAGER,
        "TokenizerManager",
        abort_request_of_another_worker,
        inside=True,
        note="/abort_request",
        until="0.5.12",
    ),
    Insert(
        HTTP_SERVER,
        "abort_request",
        "_global_state.tokenizer_manager.abort_request_of_another_worker(obj.rid)",
        before="_global_state.tokenizer_manager.abort_request(...)",
        note="whichever tokenizer worker is asked",
        until="0.5.12",
    ),
    *(
        Insert(
            file,
            "SenderWrapper.send_output",
            'worker = getattr(recv_obj, "http_worker_ipc", None)\n'
            "if worker is not None and output.http_worker_ipc is None:\n"
            "    output.http_worker_ipc = worker",
            before=send,
            note="an abort goes to the worker that has the request",
            since=since,
            until=until,
        )
        for file, send, since, until in (
            (SCHEDULER, "self.socket.send_pyobj(output)", "", "0.5.12"),
            (OUTPUT_SENDER, "self.socket.send_pyobj(output)", "0.5.13", "0.5.14"),
            (OUTPUT_SENDER, "sock_send(self.socket, output)", "0.5.15", "0.5.17"),
        )
    ),
    # In v0.5.18 and v0.5.19 a request whose client has left is forgotten before it is
    # aborted, and then an abort of it is ignored.
    Insert(
        TOKENIZER_MANAGER,
        "TokenizerManager._discard_pending_req_states",
        "if rid in self.rid_to_state:\n"
        "    self._dispatch_to_scheduler(AbortReq(rid=rid))",
        before="self.rid_to_state.pop(rid, None)",
        note="the engine is to forget it, too",
        since="0.5.18",
        until="0.5.19",
    ),
    # From v0.5.20 on a request is aborted once: an abort that the scheduler got before the
    # request, while its images were loaded, did nothing.
    Replace(
        TOKENIZER_MANAGER,
        "TokenizerManager.abort_request",
        "state.abort_sent = True",
        "state.abort_sent = state.dispatched",
        note="the scheduler does not know others yet",
        since="0.5.20",
    ),
)

# A pause may come at any moment, and after another pause. From v0.5.10 on the scheduler
# merges batches so itself, and from v0.5.12 on all tokenizer workers are told of a pause.
PAUSES: tuple[Edit, ...] = (
    Graft(
        SCHEDULER,
        "Scheduler",
        _merge_last_batch,
        inside=True,
        note="a pause right after a prefill",
        until="0.5.9",
    ),
    Replace(
        SCHEDULER,
        "Scheduler.pause_generation",
        "self.running_batch.merge_batch(self.last_batch)",
        "self._merge_last_batch()",
        note="either of them may be empty",
        until="0.5.9",
    ),
    Insert(
        TOKENIZER_MANAGER,
        "TokenizerManager.pause_generation",
        "self.send_to_scheduler.send_pyobj(ContinueGenerationReqInput())",
        after="self.abort_request(...)",
        note="one that is paused would never end them",
    ),
    *(
        Insert(
            TOKENIZER_MANAGER,
            f"TokenizerManager.{method}",
            "if self.server_args.tokenizer_worker_num > 1:\n"
            "    raise fastapi.HTTPException(\n"
            "        status_code=HTTPStatus.BAD_REQUEST,\n"
            "        detail=(\n"
            '            "Generation cannot be paused with --tokenizer-worker-num above 1: "\n'
            '            "only one of the workers would know. Abort requests instead."\n'
            "        ),\n"
            "    )",
            note="each worker has a pause of its own",
            until="0.5.11",
        )
        for method in ("pause_generation", "continue_generation")
    ),
    Insert(
        HTTP_SERVER,
        "init_multi_tokenizer",
        "tokenizer_manager.auto_create_handle_loop()",
        before="return server_args",
        note="a worker hears of a pause before its first request",
        since="0.5.12",
    ),
    Insert(
        MULTI_TOKENIZER,
        "MultiTokenizerRouter.router_worker_obj",
        'if is_pause and recv_obj.mode == "abort":\n'
        "    recv_obj = ContinueGenerationReqInput()",
        before="if not (...): ...",
        note="a scheduler that is paused would never end them",
        since="0.5.12",
    ),
)


def aborts_that_are_no_error(file: str, stream: str) -> tuple[Edit, ...]:
    """Let a stream of v0.5.10 end an abort that was asked for as an answer ends."""
    return (
        Insert(
            file,
            stream,
            'is_error = bool(finish_reason and finish_reason.get("status_code"))',
            after='finish_reason_type = finish_reason["type"] if finish_reason else None',
            note="an abort that was asked for is none",
            since="0.5.10",
            until="0.5.10",
        ),
        Narrow(
            file,
            stream,
            'if finish_reason_type == "abort": ...',
            "is_error",
            since="0.5.10",
            until="0.5.10",
        ),
    )
