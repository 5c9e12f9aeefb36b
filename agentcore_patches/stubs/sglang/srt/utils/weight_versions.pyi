class WeightVersionSpan:  # since 0.5.19
    version: str
    start: int
    end: int
    def __init__(self, *, version: str, start: int, end: int) -> None: ...
