// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Siskin: transformers on the device in people's hands.
//
// Made by `cargo xtask header --bless` of the sources in ffi/src: change those.
//
// Errors. What can fail returns a `siskin_error *`: null where all went well. Outputs are then as they were before the
// call. An error has a number, which never changes its meaning, words that say what to do, and a place. Whoever gets
// one frees it.
//
// Ownership. What `..._new`, `..._open...` and `..._stopper` put out is the caller's, who gives it to the `..._free` of its kind:
// in any order, since what something was made of stays as long as it is needed. Null may be freed. Everything else is
// lent: the library copies what it needs of what it is given, and what it gives out is good until the next call that
// changes the handle it came from, which is every function that takes that handle without `const`.
//
// Texts are UTF-8 with their length in bytes, and need no zero behind them. Where a length is 0, the pointer may be
// null. A length is never the number of characters.
//
// Threads. Any handle may be used from any thread. Functions that take a handle as `const` may run together; one that
// changes it is alone, and whoever comes meanwhile gets SISKIN_ERROR_BUSY. To stop, suspend and resume works at any
// time. A handle must not be freed while somebody uses it. No function may be called from a callback.
//
// Structs that are filled begin with `struct_size`, which the caller sets to `sizeof` the struct before the call. Later
// versions add fields behind the ones that are here.
#ifndef SISKIN_H
#define SISKIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) || defined(__clang__)
#define SISKIN_NODISCARD __attribute__((warn_unused_result))
#else
#define SISKIN_NODISCARD
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct siskin_encoder siskin_encoder;
typedef struct siskin_error siskin_error;
typedef struct siskin_model siskin_model;
typedef struct siskin_model_options siskin_model_options;
typedef struct siskin_sampler siskin_sampler;
typedef struct siskin_session siskin_session;
typedef struct siskin_session_options siskin_session_options;
typedef struct siskin_stop siskin_stop;
typedef struct siskin_texts siskin_texts;
typedef struct siskin_transcriber siskin_transcriber;
typedef struct siskin_writer siskin_writer;
typedef struct siskin_writing siskin_writing;

// Versions --------------------------------------------------------------------------------------------

/// The version of the interface that this header describes. Functions and values are only ever added, each time with a
/// higher number; a breaking change gets another library name.
#define SISKIN_ABI_VERSION 1

/// Returns the version of the interface that the library implements. A program runs with a library whose number is not
/// below the `SISKIN_ABI_VERSION` that it was compiled with.
uint32_t siskin_abi_version(void);

/// Returns the version of the library, such as `0.1.0`, as a NUL-terminated text with static lifetime.
const char *siskin_version(void);

// Errors ----------------------------------------------------------------------------------------------

/// A file or folder could not be read or written.
#define SISKIN_ERROR_IO 100

/// The data is not in the format that it claims to be in.
#define SISKIN_ERROR_CORRUPT 101

/// The format or the request is valid, but unsupported by this version or this model.
#define SISKIN_ERROR_UNSUPPORTED 102

/// The file's major version is unknown.
#define SISKIN_ERROR_VERSION 103

/// The file lacks something that the model needs.
#define SISKIN_ERROR_MISSING 104

/// A tensor has a shape or type that the architecture does not allow.
#define SISKIN_ERROR_SHAPE 105

/// A hash mismatch: the file was modified or damaged.
#define SISKIN_ERROR_INTEGRITY 106

/// A value is out of range or contradicts another.
#define SISKIN_ERROR_ARGUMENT 200

/// The text or tokens are longer than the context.
#define SISKIN_ERROR_TOO_LONG 201

/// The chat template failed or rejected the messages.
#define SISKIN_ERROR_TEMPLATE 202

/// A pointer is null or misaligned.
#define SISKIN_ERROR_NULL 210

/// A handle is of another type.
#define SISKIN_ERROR_HANDLE 211

/// A text is not UTF-8.
#define SISKIN_ERROR_UTF8 212

/// A struct's `struct_size` was not set to its size.
#define SISKIN_ERROR_STRUCT_SIZE 213

/// The handle is in a state that does not allow the call.
#define SISKIN_ERROR_STATE 300

/// The call was cancelled. It can be made again.
#define SISKIN_ERROR_CANCELLED 301

/// The model produced NaN or infinity.
#define SISKIN_ERROR_NUMERIC 302

/// Another call is using the handle, or the call came from a callback.
#define SISKIN_ERROR_BUSY 310

/// An earlier call panicked inside the handle: free it.
#define SISKIN_ERROR_POISONED 311

/// The session is suspended: resume it first.
#define SISKIN_ERROR_SUSPENDED 312

/// A memory limit does not allow the request.
#define SISKIN_ERROR_MEMORY 400

/// There was not enough memory to allocate an error.
#define SISKIN_ERROR_OUT_OF_MEMORY 401

/// An internal error of the library: please report it.
#define SISKIN_ERROR_PANIC 999

/// An error. Freed by its receiver with `siskin_error_free`. Any threads may read it at the same time.
typedef struct siskin_error siskin_error;

/// Returns the stable number of an error, one of `SISKIN_ERROR_...`; 0 for null.
int32_t siskin_error_code(const siskin_error *error);

/// Returns what went wrong and what to do about it, NUL-terminated. The text lives as long as the error; it is empty
/// for null.
const char *siskin_error_message(const siskin_error *error);

/// Returns the location of the error, NUL-terminated: a file, section and field, or the name of an argument. The text
/// lives as long as the error; it is empty for null.
const char *siskin_error_place(const siskin_error *error);

/// Frees an error. Null is ignored.
void siskin_error_free(siskin_error *error);

// What callbacks bring --------------------------------------------------------------------------------

/// Releases `user`. Called exactly once, from any thread; it must not call the library. May be null.
typedef void (*siskin_release)(void *user);

// Messages --------------------------------------------------------------------------------------------

/// Progress.
#define SISKIN_LOG_INFO 1

/// Something that could be better.
#define SISKIN_LOG_WARNING 2

/// Receives a message: its level, and a text of `length` bytes that is valid during the call. Called from the threads
/// that call the library, possibly several at once. It must not call the library.
typedef void (*siskin_log_function)(void *user, int32_t level, const char *text, size_t length);

/// Sends the messages of the whole library to `function`, replacing the previous one; null disables logging. The
/// library prints nothing by itself. `release` is called with `user` when the function is no longer used.
///
/// Threads: any.
SISKIN_NODISCARD
siskin_error *siskin_log_set(siskin_log_function function,
                             void *user,
                             siskin_release release);

// Stopping --------------------------------------------------------------------------------------------

/// Stops the work of a session, encoder, writer or transcriber, from any thread and at any time, even after that was
/// freed. Freed by its receiver with `siskin_stop_free`.
typedef struct siskin_stop siskin_stop;

/// Stops the running call, or the next one: it ends within milliseconds with `SISKIN_ERROR_CANCELLED`, and leaves its
/// object in the state before the call.
///
/// Threads: any, at any time.
SISKIN_NODISCARD
siskin_error *siskin_stop_now(const siskin_stop *stop);

/// Clears a stop that has not affected a call yet.
///
/// Threads: any, at any time.
SISKIN_NODISCARD siskin_error *siskin_stop_withdraw(const siskin_stop *stop);

/// Frees the stop handle; the object that it stops is unaffected. Null is ignored.
void siskin_stop_free(siskin_stop *stop);

// Memory ----------------------------------------------------------------------------------------------

/// The memory that a session uses or would use, in bytes. Set `struct_size` before the call.
typedef struct siskin_memory {
    /// `sizeof(siskin_memory)`.
    size_t struct_size;
    /// Activations and small weights: allocated up front.
    uint64_t activations;
    /// The KV cache: reserved up front, committed as it fills.
    uint64_t cache;
    /// The mapped model file: clean pages, which the system may evict and read again.
    uint64_t mapped;
} siskin_memory;

// How models are opened -------------------------------------------------------------------------------

/// The packed form of a model in another format is kept in the user's cache folder.
#define SISKIN_CACHE_AUTO 0

/// No packed cache: the model is packed each time.
#define SISKIN_CACHE_OFF 1

/// Options of opening a model. Null stands for the defaults. Freed with `siskin_model_options_free`.
typedef struct siskin_model_options siskin_model_options;

/// Receives the number of bytes of the packed form written so far; `total` is 0 while it is unknown. Returns whether to
/// continue. Calls come one at a time for each model that is opened, from threads of the library while the opening call
/// blocks, and must not call the library.
typedef bool (*siskin_progress_function)(void *user, uint64_t done, uint64_t total);

/// Creates the default options.
SISKIN_NODISCARD siskin_error *siskin_model_options_new(siskin_model_options **out);

/// Sets the number of worker threads; 0, the default: one for each core that is about as fast as the fastest.
SISKIN_NODISCARD
siskin_error *siskin_model_options_set_threads(siskin_model_options *options,
                                               uint32_t threads);

/// Sets the CPU features that are not used, by name and separated by commas: `avx512,amx`. Results are bit-identical.
SISKIN_NODISCARD
siskin_error *siskin_model_options_set_without(siskin_model_options *options,
                                               const char *names,
                                               size_t length);

/// Computes with the scalar reference kernels on one thread, slowly: for comparison.
SISKIN_NODISCARD
siskin_error *siskin_model_options_set_reference(siskin_model_options *options,
                                                 bool reference);

/// Skips layers, by index from 0.
SISKIN_NODISCARD
siskin_error *siskin_model_options_set_skip(siskin_model_options *options,
                                            const uint32_t *layers,
                                            size_t count);

/// Adds the LoRA or DoRA adapter in the `.siskin` file at a path of `length` bytes to models that are opened with these
/// options; an empty path, the default: no adapter. It is read immediately. A model whose weights differ from those
/// that the adapter was trained on is rejected, unless `any_base` is set.
SISKIN_NODISCARD
siskin_error *siskin_model_options_set_adapter(siskin_model_options *options,
                                               const char *path,
                                               size_t length,
                                               bool any_base);

/// Sets where the packed form of a model in another format is kept: `SISKIN_CACHE_...`.
SISKIN_NODISCARD
siskin_error *siskin_model_options_set_cache(siskin_model_options *options,
                                             uint32_t cache);

/// Keeps the packed form of a model in another format in this folder, which is created if it does not exist. On a
/// phone, use a folder of the app.
SISKIN_NODISCARD
siskin_error *siskin_model_options_set_cache_folder(siskin_model_options *options,
                                                    const char *path,
                                                    size_t length);

/// Sets the weight types that the matrices of a model in another format are converted to, such as `w4i` or `q4_k`;
/// empty, the default: those of the source, exactly.
SISKIN_NODISCARD
siskin_error *siskin_model_options_set_recipe(siskin_model_options *options,
                                              const char *recipe,
                                              size_t length);

/// Reports packing progress to `function`; null disables it. `release` is called with `user` when the options are freed
/// or the function is replaced.
SISKIN_NODISCARD
siskin_error *siskin_model_options_set_progress(siskin_model_options *options,
                                                siskin_progress_function function,
                                                void *user,
                                                siskin_release release);

/// Frees options. Null is ignored.
void siskin_model_options_free(siskin_model_options *options);

// Models ----------------------------------------------------------------------------------------------

/// The model generates text: it supports sessions and writers.
#define SISKIN_MODEL_WRITES 1

/// The model encodes whole texts: it supports encoders, or writers if it also generates.
#define SISKIN_MODEL_READS 2

/// The model has a chat template.
#define SISKIN_MODEL_CHATS 4

/// The model has a tokenizer: it accepts text.
#define SISKIN_MODEL_TAKES_TEXT 8

/// The model transcribes speech: it supports transcribers.
#define SISKIN_MODEL_LISTENS 16

/// The model has a classification head: `siskin_encoder_classify`, `siskin_encoder_rerank`.
#define SISKIN_MODEL_CLASSIFIES 32

/// The model has a token classification head: `siskin_encoder_tag`.
#define SISKIN_MODEL_TAGS 64

/// The model has an extractive question answering head: `siskin_encoder_answer`.
#define SISKIN_MODEL_ANSWERS 128

/// The model has a fill-mask head: `siskin_encoder_fill_mask`.
#define SISKIN_MODEL_FILLS 256

/// A loaded model. Any threads may use it concurrently; objects created from it keep it alive, so that it may be freed
/// first. Freed with `siskin_model_free`.
typedef struct siskin_model siskin_model;

/// Properties of a model. Set `struct_size` before the call. Texts live as long as the model.
typedef struct siskin_model_info {
    /// `sizeof(siskin_model_info)`.
    size_t struct_size;
    /// The name of its family.
    const char *family;
    /// Its length in bytes.
    size_t family_length;
    /// The context length that it was trained for, in tokens.
    uint64_t context;
    /// The vocabulary size.
    uint64_t vocabulary;
    /// The hidden size.
    uint64_t width;
    /// The size of its file in bytes.
    uint64_t bytes;
    /// The number of worker threads.
    uint32_t threads;
    /// Its capabilities: bits of `SISKIN_MODEL_...`.
    uint32_t abilities;
    /// The number of notes on how it runs: `siskin_model_note`.
    size_t notes;
} siskin_model_info;

/// Opens the model at a path of `length` bytes: a `.siskin` file; if the library was built with `import`, also a GGUF
/// file, a folder of safetensors or an ONNX model, which is packed once and then opened from the packed cache.
/// `options` may be null.
///
/// The file is memory-mapped: it must not be written to or truncated while the model or anything created from it
/// exists. Replacing it by renaming another file over it is safe.
///
/// Threads: any.
SISKIN_NODISCARD
siskin_error *siskin_model_open(const char *path,
                                size_t length,
                                const siskin_model_options *options,
                                siskin_model **out);

/// Opens a model from `length` bytes of an open file starting at `offset`, such as an uncompressed asset of an Android
/// package; 0 bytes: up to the end of the file. The descriptor remains the caller's and may be closed afterwards. It
/// must be a `.siskin` file; tensors are best aligned if the offset is a multiple of 16384.
///
/// Only on systems with file descriptors. Threads: any.
SISKIN_NODISCARD
siskin_error *siskin_model_open_descriptor(int32_t descriptor,
                                           uint64_t offset,
                                           uint64_t length,
                                           const siskin_model_options *options,
                                           siskin_model **out);

/// Opens a `.siskin` model in memory, and copies it.
///
/// Threads: any.
SISKIN_NODISCARD
siskin_error *siskin_model_open_copy(const uint8_t *bytes,
                                     size_t length,
                                     const siskin_model_options *options,
                                     siskin_model **out);

/// Opens a `.siskin` model in memory of the caller, without a copy; the memory must neither move nor change. `release`
/// is called with `user` when the model and everything created from it are freed, and immediately if opening fails.
///
/// Threads: any.
SISKIN_NODISCARD
siskin_error *siskin_model_open_memory(const uint8_t *bytes,
                                       size_t length,
                                       void *user,
                                       siskin_release release,
                                       const siskin_model_options *options,
                                       siskin_model **out);

/// Returns the properties of the model.
///
/// Threads: any.
SISKIN_NODISCARD
siskin_error *siskin_model_describe(const siskin_model *model,
                                    siskin_model_info *out);

/// Returns a note on how the model runs, such as that it is slower than possible. The text lives as long as the model.
///
/// Threads: any.
SISKIN_NODISCARD
siskin_error *siskin_model_note(const siskin_model *model,
                                size_t index,
                                const char **text,
                                size_t *length);

/// Returns the memory that a session with these options would use, without allocating it. `options` may be null.
///
/// Threads: any.
SISKIN_NODISCARD
siskin_error *siskin_model_plan(const siskin_model *model,
                                const siskin_session_options *options,
                                siskin_memory *out);

/// Tokenizes a text. `count` receives the number of tokens; up to `capacity` of them are written to `ids`, which may be
/// null if `capacity` is 0. `special` adds the special tokens that the model expects around a text; control tokens
/// spelled out in the text are always tokenized as plain text.
///
/// Threads: any.
SISKIN_NODISCARD
siskin_error *siskin_model_tokenize(const siskin_model *model,
                                    const char *text,
                                    size_t length,
                                    bool special,
                                    uint32_t *ids,
                                    size_t capacity,
                                    size_t *count);

/// Returns the bytes of a token, which may be a partial character. They live as long as the model.
///
/// Threads: any.
SISKIN_NODISCARD
siskin_error *siskin_model_token(const siskin_model *model,
                                 uint32_t id,
                                 const uint8_t **bytes,
                                 size_t *length);

/// Verifies all hashes of the model's file, which reads all of it.
///
/// Threads: any.
SISKIN_NODISCARD siskin_error *siskin_model_verify(const siskin_model *model);

/// Frees a model; objects created from it remain valid. Null is ignored.
void siskin_model_free(siskin_model *model);

// How fast models compute -----------------------------------------------------------------------------

/// No throttling: heat and power are recorded, but nothing is slowed down.
#define SISKIN_PACE_OFF 0

/// As fast as heat and power allow.
#define SISKIN_PACE_FULL 1

/// A fixed number of tokens per second for each sequence, with no more threads than that takes.
#define SISKIN_PACE_TOKENS 2

/// The duty cycle: the fraction of the time spent computing, above 0, at most 1.
#define SISKIN_PACE_DUTY 3

/// Background work: one thread, a quarter of the time.
#define SISKIN_PACE_BACKGROUND 4

/// Statistics of throttled computation. Set `struct_size` before the call.
typedef struct siskin_pace_stats {
    /// `sizeof(siskin_pace_stats)`.
    size_t struct_size;
    /// Forward passes of the model.
    uint64_t passes;
    /// The time spent in them.
    uint64_t worked_nanoseconds;
    /// The time spent waiting before them.
    uint64_t waited_nanoseconds;
    /// Threads of the last pass; 0 before the first one.
    uint32_t threads;
    /// The current duty cycle.
    float duty;
} siskin_pace_stats;

/// Sets the pace of all computation with the model, `SISKIN_PACE_...`; `value` is the parameter of the pace, if it has
/// one. Results do not depend on it. A call that is waiting can be stopped like any other.
///
/// Threads: any, at any time.
SISKIN_NODISCARD
siskin_error *siskin_model_set_pace(const siskin_model *model,
                                    uint32_t pace,
                                    float value);

/// Sets the thermal state of the device, from 0 to 6 as in Android's thermal status; iOS's nominal, fair, serious and
/// critical are 0, 1, 3 and 4. When the device cools down, the pace rises step by step.
///
/// Threads: any, at any time.
SISKIN_NODISCARD
siskin_error *siskin_model_set_heat(const siskin_model *model,
                                    uint32_t level);

/// Sets the power state of the device: whether power saving is on, whether it runs on battery, and the battery level
/// from 0 to 1, negative if unknown.
///
/// Threads: any, at any time.
SISKIN_NODISCARD
siskin_error *siskin_model_set_power(const siskin_model *model,
                                     bool saving,
                                     bool on_battery,
                                     float battery);

/// Returns the statistics of throttled computation.
///
/// Threads: any, at any time.
SISKIN_NODISCARD
siskin_error *siskin_model_pace_stats(const siskin_model *model,
                                      siskin_pace_stats *out);

// How tokens are chosen -------------------------------------------------------------------------------

/// Temperature: the divisor of the logits; 0: greedy. Default: 0.8.
#define SISKIN_SAMPLER_TEMPERATURE 1

/// Top-k: keep this many of the most probable tokens; 0 is off. Default: 40.
#define SISKIN_SAMPLER_TOP_K 2

/// Top-p: keep the fewest most probable tokens whose probabilities sum to this; 1 is off. Default: 0.95.
#define SISKIN_SAMPLER_TOP_P 3

/// Min-p: keep tokens with at least this fraction of the most probable token's probability; 0 is off. Default: 0.05.
#define SISKIN_SAMPLER_MIN_P 4

/// Locally typical sampling: keep the tokens nearest to the expected surprise up to this probability mass; 1 is off.
#define SISKIN_SAMPLER_TYPICAL_P 5

/// XTC: the probability with which top choices are excluded; 0 is off.
#define SISKIN_SAMPLER_XTC_PROBABILITY 6

/// XTC: the probability from which a token is a top choice.
#define SISKIN_SAMPLER_XTC_THRESHOLD 7

/// Dynamic temperature: how far the temperature may move in either direction; 0 is off.
#define SISKIN_SAMPLER_DYNAMIC_RANGE 8

/// Dynamic temperature: the exponent of the normalized entropy.
#define SISKIN_SAMPLER_DYNAMIC_EXPONENT 9

/// Repetition penalty: the divisor of logits of tokens in the history; 1 is off.
#define SISKIN_SAMPLER_REPETITION_PENALTY 10

/// Frequency penalty: subtracted from a logit for each occurrence of its token in the history; 0 is off.
#define SISKIN_SAMPLER_FREQUENCY_PENALTY 11

/// Presence penalty: subtracted from a logit if its token is in the history; 0 is off.
#define SISKIN_SAMPLER_PRESENCE_PENALTY 12

/// The number of past tokens that the three penalties consider.
#define SISKIN_SAMPLER_PENALTY_LAST 13

/// DRY: the scale of the penalty for continuing a repetition; 0 is off.
#define SISKIN_SAMPLER_DRY_MULTIPLIER 14

/// DRY: the factor by which the penalty grows for each further repeated token.
#define SISKIN_SAMPLER_DRY_BASE 15

/// DRY: the length up to which repetitions are not penalized.
#define SISKIN_SAMPLER_DRY_ALLOWED 16

/// DRY: the number of past tokens that are considered.
#define SISKIN_SAMPLER_DRY_LAST 17

/// 1: Mirostat 2 instead of top-k, top-p, min-p, typical and XTC.
#define SISKIN_SAMPLER_MIROSTAT 18

/// Mirostat: the target surprise, in bits.
#define SISKIN_SAMPLER_MIROSTAT_TAU 19

/// Mirostat: the learning rate.
#define SISKIN_SAMPLER_MIROSTAT_ETA 20

/// 1: report the log-probability of each token.
#define SISKIN_SAMPLER_LOG_PROBABILITIES 21

/// Also report the log-probabilities of this many of the most probable tokens.
#define SISKIN_SAMPLER_TOP_LOG_PROBABILITIES 22

/// Sampling options. Null stands for the defaults. Freed with `siskin_sampler_free`.
typedef struct siskin_sampler siskin_sampler;

/// Creates the default sampling options.
SISKIN_NODISCARD siskin_error *siskin_sampler_new(siskin_sampler **out);

/// Sets one of `SISKIN_SAMPLER_...`. A value out of its range is rejected.
SISKIN_NODISCARD
siskin_error *siskin_sampler_set(siskin_sampler *sampler,
                                 uint32_t option,
                                 double value);

/// Sets the random seed: the same seed, options, model and prompt give the same text on every machine.
SISKIN_NODISCARD siskin_error *siskin_sampler_set_seed(siskin_sampler *sampler, uint64_t seed);

/// Adds a bias to the logit of a token; negative infinity forbids it.
SISKIN_NODISCARD
siskin_error *siskin_sampler_add_bias(siskin_sampler *sampler,
                                      uint32_t token,
                                      float bias);

/// Frees it. Null is ignored.
void siskin_sampler_free(siskin_sampler *sampler);

// How sessions are opened -----------------------------------------------------------------------------

/// The default of the model.
#define SISKIN_CACHE_TYPE_AUTO 0

/// int8 with scales: half the memory of f16.
#define SISKIN_CACHE_TYPE_INT8 1

/// f16.
#define SISKIN_CACHE_TYPE_F16 2

/// f32.
#define SISKIN_CACHE_TYPE_F32 3

/// Options of a session. Null stands for the defaults. Freed with `siskin_session_options_free`.
typedef struct siskin_session_options siskin_session_options;

/// Creates the default options.
SISKIN_NODISCARD siskin_error *siskin_session_options_new(siskin_session_options **out);

/// Sets the context length: the maximum number of tokens of the conversation or sequence; 0, the default: the model's
/// own, but no more than 2048.
SISKIN_NODISCARD
siskin_error *siskin_session_options_set_context(siskin_session_options *options,
                                                 size_t tokens);

/// Sets the maximum number of tokens of one prefill batch. A larger batch is faster and takes more memory; the
/// generated text is the same. Default: 256.
SISKIN_NODISCARD
siskin_error *siskin_session_options_set_batch(siskin_session_options *options,
                                               size_t tokens);

/// Sets the maximum size of activations and KV cache together, in bytes: a session that would take more is rejected
/// with `SISKIN_ERROR_MEMORY`, whose message names the longest context that fits. 0, the default: no limit.
SISKIN_NODISCARD
siskin_error *siskin_session_options_set_budget(siskin_session_options *options,
                                                uint64_t bytes);

/// Limits attention to a sliding window of the `recent` newest tokens and the `first` oldest ones (attention sinks), so
/// that the KV cache is smaller. 0 and 0: the model's own attention mask.
SISKIN_NODISCARD
siskin_error *siskin_session_options_set_window(siskin_session_options *options,
                                                size_t recent,
                                                size_t first);

/// Sets the type of the KV cache: one of `SISKIN_CACHE_TYPE_...`.
SISKIN_NODISCARD
siskin_error *siskin_session_options_set_cache_type(siskin_session_options *options,
                                                    uint32_t kind);

/// Sets the maximum number of tokens of an answer; 0, the default: as many as the context has room for.
SISKIN_NODISCARD
siskin_error *siskin_session_options_set_max_tokens(siskin_session_options *options,
                                                    size_t tokens);

/// Sets the sampling options, which are copied. Null: the defaults.
SISKIN_NODISCARD
siskin_error *siskin_session_options_set_sampler(siskin_session_options *options,
                                                 const siskin_sampler *sampler);

/// Adds a stop string: it ends an answer where it occurs, and is not a part of it.
SISKIN_NODISCARD
siskin_error *siskin_session_options_add_stop(siskin_session_options *options,
                                              const char *stop,
                                              size_t length);

/// Frees options. Null is ignored.
void siskin_session_options_free(siskin_session_options *options);

// Sessions --------------------------------------------------------------------------------------------

/// Generation has not ended.
#define SISKIN_ENDED_NOT 0

/// The model ended it with an end-of-sequence token.
#define SISKIN_ENDED_MODEL 1

/// A stop string occurred.
#define SISKIN_ENDED_STOP 2

/// The maximum number of tokens was reached.
#define SISKIN_ENDED_LENGTH 3

/// The context is full.
#define SISKIN_ENDED_CONTEXT 4

/// One conversation or sequence with its KV cache. One call at a time may use it, from any thread; concurrent calls
/// return `SISKIN_ERROR_BUSY`. Freed with `siskin_session_free`.
typedef struct siskin_session siskin_session;

/// A candidate token.
typedef struct siskin_choice {
    /// The token id.
    uint32_t token;
    /// Its log-probability.
    float log_probability;
} siskin_choice;

/// A piece of an answer. Set `struct_size` before the call. Pointers are valid until the next call that changes the
/// session.
typedef struct siskin_piece {
    /// `sizeof(siskin_piece)`.
    size_t struct_size;
    /// Text: whole UTF-8 characters, NUL-terminated. Empty while a character is incomplete, or while the text may be
    /// the beginning of a stop string.
    const char *text;
    /// Its length in bytes, without the NUL.
    size_t length;
    /// The bytes of the token, which may be a partial character.
    const uint8_t *bytes;
    /// The number of bytes.
    size_t byte_count;
    /// The most probable tokens at this position, if the sampler reports them.
    const siskin_choice *top;
    /// The number of candidate tokens.
    size_t top_count;
    /// The token id, if `has_token`.
    uint32_t token;
    /// Its log-probability; NaN unless the sampler reports it.
    float log_probability;
    /// Whether a token was sampled. Text that was held back until the end comes without one.
    bool has_token;
    /// Whether the answer had already ended before this call: there is no text, and there will be no more.
    bool done;
    /// The finish reason, once it is known: one of `SISKIN_ENDED_...`.
    int32_t ended;
} siskin_piece;

/// Creates a session. `options` may be null. Its memory is reserved here; decoding does not allocate.
///
/// Threads: any.
SISKIN_NODISCARD
siskin_error *siskin_session_new(const siskin_model *model,
                                 const siskin_session_options *options,
                                 siskin_session **out);

/// Adds a message before the next prompt, such as one of the role `system`.
SISKIN_NODISCARD
siskin_error *siskin_session_say(siskin_session *session,
                                 const char *role,
                                 size_t role_length,
                                 const char *content,
                                 size_t content_length);

/// Submits a text: as a user message if the model has a chat template, as a plain continuation if it has none, and as
/// the encoder input of an encoder–decoder model; `siskin_session_next` then returns the answer. The prefix that the
/// prompt shares with the KV cache is not computed again. An unfinished answer is left as it is.
///
/// Control tokens spelled out in the text are tokenized as plain text. After `SISKIN_ERROR_CANCELLED`, the text was not
/// added.
SISKIN_NODISCARD
siskin_error *siskin_session_prompt(siskin_session *session,
                                    const char *text,
                                    size_t length);

/// Continues a raw text, without the chat template. `special` says whether control tokens spelled out in it are parsed:
/// do not enable it for untrusted text. An empty text continues where the last one ended.
SISKIN_NODISCARD
siskin_error *siskin_session_prompt_raw(siskin_session *session,
                                        const char *text,
                                        size_t length,
                                        bool special);

/// Answers a conversation: a JSON array of objects with the strings `role` and `content`. It replaces the previous
/// conversation; a shared prefix is not computed again.
SISKIN_NODISCARD
siskin_error *siskin_session_prompt_messages(siskin_session *session,
                                             const char *json,
                                             size_t length);

/// Continues from token ids, appended to those of the session.
SISKIN_NODISCARD
siskin_error *siskin_session_prompt_tokens(siskin_session *session,
                                           const uint32_t *ids,
                                           size_t count);

/// Returns the next token of the answer and its text. After the last one, `done` is set on every call.
///
/// After `SISKIN_ERROR_CANCELLED` the answer is unchanged: the call can be made again.
SISKIN_NODISCARD siskin_error *siskin_session_next(siskin_session *session, siskin_piece *out);

/// Sets the maximum number of tokens of the answers that begin from now on; 0: as many as the context has room for.
SISKIN_NODISCARD
siskin_error *siskin_session_set_max_tokens(siskin_session *session,
                                            size_t tokens);

/// Stops the running call, or the next one, within milliseconds: it returns `SISKIN_ERROR_CANCELLED`.
///
/// Threads: any, at any time during the session's lifetime.
SISKIN_NODISCARD siskin_error *siskin_session_stop(const siskin_session *session);

/// Creates a handle that stops the session and may outlive it.
///
/// Threads: any, at any time during the session's lifetime.
SISKIN_NODISCARD
siskin_error *siskin_session_stopper(const siskin_session *session,
                                     siskin_stop **out);

/// Frees a session. Null is ignored. A session that a call is using is not freed: stop that call and wait for it.
void siskin_session_free(siskin_session *session);

// What sessions hold ----------------------------------------------------------------------------------

/// Releases memory that is not in use.
#define SISKIN_TRIM_UNUSED 1

/// Also clears all messages and tokens: save the session before.
#define SISKIN_TRIM_ALL 2

/// Counters of a session. Set `struct_size` before the call.
typedef struct siskin_stats {
    /// `sizeof(siskin_stats)`.
    size_t struct_size;
    /// Tokens in the KV cache.
    uint64_t position;
    /// Prompt tokens that were computed; tokens that were already in the KV cache are not counted.
    uint64_t prompt_tokens;
    /// The time spent in prefill.
    uint64_t prompt_nanoseconds;
    /// Tokens that were generated.
    uint64_t tokens;
    /// The time spent in prefill.
    uint64_t nanoseconds;
} siskin_stats;

/// Returns the counters of the session.
SISKIN_NODISCARD siskin_error *siskin_session_stats(const siskin_session *session, siskin_stats *out);

/// Returns the memory that the session uses.
SISKIN_NODISCARD siskin_error *siskin_session_memory(const siskin_session *session, siskin_memory *out);

/// Returns the logits of the next token, one for each token of the vocabulary; zeros before the first token. They are
/// valid until the next call that changes the session.
SISKIN_NODISCARD
siskin_error *siskin_session_logits(const siskin_session *session,
                                    const float **logits,
                                    size_t *count);

/// Clears the session: all messages and tokens. The current answer is dropped.
SISKIN_NODISCARD siskin_error *siskin_session_forget(siskin_session *session);

/// Truncates the session to the first `position` tokens, and drops all messages: generation continues after those
/// tokens. The current answer is dropped.
SISKIN_NODISCARD
siskin_error *siskin_session_rewind(siskin_session *session,
                                    size_t position);

/// Saves the state of the session to a file, which is renamed into place when it is complete. The file contains the
/// conversation in readable form: protect it. An unfinished answer continues afterwards; in the file it ends here.
/// Saving temporarily takes as much memory again as the tokens of the session.
SISKIN_NODISCARD
siskin_error *siskin_session_save(siskin_session *session,
                                  const char *path,
                                  size_t length);

/// Saves the state to memory, which is valid until the next call that changes the session.
SISKIN_NODISCARD
siskin_error *siskin_session_save_memory(siskin_session *session,
                                         const uint8_t **bytes,
                                         size_t *length);

/// Restores what `siskin_session_save` wrote, replacing the state of the session. It must come from the same model, and
/// from a session with the same cache type and window. Generation continues exactly as it would have there.
SISKIN_NODISCARD
siskin_error *siskin_session_restore(siskin_session *session,
                                     const char *path,
                                     size_t length);

/// Restores the state from memory.
SISKIN_NODISCARD
siskin_error *siskin_session_restore_memory(siskin_session *session,
                                            const uint8_t *bytes,
                                            size_t length);

/// Suspends the session, for when an app goes to the background: a running call ends within milliseconds with
/// `SISKIN_ERROR_CANCELLED`, and later calls are rejected with `SISKIN_ERROR_SUSPENDED`. Nothing is lost: once resumed,
/// `siskin_session_next` continues the answer.
///
/// Threads: any, at any time during the session's lifetime.
SISKIN_NODISCARD
siskin_error *siskin_session_suspend(const siskin_session *session);

/// Resumes the session, and clears stops that have not affected a call yet.
///
/// Threads: any, at any time during the session's lifetime.
SISKIN_NODISCARD siskin_error *siskin_session_resume(const siskin_session *session);

/// Returns memory to the system; it is committed again on demand: `SISKIN_TRIM_...`.
SISKIN_NODISCARD siskin_error *siskin_session_trim(siskin_session *session, uint32_t level);

// Batches of texts ------------------------------------------------------------------------------------

/// A batch of texts that are encoded or generated for together. Freed with `siskin_texts_free`.
typedef struct siskin_texts siskin_texts;

/// Creates an empty batch.
SISKIN_NODISCARD siskin_error *siskin_texts_new(siskin_texts **out);

/// Adds a text of `length` bytes of UTF-8, which is copied.
SISKIN_NODISCARD siskin_error *siskin_texts_add(siskin_texts *texts, const char *text, size_t length);

/// Returns the number of texts.
SISKIN_NODISCARD siskin_error *siskin_texts_count(const siskin_texts *texts, size_t *count);

/// Removes all texts.
SISKIN_NODISCARD siskin_error *siskin_texts_clear(siskin_texts *texts);

/// Frees a batch. Null is ignored.
void siskin_texts_free(siskin_texts *texts);

// What encoders find ----------------------------------------------------------------------------------

/// One result of an encoder: a class, a score, a labeled span, an answer or a token. Set `struct_size` before the call.
typedef struct siskin_found {
    /// `sizeof(siskin_found)`.
    size_t struct_size;
    /// The name of the class or label, the text of the answer or of the token; UTF-8, not NUL-terminated.
    const char *text;
    /// Its length in bytes.
    size_t length;
    /// The byte offset in the text where the span begins.
    size_t start;
    /// The byte offset of its end, exclusive.
    size_t end;
    /// Its probability; the score of a pair; the predicted value of a regression model.
    float score;
    /// The token id; `UINT32_MAX` if the result is not a token.
    uint32_t token;
} siskin_found;

// Encoders --------------------------------------------------------------------------------------------

/// The model's own pooling.
#define SISKIN_POOLING_AUTO 0

/// The mean over all tokens.
#define SISKIN_POOLING_MEAN 1

/// The first token (CLS).
#define SISKIN_POOLING_FIRST 2

/// The last token.
#define SISKIN_POOLING_LAST 3

/// The maximum of each column.
#define SISKIN_POOLING_MAX 4

/// The mean, weighted by position: 1, 2, 3, ...
#define SISKIN_POOLING_WEIGHTED 5

/// A text with too many tokens is rejected.
#define SISKIN_LONG_REFUSE 0

/// A text is truncated to the model's maximum length.
#define SISKIN_LONG_CUT 1

/// A text is split into overlapping windows.
#define SISKIN_LONG_PARTS 2

/// Encodes whole texts. One call at a time may use it, from any thread. Freed with `siskin_encoder_free`.
typedef struct siskin_encoder siskin_encoder;

/// Creates an encoder. `head` enables the model's head: required for classes, labels, scores and answers, not allowed
/// for embeddings. `batch` is the maximum number of tokens of one forward pass, 0: 512; `cache` is one of
/// `SISKIN_CACHE_TYPE_...`.
///
/// Threads: any.
SISKIN_NODISCARD
siskin_error *siskin_encoder_new(const siskin_model *model,
                                 bool head,
                                 size_t batch,
                                 uint32_t cache,
                                 siskin_encoder **out);

/// Sets how texts with more tokens than the model's maximum are handled: `SISKIN_LONG_...`; windows overlap by `overlap`
/// tokens.
SISKIN_NODISCARD
siskin_error *siskin_encoder_set_long(siskin_encoder *encoder,
                                      uint32_t long_,
                                      size_t overlap);

/// Sets how hidden states are pooled to one vector: `SISKIN_POOLING_...`; whether it is normalized to unit length; and
/// how many of its dimensions are kept, for Matryoshka models, 0: all.
SISKIN_NODISCARD
siskin_error *siskin_encoder_set_pooling(siskin_encoder *encoder,
                                         uint32_t pooling,
                                         bool normalise,
                                         size_t columns);

/// Computes the embedding of each text; read the results with `siskin_encoder_vector`.
SISKIN_NODISCARD
siskin_error *siskin_encoder_embed(siskin_encoder *encoder,
                                   const siskin_texts *texts);

/// Returns the embedding of text `index`, valid until the next call that changes the encoder.
SISKIN_NODISCARD
siskin_error *siskin_encoder_vector(const siskin_encoder *encoder,
                                    size_t index,
                                    const float **values,
                                    size_t *count);

/// Classifies each text, with the most probable class first; read the results with `siskin_encoder_found`.
SISKIN_NODISCARD
siskin_error *siskin_encoder_classify(siskin_encoder *encoder,
                                      const siskin_texts *texts);

/// Scores the relevance of each text to a query with a cross-encoder: only the order is meaningful.
/// `siskin_encoder_found` returns the scores, in the order of the texts. A text that is too long is rejected, or
/// truncated if `siskin_encoder_set_long` says so; pairs cannot be scored in windows.
SISKIN_NODISCARD
siskin_error *siskin_encoder_rerank(siskin_encoder *encoder,
                                    const char *question,
                                    size_t length,
                                    const siskin_texts *texts);

/// Finds the labeled spans of each text, such as named entities; read the results with `siskin_encoder_found`.
SISKIN_NODISCARD
siskin_error *siskin_encoder_tag(siskin_encoder *encoder,
                                 const siskin_texts *texts);

/// Finds the most probable span of each text that answers a question (extractive question answering); read the results
/// with `siskin_encoder_found`.
SISKIN_NODISCARD
siskin_error *siskin_encoder_answer(siskin_encoder *encoder,
                                    const char *question,
                                    size_t length,
                                    const siskin_texts *texts);

/// Predicts the `count` most probable tokens for each mask token of a text. Read the results with
/// `siskin_encoder_found`, whose text index is the index of the mask; `siskin_encoder_found_places` returns the number
/// of masks.
SISKIN_NODISCARD
siskin_error *siskin_encoder_fill_mask(siskin_encoder *encoder,
                                       const char *text,
                                       size_t length,
                                       size_t count);

/// Returns the number of texts that the last call has results for; after `siskin_encoder_fill_mask`, the number of
/// masks in the text. 0 after `siskin_encoder_embed`.
SISKIN_NODISCARD
siskin_error *siskin_encoder_found_places(const siskin_encoder *encoder,
                                          size_t *count);

/// Returns the number of results for text `index`.
SISKIN_NODISCARD
siskin_error *siskin_encoder_found_count(const siskin_encoder *encoder,
                                         size_t index,
                                         size_t *count);

/// Returns result `rank` of text `index`. Its text is valid until the next call that changes the encoder.
SISKIN_NODISCARD
siskin_error *siskin_encoder_found(const siskin_encoder *encoder,
                                   size_t index,
                                   size_t rank,
                                   siskin_found *out);

/// Stops the running call, or the next one, within milliseconds: it returns `SISKIN_ERROR_CANCELLED`.
///
/// Threads: any, at any time during the encoder's lifetime.
SISKIN_NODISCARD siskin_error *siskin_encoder_stop(const siskin_encoder *encoder);

/// Creates a handle that stops the encoder and may outlive it.
///
/// Threads: any, at any time during the encoder's lifetime.
SISKIN_NODISCARD
siskin_error *siskin_encoder_stopper(const siskin_encoder *encoder,
                                     siskin_stop **out);

/// Frees an encoder. Null is ignored. An encoder that a call is using is not freed.
void siskin_encoder_free(siskin_encoder *encoder);

// How writers write -----------------------------------------------------------------------------------

/// The number of beams of beam search; 1: greedy decoding or sampling with one beam.
#define SISKIN_WRITING_BEAMS 1

/// The number of texts returned for each input, best first.
#define SISKIN_WRITING_BEST 2

/// The maximum number of tokens of a text.
#define SISKIN_WRITING_MAX_TOKENS 3

/// Length penalty: the exponent of a text's length by which its score is divided.
#define SISKIN_WRITING_LENGTH_PENALTY 4

/// Diverse beam search: the number of groups that the beams are divided into.
#define SISKIN_WRITING_GROUPS 5

/// Diverse beam search: the penalty of a group for tokens that other groups chose.
#define SISKIN_WRITING_DIVERSITY 6

/// Generation options of a writer. Freed with `siskin_writing_free`.
typedef struct siskin_writing siskin_writing;

/// Creates options from the model's own configuration.
SISKIN_NODISCARD siskin_error *siskin_writing_new(const siskin_model *model, siskin_writing **out);

/// Creates options for summarization.
SISKIN_NODISCARD
siskin_error *siskin_writing_new_summary(const siskin_model *model,
                                         siskin_writing **out);

/// Creates options for translation. Languages are given by the model's names for them, or by the language code that
/// such a name begins with; empty if the model supports a single language pair.
SISKIN_NODISCARD
siskin_error *siskin_writing_new_translation(const siskin_model *model,
                                             const char *from,
                                             size_t from_length,
                                             const char *to,
                                             size_t to_length,
                                             siskin_writing **out);

/// Sets one of `SISKIN_WRITING_...`. Values are validated when the options are used.
SISKIN_NODISCARD
siskin_error *siskin_writing_set(siskin_writing *writing,
                                 uint32_t option,
                                 double value);

/// Sets how texts that are too long for the model are handled: `SISKIN_LONG_...`. Windows end at sentence boundaries.
SISKIN_NODISCARD
siskin_error *siskin_writing_set_long(siskin_writing *writing,
                                      uint32_t long_,
                                      size_t overlap);

/// Sets the prefix of each text, such as the name of a task.
SISKIN_NODISCARD
siskin_error *siskin_writing_set_before(siskin_writing *writing,
                                        const char *before,
                                        size_t length);

/// Sets the sampling options for a single beam, which are copied.
SISKIN_NODISCARD
siskin_error *siskin_writing_set_sampler(siskin_writing *writing,
                                         const siskin_sampler *sampler);

/// Frees it. Null is ignored.
void siskin_writing_free(siskin_writing *writing);

// Writers ---------------------------------------------------------------------------------------------

/// Generates a text for each text of a batch: translations, summaries, continuations. One call at a time may use it,
/// from any thread. Freed with `siskin_writer_free`.
typedef struct siskin_writer siskin_writer;

/// A generated text. Set `struct_size` before the call. Pointers are valid until the next call that changes the writer.
typedef struct siskin_written {
    /// `sizeof(siskin_written)`.
    size_t struct_size;
    /// The text; UTF-8, not NUL-terminated.
    const char *text;
    /// Its length in bytes.
    size_t length;
    /// Its token ids.
    const uint32_t *tokens;
    /// The number of tokens.
    size_t token_count;
    /// Its length-penalized score: higher is better.
    double score;
    /// Whether the model ended it; otherwise the length limit did.
    bool ended;
} siskin_written;

/// Creates a writer. `rows` is the number of sequences or beams that are generated at the same time, 0: 32; `context`
/// the maximum number of tokens of a text with its prefix, 0: the model's own, but no more than 1024.
///
/// Threads: any.
SISKIN_NODISCARD
siskin_error *siskin_writer_new(const siskin_model *model,
                                size_t rows,
                                size_t context,
                                siskin_writer **out);

/// Generates a text for each text; read the results with `siskin_writer_written`. `writing` may be null: the defaults
/// of the model's configuration.
SISKIN_NODISCARD
siskin_error *siskin_writer_write(siskin_writer *writer,
                                  const siskin_texts *texts,
                                  const siskin_writing *writing);

/// Returns the number of texts that were generated for text `index`.
SISKIN_NODISCARD
siskin_error *siskin_writer_count(const siskin_writer *writer,
                                  size_t index,
                                  size_t *count);

/// Returns generated text `rank` of text `index`, best first.
SISKIN_NODISCARD
siskin_error *siskin_writer_written(const siskin_writer *writer,
                                    size_t index,
                                    size_t rank,
                                    siskin_written *out);

/// Stops the running call, or the next one, within milliseconds: it returns `SISKIN_ERROR_CANCELLED`.
///
/// Threads: any, at any time during the writer's lifetime.
SISKIN_NODISCARD siskin_error *siskin_writer_stop(const siskin_writer *writer);

/// Creates a handle that stops the writer and may outlive it.
///
/// Threads: any, at any time during the writer's lifetime.
SISKIN_NODISCARD siskin_error *siskin_writer_stopper(const siskin_writer *writer, siskin_stop **out);

/// Frees a writer. Null is ignored. A writer that a call is using is not freed.
void siskin_writer_free(siskin_writer *writer);

// Transcribers ----------------------------------------------------------------------------------------

/// 1: translate to English.
#define SISKIN_TRANSCRIBE_TRANSLATE 1

/// 1: split the text into segments with timestamps.
#define SISKIN_TRANSCRIBE_TIMESTAMPS 2

/// The number of beams of beam search.
#define SISKIN_TRANSCRIBE_BEAMS 3

/// 1: condition on the text of the previous windows.
#define SISKIN_TRANSCRIBE_PREVIOUS 4

/// The no-speech probability from which a window is treated as silent, unless its text is likely.
#define SISKIN_TRANSCRIBE_SILENCE 5

/// The maximum number of tokens of a window.
#define SISKIN_TRANSCRIBE_MAX_TOKENS 6

/// Transcribes speech. One call at a time may use it, from any thread. Freed with `siskin_transcriber_free`.
typedef struct siskin_transcriber siskin_transcriber;

/// A segment of the audio, and its transcript. Set `struct_size` before the call. The text is valid until the next call
/// that changes the transcriber.
typedef struct siskin_segment {
    /// `sizeof(siskin_segment)`.
    size_t struct_size;
    /// The transcript; UTF-8, not NUL-terminated.
    const char *text;
    /// Its length in bytes.
    size_t length;
    /// Its start, in seconds.
    double start;
    /// Its end, in seconds.
    double end;
    /// The mean log-probability of the tokens of its window.
    float log_probability;
    /// The probability that its window contains no speech.
    float silence;
} siskin_segment;

/// Creates a transcriber, for speech-to-text models.
///
/// Threads: any.
SISKIN_NODISCARD
siskin_error *siskin_transcriber_new(const siskin_model *model,
                                     siskin_transcriber **out);

/// Sets one of `SISKIN_TRANSCRIBE_...`.
SISKIN_NODISCARD
siskin_error *siskin_transcriber_set(siskin_transcriber *transcriber,
                                     uint32_t option,
                                     double value);

/// Sets the spoken language, such as `en`; empty, the default: detect it.
SISKIN_NODISCARD
siskin_error *siskin_transcriber_set_language(siskin_transcriber *transcriber,
                                              const char *language,
                                              size_t length);

/// Sets a prompt: names and words that are likely to occur in the audio. Empty: none.
SISKIN_NODISCARD
siskin_error *siskin_transcriber_set_prompt(siskin_transcriber *transcriber,
                                            const char *prompt,
                                            size_t length);

/// Transcribes one channel of audio at `rate` samples per second, with full scale from -1 to 1.
SISKIN_NODISCARD
siskin_error *siskin_transcriber_hear(siskin_transcriber *transcriber,
                                      const float *samples,
                                      size_t count,
                                      uint32_t rate);

/// Transcribes little-endian 16-bit samples with `channels` interleaved channels.
SISKIN_NODISCARD
siskin_error *siskin_transcriber_hear_pcm16(siskin_transcriber *transcriber,
                                            const uint8_t *bytes,
                                            size_t length,
                                            uint32_t rate,
                                            uint16_t channels);

/// Transcribes the bytes of a WAVE file.
SISKIN_NODISCARD
siskin_error *siskin_transcriber_hear_wav(siskin_transcriber *transcriber,
                                          const uint8_t *bytes,
                                          size_t length);

/// Returns the whole text, and the spoken language, which is empty if unknown. Both are valid until the next call that
/// changes the transcriber.
SISKIN_NODISCARD
siskin_error *siskin_transcriber_text(const siskin_transcriber *transcriber,
                                      const char **text,
                                      size_t *length,
                                      const char **language,
                                      size_t *language_length);

/// Returns the number of segments.
SISKIN_NODISCARD
siskin_error *siskin_transcriber_count(const siskin_transcriber *transcriber,
                                       size_t *count);

/// Returns segment `index`, in order of time.
SISKIN_NODISCARD
siskin_error *siskin_transcriber_segment(const siskin_transcriber *transcriber,
                                         size_t index,
                                         siskin_segment *out);

/// Stops the running call, or the next one, within milliseconds: it returns `SISKIN_ERROR_CANCELLED`.
///
/// Threads: any, at any time during the transcriber's lifetime.
SISKIN_NODISCARD siskin_error *siskin_transcriber_stop(const siskin_transcriber *transcriber);

/// Creates a handle that stops the transcriber and may outlive it.
///
/// Threads: any, at any time during the transcriber's lifetime.
SISKIN_NODISCARD
siskin_error *siskin_transcriber_stopper(const siskin_transcriber *transcriber,
                                         siskin_stop **out);

/// Frees a transcriber. Null is ignored. A transcriber that a call is using is not freed.
void siskin_transcriber_free(siskin_transcriber *transcriber);

#ifdef __cplusplus
}
#endif

#endif
