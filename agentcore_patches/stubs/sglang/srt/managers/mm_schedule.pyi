class MultiModalStaticCache:  # since 0.5.18
    def clear(self) -> None: ...

embedding_cache: MultiModalStaticCache | None  # since 0.5.18
