from sglang.srt.managers.scheduler_components.logprob_result_processor import (
    SchedulerLogprobResultProcessor,
)

class SchedulerBatchResultProcessor:  # since 0.5.13
    @property
    def logprob_result_processor(self) -> SchedulerLogprobResultProcessor: ...
