from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.managers.schedule_batch import Req

class SchedulerLogprobResultProcessor:  # since 0.5.13
    @property
    def model_config(self) -> ModelConfig: ...
    def calculate_num_input_logprobs(
        self, req: Req, extend_input_len: int, extend_logprob_start_len: int, /
    ) -> int: ...
