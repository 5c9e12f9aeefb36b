from typing import Any

class ModelRunner:
    model: Any

class TpModelWorker:
    @property
    def model_runner(self) -> ModelRunner: ...
    def weight_update_runners(
        self,
    ) -> list[tuple[str, ModelRunner]]: ...  # since 0.5.21
