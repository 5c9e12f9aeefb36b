class ServerArgs:
    allow_auto_truncate: bool
    disable_overlap_schedule: bool
    disaggregation_mode: str
    dllm_algorithm: str | None
    dp_size: int
    enable_custom_logit_processor: bool
    enable_deterministic_inference: bool
    enable_dp_attention: bool
    enable_lora: bool | None
    enable_memory_saver: bool
    enable_metrics: bool
    enable_priority_scheduling: bool
    enable_return_routed_experts: bool
    enable_weights_cpu_backup: bool
    incremental_streaming_output: bool  # since 0.5.10
    language_only: bool
    model_path: str
    pp_size: int
    schedule_low_priority_values_first: bool
    served_model_name: str
    skip_tokenizer_init: bool
    speculative_algorithm: str | None
    stream_output: bool  # until 0.5.9
    tokenizer_worker_num: int
    tp_size: int
    weight_version: str
