from sglang.srt.managers.mm_schedule import MultiModalStaticCache

embedding_cache: MultiModalStaticCache | None  # until 0.5.17
