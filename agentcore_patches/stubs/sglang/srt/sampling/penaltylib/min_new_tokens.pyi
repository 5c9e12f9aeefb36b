from typing import Any

class BatchedMinNewTokensPenalizer:
    stop_token_penalties: Any
