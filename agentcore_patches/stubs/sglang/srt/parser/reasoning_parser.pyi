class BaseReasoningFormatDetector:
    think_start_token: str
    think_end_token: str

class ReasoningParser:
    detector: BaseReasoningFormatDetector
    def __init__(self, model_type: str, stream_reasoning: bool) -> None: ...
