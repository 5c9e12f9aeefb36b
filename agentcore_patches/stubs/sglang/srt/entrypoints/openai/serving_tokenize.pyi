from sglang.srt.entrypoints.openai.serving_base import OpenAIServingBase

class OpenAIServingTokenize(OpenAIServingBase):
    async def _handle_non_streaming_request(
        self, adapted_request, request, *args, raw_request, **kwargs
    ): ...

class OpenAIServingDetokenize(OpenAIServingBase):
    async def _handle_non_streaming_request(self, *args, **kwargs): ...
