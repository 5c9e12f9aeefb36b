from sglang.srt.entrypoints.openai.serving_base import OpenAIServingBase

class OpenAIServingCompletion(OpenAIServingBase):
    def _build_completion_response(self, request, ret, *args, **kwargs): ...
    def _generate_completion_stream(
        self, adapted_request, request, *args, **kwargs
    ): ...
