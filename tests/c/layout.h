// The layout that Rust gives the structs of the header on machines of 64 bits. Made by the tests of siskin-ffi
// with SISKIN_BLESS=1: what was shipped once never changes, and fields are added at the end.

_Static_assert(sizeof(siskin_memory_usage) == 32, "siskin_memory_usage");
_Static_assert(_Alignof(siskin_memory_usage) == 8, "siskin_memory_usage");
_Static_assert(offsetof(siskin_memory_usage, struct_size) == 0, "siskin_memory_usage.struct_size");
_Static_assert(offsetof(siskin_memory_usage, activations) == 8, "siskin_memory_usage.activations");
_Static_assert(offsetof(siskin_memory_usage, cache) == 16, "siskin_memory_usage.cache");
_Static_assert(offsetof(siskin_memory_usage, mapped) == 24, "siskin_memory_usage.mapped");

_Static_assert(sizeof(siskin_throttle_stats) == 40, "siskin_throttle_stats");
_Static_assert(_Alignof(siskin_throttle_stats) == 8, "siskin_throttle_stats");
_Static_assert(offsetof(siskin_throttle_stats, struct_size) == 0, "siskin_throttle_stats.struct_size");
_Static_assert(offsetof(siskin_throttle_stats, passes) == 8, "siskin_throttle_stats.passes");
_Static_assert(offsetof(siskin_throttle_stats, worked_nanoseconds) == 16, "siskin_throttle_stats.worked_nanoseconds");
_Static_assert(offsetof(siskin_throttle_stats, waited_nanoseconds) == 24, "siskin_throttle_stats.waited_nanoseconds");
_Static_assert(offsetof(siskin_throttle_stats, threads) == 32, "siskin_throttle_stats.threads");
_Static_assert(offsetof(siskin_throttle_stats, duty) == 36, "siskin_throttle_stats.duty");

_Static_assert(sizeof(siskin_model_info) == 72, "siskin_model_info");
_Static_assert(_Alignof(siskin_model_info) == 8, "siskin_model_info");
_Static_assert(offsetof(siskin_model_info, struct_size) == 0, "siskin_model_info.struct_size");
_Static_assert(offsetof(siskin_model_info, family) == 8, "siskin_model_info.family");
_Static_assert(offsetof(siskin_model_info, family_length) == 16, "siskin_model_info.family_length");
_Static_assert(offsetof(siskin_model_info, context) == 24, "siskin_model_info.context");
_Static_assert(offsetof(siskin_model_info, vocabulary) == 32, "siskin_model_info.vocabulary");
_Static_assert(offsetof(siskin_model_info, width) == 40, "siskin_model_info.width");
_Static_assert(offsetof(siskin_model_info, bytes) == 48, "siskin_model_info.bytes");
_Static_assert(offsetof(siskin_model_info, threads) == 56, "siskin_model_info.threads");
_Static_assert(offsetof(siskin_model_info, abilities) == 60, "siskin_model_info.abilities");
_Static_assert(offsetof(siskin_model_info, notes) == 64, "siskin_model_info.notes");

_Static_assert(sizeof(siskin_candidate) == 8, "siskin_candidate");
_Static_assert(_Alignof(siskin_candidate) == 4, "siskin_candidate");
_Static_assert(offsetof(siskin_candidate, token) == 0, "siskin_candidate.token");
_Static_assert(offsetof(siskin_candidate, log_probability) == 4, "siskin_candidate.log_probability");

_Static_assert(sizeof(siskin_text_chunk) == 72, "siskin_text_chunk");
_Static_assert(_Alignof(siskin_text_chunk) == 8, "siskin_text_chunk");
_Static_assert(offsetof(siskin_text_chunk, struct_size) == 0, "siskin_text_chunk.struct_size");
_Static_assert(offsetof(siskin_text_chunk, text) == 8, "siskin_text_chunk.text");
_Static_assert(offsetof(siskin_text_chunk, length) == 16, "siskin_text_chunk.length");
_Static_assert(offsetof(siskin_text_chunk, bytes) == 24, "siskin_text_chunk.bytes");
_Static_assert(offsetof(siskin_text_chunk, byte_count) == 32, "siskin_text_chunk.byte_count");
_Static_assert(offsetof(siskin_text_chunk, top) == 40, "siskin_text_chunk.top");
_Static_assert(offsetof(siskin_text_chunk, top_count) == 48, "siskin_text_chunk.top_count");
_Static_assert(offsetof(siskin_text_chunk, token) == 56, "siskin_text_chunk.token");
_Static_assert(offsetof(siskin_text_chunk, log_probability) == 60, "siskin_text_chunk.log_probability");
_Static_assert(offsetof(siskin_text_chunk, has_token) == 64, "siskin_text_chunk.has_token");
_Static_assert(offsetof(siskin_text_chunk, done) == 65, "siskin_text_chunk.done");
_Static_assert(offsetof(siskin_text_chunk, ended) == 68, "siskin_text_chunk.ended");

_Static_assert(sizeof(siskin_stats) == 48, "siskin_stats");
_Static_assert(_Alignof(siskin_stats) == 8, "siskin_stats");
_Static_assert(offsetof(siskin_stats, struct_size) == 0, "siskin_stats.struct_size");
_Static_assert(offsetof(siskin_stats, position) == 8, "siskin_stats.position");
_Static_assert(offsetof(siskin_stats, prompt_tokens) == 16, "siskin_stats.prompt_tokens");
_Static_assert(offsetof(siskin_stats, prompt_nanoseconds) == 24, "siskin_stats.prompt_nanoseconds");
_Static_assert(offsetof(siskin_stats, tokens) == 32, "siskin_stats.tokens");
_Static_assert(offsetof(siskin_stats, nanoseconds) == 40, "siskin_stats.nanoseconds");

_Static_assert(sizeof(siskin_prediction) == 48, "siskin_prediction");
_Static_assert(_Alignof(siskin_prediction) == 8, "siskin_prediction");
_Static_assert(offsetof(siskin_prediction, struct_size) == 0, "siskin_prediction.struct_size");
_Static_assert(offsetof(siskin_prediction, text) == 8, "siskin_prediction.text");
_Static_assert(offsetof(siskin_prediction, length) == 16, "siskin_prediction.length");
_Static_assert(offsetof(siskin_prediction, start) == 24, "siskin_prediction.start");
_Static_assert(offsetof(siskin_prediction, end) == 32, "siskin_prediction.end");
_Static_assert(offsetof(siskin_prediction, score) == 40, "siskin_prediction.score");
_Static_assert(offsetof(siskin_prediction, token) == 44, "siskin_prediction.token");

_Static_assert(sizeof(siskin_generated_text) == 56, "siskin_generated_text");
_Static_assert(_Alignof(siskin_generated_text) == 8, "siskin_generated_text");
_Static_assert(offsetof(siskin_generated_text, struct_size) == 0, "siskin_generated_text.struct_size");
_Static_assert(offsetof(siskin_generated_text, text) == 8, "siskin_generated_text.text");
_Static_assert(offsetof(siskin_generated_text, length) == 16, "siskin_generated_text.length");
_Static_assert(offsetof(siskin_generated_text, tokens) == 24, "siskin_generated_text.tokens");
_Static_assert(offsetof(siskin_generated_text, token_count) == 32, "siskin_generated_text.token_count");
_Static_assert(offsetof(siskin_generated_text, score) == 40, "siskin_generated_text.score");
_Static_assert(offsetof(siskin_generated_text, ended) == 48, "siskin_generated_text.ended");

_Static_assert(sizeof(siskin_segment) == 48, "siskin_segment");
_Static_assert(_Alignof(siskin_segment) == 8, "siskin_segment");
_Static_assert(offsetof(siskin_segment, struct_size) == 0, "siskin_segment.struct_size");
_Static_assert(offsetof(siskin_segment, text) == 8, "siskin_segment.text");
_Static_assert(offsetof(siskin_segment, length) == 16, "siskin_segment.length");
_Static_assert(offsetof(siskin_segment, start) == 24, "siskin_segment.start");
_Static_assert(offsetof(siskin_segment, end) == 32, "siskin_segment.end");
_Static_assert(offsetof(siskin_segment, log_probability) == 40, "siskin_segment.log_probability");
_Static_assert(offsetof(siskin_segment, silence) == 44, "siskin_segment.silence");
