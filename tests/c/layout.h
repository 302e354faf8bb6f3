// The layout that Rust gives the structs of the header on machines of 64 bits. Made by the tests of siskin-ffi
// with SISKIN_BLESS=1: what was shipped once never changes, and fields are added at the end.

_Static_assert(sizeof(siskin_memory) == 32, "siskin_memory");
_Static_assert(_Alignof(siskin_memory) == 8, "siskin_memory");
_Static_assert(offsetof(siskin_memory, struct_size) == 0, "siskin_memory.struct_size");
_Static_assert(offsetof(siskin_memory, activations) == 8, "siskin_memory.activations");
_Static_assert(offsetof(siskin_memory, cache) == 16, "siskin_memory.cache");
_Static_assert(offsetof(siskin_memory, mapped) == 24, "siskin_memory.mapped");

_Static_assert(sizeof(siskin_pace_stats) == 40, "siskin_pace_stats");
_Static_assert(_Alignof(siskin_pace_stats) == 8, "siskin_pace_stats");
_Static_assert(offsetof(siskin_pace_stats, struct_size) == 0, "siskin_pace_stats.struct_size");
_Static_assert(offsetof(siskin_pace_stats, passes) == 8, "siskin_pace_stats.passes");
_Static_assert(offsetof(siskin_pace_stats, worked_nanoseconds) == 16, "siskin_pace_stats.worked_nanoseconds");
_Static_assert(offsetof(siskin_pace_stats, waited_nanoseconds) == 24, "siskin_pace_stats.waited_nanoseconds");
_Static_assert(offsetof(siskin_pace_stats, threads) == 32, "siskin_pace_stats.threads");
_Static_assert(offsetof(siskin_pace_stats, duty) == 36, "siskin_pace_stats.duty");

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

_Static_assert(sizeof(siskin_choice) == 8, "siskin_choice");
_Static_assert(_Alignof(siskin_choice) == 4, "siskin_choice");
_Static_assert(offsetof(siskin_choice, token) == 0, "siskin_choice.token");
_Static_assert(offsetof(siskin_choice, log_probability) == 4, "siskin_choice.log_probability");

_Static_assert(sizeof(siskin_piece) == 72, "siskin_piece");
_Static_assert(_Alignof(siskin_piece) == 8, "siskin_piece");
_Static_assert(offsetof(siskin_piece, struct_size) == 0, "siskin_piece.struct_size");
_Static_assert(offsetof(siskin_piece, text) == 8, "siskin_piece.text");
_Static_assert(offsetof(siskin_piece, length) == 16, "siskin_piece.length");
_Static_assert(offsetof(siskin_piece, bytes) == 24, "siskin_piece.bytes");
_Static_assert(offsetof(siskin_piece, byte_count) == 32, "siskin_piece.byte_count");
_Static_assert(offsetof(siskin_piece, top) == 40, "siskin_piece.top");
_Static_assert(offsetof(siskin_piece, top_count) == 48, "siskin_piece.top_count");
_Static_assert(offsetof(siskin_piece, token) == 56, "siskin_piece.token");
_Static_assert(offsetof(siskin_piece, log_probability) == 60, "siskin_piece.log_probability");
_Static_assert(offsetof(siskin_piece, has_token) == 64, "siskin_piece.has_token");
_Static_assert(offsetof(siskin_piece, done) == 65, "siskin_piece.done");
_Static_assert(offsetof(siskin_piece, ended) == 68, "siskin_piece.ended");

_Static_assert(sizeof(siskin_stats) == 48, "siskin_stats");
_Static_assert(_Alignof(siskin_stats) == 8, "siskin_stats");
_Static_assert(offsetof(siskin_stats, struct_size) == 0, "siskin_stats.struct_size");
_Static_assert(offsetof(siskin_stats, position) == 8, "siskin_stats.position");
_Static_assert(offsetof(siskin_stats, prompt_tokens) == 16, "siskin_stats.prompt_tokens");
_Static_assert(offsetof(siskin_stats, prompt_nanoseconds) == 24, "siskin_stats.prompt_nanoseconds");
_Static_assert(offsetof(siskin_stats, tokens) == 32, "siskin_stats.tokens");
_Static_assert(offsetof(siskin_stats, nanoseconds) == 40, "siskin_stats.nanoseconds");

_Static_assert(sizeof(siskin_found) == 48, "siskin_found");
_Static_assert(_Alignof(siskin_found) == 8, "siskin_found");
_Static_assert(offsetof(siskin_found, struct_size) == 0, "siskin_found.struct_size");
_Static_assert(offsetof(siskin_found, text) == 8, "siskin_found.text");
_Static_assert(offsetof(siskin_found, length) == 16, "siskin_found.length");
_Static_assert(offsetof(siskin_found, start) == 24, "siskin_found.start");
_Static_assert(offsetof(siskin_found, end) == 32, "siskin_found.end");
_Static_assert(offsetof(siskin_found, score) == 40, "siskin_found.score");
_Static_assert(offsetof(siskin_found, token) == 44, "siskin_found.token");

_Static_assert(sizeof(siskin_written) == 56, "siskin_written");
_Static_assert(_Alignof(siskin_written) == 8, "siskin_written");
_Static_assert(offsetof(siskin_written, struct_size) == 0, "siskin_written.struct_size");
_Static_assert(offsetof(siskin_written, text) == 8, "siskin_written.text");
_Static_assert(offsetof(siskin_written, length) == 16, "siskin_written.length");
_Static_assert(offsetof(siskin_written, tokens) == 24, "siskin_written.tokens");
_Static_assert(offsetof(siskin_written, token_count) == 32, "siskin_written.token_count");
_Static_assert(offsetof(siskin_written, score) == 40, "siskin_written.score");
_Static_assert(offsetof(siskin_written, ended) == 48, "siskin_written.ended");

_Static_assert(sizeof(siskin_segment) == 48, "siskin_segment");
_Static_assert(_Alignof(siskin_segment) == 8, "siskin_segment");
_Static_assert(offsetof(siskin_segment, struct_size) == 0, "siskin_segment.struct_size");
_Static_assert(offsetof(siskin_segment, text) == 8, "siskin_segment.text");
_Static_assert(offsetof(siskin_segment, length) == 16, "siskin_segment.length");
_Static_assert(offsetof(siskin_segment, start) == 24, "siskin_segment.start");
_Static_assert(offsetof(siskin_segment, end) == 32, "siskin_segment.end");
_Static_assert(offsetof(siskin_segment, log_probability) == 40, "siskin_segment.log_probability");
_Static_assert(offsetof(siskin_segment, silence) == 44, "siskin_segment.silence");
