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

/// The version of the interface that this header describes. Functions and values are only ever added to it, each time
/// with a higher number; what would break programs gets another library name.
#define SISKIN_ABI_VERSION 1

/// The version of the interface that the library has. A program runs with a library whose number is not below the
/// `SISKIN_ABI_VERSION` that it was compiled with.
uint32_t siskin_abi_version(void);

/// The version of the library, such as `0.1.0`, as a text that ends with a zero and lives for ever.
const char *siskin_version(void);

// Errors ----------------------------------------------------------------------------------------------

/// A file or folder could not be read or written.
#define SISKIN_ERROR_IO 100

/// The bytes are not in the format they claim.
#define SISKIN_ERROR_CORRUPT 101

/// The format or the request is right, but this version or this model cannot do it.
#define SISKIN_ERROR_UNSUPPORTED 102

/// The file's major version is unknown.
#define SISKIN_ERROR_VERSION 103

/// Something the model needs is not in the file.
#define SISKIN_ERROR_MISSING 104

/// A tensor has a shape or type that the architecture does not allow.
#define SISKIN_ERROR_SHAPE 105

/// A hash differs: the file was changed or damaged.
#define SISKIN_ERROR_INTEGRITY 106

/// A value is out of range or contradicts another.
#define SISKIN_ERROR_ARGUMENT 200

/// The text or tokens are longer than the context.
#define SISKIN_ERROR_TOO_LONG 201

/// The chat template failed or refused the messages.
#define SISKIN_ERROR_TEMPLATE 202

/// A pointer is null, or lies where no such thing can.
#define SISKIN_ERROR_NULL 210

/// A handle is of another kind.
#define SISKIN_ERROR_HANDLE 211

/// A text is not UTF-8.
#define SISKIN_ERROR_UTF8 212

/// A struct's `struct_size` was not set to its size.
#define SISKIN_ERROR_STRUCT_SIZE 213

/// The handle is in a state that does not allow the call.
#define SISKIN_ERROR_STATE 300

/// The caller stopped the work. The call can be made again.
#define SISKIN_ERROR_CANCELLED 301

/// The model produced numbers that are not finite.
#define SISKIN_ERROR_NUMERIC 302

/// Another call is at work on the handle, or the call came from a callback.
#define SISKIN_ERROR_BUSY 310

/// An earlier call failed inside the handle: free it.
#define SISKIN_ERROR_POISONED 311

/// The session is suspended: resume it first.
#define SISKIN_ERROR_SUSPENDED 312

/// A memory limit does not allow the request.
#define SISKIN_ERROR_MEMORY 400

/// There was not even memory for an error.
#define SISKIN_ERROR_OUT_OF_MEMORY 401

/// The library failed inside: please tell its makers.
#define SISKIN_ERROR_PANIC 999

/// What went wrong. Whoever gets one frees it with `siskin_error_free`. Any threads may read it at the same time.
typedef struct siskin_error siskin_error;

/// The stable number of an error, one of `SISKIN_ERROR_...`; 0 for null.
int32_t siskin_error_code(const siskin_error *error);

/// What went wrong and what to do, in words that end with a zero. They live as long as the error; those of null are
/// empty.
const char *siskin_error_message(const siskin_error *error);

/// Where it went wrong: a file, section and field, or the name of an argument, as words that end with a zero. They live
/// as long as the error; those of null are empty.
const char *siskin_error_place(const siskin_error *error);

/// Frees an error. Null is nothing.
void siskin_error_free(siskin_error *error);

// What callbacks bring --------------------------------------------------------------------------------

/// Lets go of what was given with it. Called exactly once, from any thread; it may not call the library. May be null.
typedef void (*siskin_release)(void *user);

// Messages --------------------------------------------------------------------------------------------

/// What is being done.
#define SISKIN_LOG_INFO 1

/// What could be better.
#define SISKIN_LOG_WARNING 2

/// Is told a message: its level, and a text of `length` bytes that ends when the call does. Calls come from the thread
/// that called the library, perhaps from several at once. It may not call the library.
typedef void (*siskin_log_function)(void *user, int32_t level, const char *text, size_t length);

/// Sends messages of the whole library to `function`, in place of who got them before; null: to nobody. The library
/// prints nothing by itself. `release` is called with `user` when nobody is sent to there any more.
///
/// Threads: any.
SISKIN_NODISCARD
siskin_error *siskin_log_set(siskin_log_function function,
                             void *user,
                             siskin_release release);

// Stopping --------------------------------------------------------------------------------------------

/// Stops the work of a session, encoder, writer or transcriber, from any thread and at any time, also after that was
/// freed. Whoever gets one frees it with `siskin_stop_free`.
typedef struct siskin_stop siskin_stop;

/// Stops the running call, or the next one: it ends within milliseconds with `SISKIN_ERROR_CANCELLED`, and what it
/// worked on is as it was before.
///
/// Threads: any, at any time.
SISKIN_NODISCARD
siskin_error *siskin_stop_now(const siskin_stop *stop);

/// Takes back a stop that no call has followed yet.
///
/// Threads: any, at any time.
SISKIN_NODISCARD siskin_error *siskin_stop_withdraw(const siskin_stop *stop);

/// Frees the means to stop; what it stops goes on. Null is nothing.
void siskin_stop_free(siskin_stop *stop);

// Memory ----------------------------------------------------------------------------------------------

/// What a session holds in memory, or would hold, in bytes. Set `struct_size` before the call.
typedef struct siskin_memory {
    /// `sizeof(siskin_memory)`.
    size_t struct_size;
    /// Activations and small weights: taken at once.
    uint64_t activations;
    /// Keys and values: reserved, and taken as they fill.
    uint64_t cache;
    /// The model's file: pages of it that the system may drop and read again.
    uint64_t mapped;
} siskin_memory;

// How models are opened -------------------------------------------------------------------------------

/// The packed form of another format's model is kept in the user's cache folder.
#define SISKIN_CACHE_AUTO 0

/// It is kept nowhere: the model is packed each time.
#define SISKIN_CACHE_OFF 1

/// How a model is opened. Null stands for the usual way. Freed with `siskin_model_options_free`.
typedef struct siskin_model_options siskin_model_options;

/// Is told how much of the packed form is written, in bytes; `total` is 0 while it is not known. Returns whether to go
/// on. Calls come one at a time for each model that is opened, from threads of the library while the call that opens it
/// waits, and may not call the library.
typedef bool (*siskin_progress_function)(void *user, uint64_t done, uint64_t total);

/// Makes the usual options.
SISKIN_NODISCARD siskin_error *siskin_model_options_new(siskin_model_options **out);

/// How many threads compute; 0, as usual: one for each core that keeps up with the fastest.
SISKIN_NODISCARD
siskin_error *siskin_model_options_set_threads(siskin_model_options *options,
                                               uint32_t threads);

/// Features of the processor that are not used, by name with commas between them: `avx512,amx`. The same bits come out.
SISKIN_NODISCARD
siskin_error *siskin_model_options_set_without(siskin_model_options *options,
                                               const char *names,
                                               size_t length);

/// Computes in plain words on one thread, slowly: to compare with.
SISKIN_NODISCARD
siskin_error *siskin_model_options_set_reference(siskin_model_options *options,
                                                 bool reference);

/// Leaves out layers, by their numbers from 0 on.
SISKIN_NODISCARD
siskin_error *siskin_model_options_set_skip(siskin_model_options *options,
                                            const uint32_t *layers,
                                            size_t count);

/// Puts the adapter in the `.siskin` file at a path of `length` bytes beside the matrices of models that are opened with
/// these options; no bytes: none, as usual. It is read at once. A model whose weights are not those that it was trained
/// beside is refused, unless `any_base` is set.
SISKIN_NODISCARD
siskin_error *siskin_model_options_set_adapter(siskin_model_options *options,
                                               const char *path,
                                               size_t length,
                                               bool any_base);

/// Where the packed form of a model of another format is kept: `SISKIN_CACHE_...`.
SISKIN_NODISCARD
siskin_error *siskin_model_options_set_cache(siskin_model_options *options,
                                             uint32_t cache);

/// Keeps the packed form of a model of another format in this folder, which is made where it is absent. On a phone,
/// that is a folder of the app's.
SISKIN_NODISCARD
siskin_error *siskin_model_options_set_cache_folder(siskin_model_options *options,
                                                    const char *path,
                                                    size_t length);

/// Which types the matrices of a model of another format get when it is packed, such as `w4i` or `q4_k`; empty, as
/// usual: those of its source, exactly.
SISKIN_NODISCARD
siskin_error *siskin_model_options_set_recipe(siskin_model_options *options,
                                              const char *recipe,
                                              size_t length);

/// Tells `function` how far packing is; null: nobody. `release` is called with `user` when the options are freed or
/// told otherwise.
SISKIN_NODISCARD
siskin_error *siskin_model_options_set_progress(siskin_model_options *options,
                                                siskin_progress_function function,
                                                void *user,
                                                siskin_release release);

/// Frees options. Null is nothing.
void siskin_model_options_free(siskin_model_options *options);

// Models ----------------------------------------------------------------------------------------------

/// The model writes: it can have sessions and writers.
#define SISKIN_MODEL_WRITES 1

/// The model reads whole texts: it can have encoders, or writers where it writes too.
#define SISKIN_MODEL_READS 2

/// The model has a chat template.
#define SISKIN_MODEL_CHATS 4

/// The model has a tokenizer: it takes text.
#define SISKIN_MODEL_TAKES_TEXT 8

/// The model listens: it can have transcribers.
#define SISKIN_MODEL_LISTENS 16

/// The model's head tells classes, and scores pairs: `siskin_encoder_classify`, `siskin_encoder_rerank`.
#define SISKIN_MODEL_CLASSIFIES 32

/// The model's head labels tokens: `siskin_encoder_tag`.
#define SISKIN_MODEL_TAGS 64

/// The model's head finds answers: `siskin_encoder_answer`.
#define SISKIN_MODEL_ANSWERS 128

/// The model's head fills masked places: `siskin_encoder_fill_mask`.
#define SISKIN_MODEL_FILLS 256

/// An open model. Any threads may use it together; what is made of it keeps it alive, so that it may be freed first.
/// Freed with `siskin_model_free`.
typedef struct siskin_model siskin_model;

/// What a model is. Set `struct_size` before the call. Texts live as long as the model.
typedef struct siskin_model_info {
    /// `sizeof(siskin_model_info)`.
    size_t struct_size;
    /// The name of its family.
    const char *family;
    /// Bytes of that.
    size_t family_length;
    /// The most tokens that it was made for.
    uint64_t context;
    /// Tokens of its vocabulary.
    uint64_t vocabulary;
    /// Columns of its hidden states.
    uint64_t width;
    /// Bytes of its file.
    uint64_t bytes;
    /// Threads that compute.
    uint32_t threads;
    /// What it can do: bits of `SISKIN_MODEL_...`.
    uint32_t abilities;
    /// How many notes there are on how it runs: `siskin_model_note`.
    size_t notes;
} siskin_model_info;

/// Opens the model at a path of `length` bytes: a `.siskin` file; where the library was built with `import`, also a
/// GGUF file, a folder of safetensors or an ONNX model, which is packed once and then opened from where that is kept.
/// `options` may be null.
///
/// The file is mapped: nobody may write to it or shorten it while the model or anything made of it is there. Replacing
/// it by renaming another over it is safe.
///
/// Threads: any.
SISKIN_NODISCARD
siskin_error *siskin_model_open(const char *path,
                                size_t length,
                                const siskin_model_options *options,
                                siskin_model **out);

/// Opens a model that is `length` bytes of an open file from `offset` on, such as an uncompressed asset of an Android
/// package; 0 bytes: all that follow. The descriptor stays the caller's and may be closed afterwards. It must be a
/// `.siskin` file, and its tensors are best served by an offset that is a multiple of 16384.
///
/// Only on systems with file descriptors. Threads: any.
SISKIN_NODISCARD
siskin_error *siskin_model_open_descriptor(int32_t descriptor,
                                           uint64_t offset,
                                           uint64_t length,
                                           const siskin_model_options *options,
                                           siskin_model **out);

/// Opens a `.siskin` model that is in memory, and copies it.
///
/// Threads: any.
SISKIN_NODISCARD
siskin_error *siskin_model_open_copy(const uint8_t *bytes,
                                     size_t length,
                                     const siskin_model_options *options,
                                     siskin_model **out);

/// Opens a `.siskin` model in memory of the caller's that stays where it is and as it is. `release` is called with
/// `user` when neither the model nor anything made of it needs it any more, and at once where opening fails.
///
/// Threads: any.
SISKIN_NODISCARD
siskin_error *siskin_model_open_memory(const uint8_t *bytes,
                                       size_t length,
                                       void *user,
                                       siskin_release release,
                                       const siskin_model_options *options,
                                       siskin_model **out);

/// What the model is.
///
/// Threads: any.
SISKIN_NODISCARD
siskin_error *siskin_model_describe(const siskin_model *model,
                                    siskin_model_info *out);

/// A note on how the model runs, such as that it is slower than it could be. The text lives as long as the model.
///
/// Threads: any.
SISKIN_NODISCARD
siskin_error *siskin_model_note(const siskin_model *model,
                                size_t index,
                                const char **text,
                                size_t *length);

/// What a session with these options would hold in memory; nothing of it is taken. `options` may be null.
///
/// Threads: any.
SISKIN_NODISCARD
siskin_error *siskin_model_plan(const siskin_model *model,
                                const siskin_session_options *options,
                                siskin_memory *out);

/// The tokens of a text. `count` becomes how many there are; as many of them as `capacity` are put into `ids`, which
/// may be null where that is 0. `special` says whether the tokens that the model expects around a text are added; what
/// the text spells is never a special token.
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

/// The bytes that a token stands for, which may be a part of a character. They live as long as the model.
///
/// Threads: any.
SISKIN_NODISCARD
siskin_error *siskin_model_token(const siskin_model *model,
                                 uint32_t id,
                                 const uint8_t **bytes,
                                 size_t *length);

/// Compares all hashes of the model's file with what they stand for, which reads all of it.
///
/// Threads: any.
SISKIN_NODISCARD siskin_error *siskin_model_verify(const siskin_model *model);

/// Frees a model; what was made of it lives on. Null is nothing.
void siskin_model_free(siskin_model *model);

// How fast models compute -----------------------------------------------------------------------------

/// Nothing is held: heat and power are noted, and nothing is slowed down.
#define SISKIN_PACE_OFF 0

/// As fast as heat and power allow.
#define SISKIN_PACE_FULL 1

/// So many tokens a second of each text that is written, with no more threads than that takes.
#define SISKIN_PACE_TOKENS 2

/// The part of the time in which there may be computing: above 0, at most 1.
#define SISKIN_PACE_DUTY 3

/// Work that nobody waits for: one thread, a quarter of the time.
#define SISKIN_PACE_BACKGROUND 4

/// What was done while a pace was held. Set `struct_size` before the call.
typedef struct siskin_pace_stats {
    /// `sizeof(siskin_pace_stats)`.
    size_t struct_size;
    /// Passes through the model.
    uint64_t passes;
    /// The time that they took.
    uint64_t worked_nanoseconds;
    /// The time that was let go by before them.
    uint64_t waited_nanoseconds;
    /// Threads of the last pass; 0: there was none.
    uint32_t threads;
    /// The part of the time in which there may be computing now.
    float duty;
} siskin_pace_stats;

/// Holds all that compute with the model to a pace, `SISKIN_PACE_...`; `value` is that of the pace, where it has one.
/// Results do not depend on it. A call that rests can be stopped as any other.
///
/// Threads: any, at any time.
SISKIN_NODISCARD
siskin_error *siskin_model_set_pace(const siskin_model *model,
                                    uint32_t pace,
                                    float value);

/// Says how hot the device is, from 0 to 6 as Android's thermal status counts; iOS's nominal, fair, serious and critical
/// are 0, 1, 3 and 4. Where it cools down, the pace rises step by step.
///
/// Threads: any, at any time.
SISKIN_NODISCARD
siskin_error *siskin_model_set_heat(const siskin_model *model,
                                    uint32_t level);

/// Says what the device runs on: whether its owner asked it to save power, whether it runs on its battery alone, and
/// what is left in that, from 0 to 1; less than 0 where that is not known.
///
/// Threads: any, at any time.
SISKIN_NODISCARD
siskin_error *siskin_model_set_power(const siskin_model *model,
                                     bool saving,
                                     bool on_battery,
                                     float battery);

/// What was done while a pace was held.
///
/// Threads: any, at any time.
SISKIN_NODISCARD
siskin_error *siskin_model_pace_stats(const siskin_model *model,
                                      siskin_pace_stats *out);

// How tokens are chosen -------------------------------------------------------------------------------

/// What logits are divided by; 0: always the likeliest token. Usually 0.8.
#define SISKIN_SAMPLER_TEMPERATURE 1

/// Keep so many of the likeliest tokens; 0 is off. Usually 40.
#define SISKIN_SAMPLER_TOP_K 2

/// Keep the fewest likeliest tokens with this share of the probability; 1 is off. Usually 0.95.
#define SISKIN_SAMPLER_TOP_P 3

/// Keep tokens at least so many times as likely as the likeliest; 0 is off. Usually 0.05.
#define SISKIN_SAMPLER_MIN_P 4

/// Keep the tokens nearest to the expected surprise with this share; 1 is off.
#define SISKIN_SAMPLER_TYPICAL_P 5

/// How often top choices are excluded; 0 is off.
#define SISKIN_SAMPLER_XTC_PROBABILITY 6

/// The probability from which a token is a top choice.
#define SISKIN_SAMPLER_XTC_THRESHOLD 7

/// How far the temperature may move either way; 0 is off.
#define SISKIN_SAMPLER_DYNAMIC_RANGE 8

/// The power to which the entropy's share is raised where the temperature moves.
#define SISKIN_SAMPLER_DYNAMIC_EXPONENT 9

/// What logits of tokens in the history are divided by; 1 is off.
#define SISKIN_SAMPLER_REPETITION_PENALTY 10

/// Taken from a logit for every time that its token is in the history; 0 is off.
#define SISKIN_SAMPLER_FREQUENCY_PENALTY 11

/// Taken from a logit when its token is in the history; 0 is off.
#define SISKIN_SAMPLER_PRESENCE_PENALTY 12

/// How many tokens the three penalties look back on.
#define SISKIN_SAMPLER_PENALTY_LAST 13

/// The size of the penalty for continuing a repetition (DRY); 0 is off.
#define SISKIN_SAMPLER_DRY_MULTIPLIER 14

/// How much that grows for each further repeated token.
#define SISKIN_SAMPLER_DRY_BASE 15

/// The length up to which repetitions stay unpunished.
#define SISKIN_SAMPLER_DRY_ALLOWED 16

/// How many tokens DRY looks back on.
#define SISKIN_SAMPLER_DRY_LAST 17

/// 1: Mirostat 2 in the place of top-k, top-p, min-p, typical and XTC.
#define SISKIN_SAMPLER_MIROSTAT 18

/// Mirostat's target surprise, in bits.
#define SISKIN_SAMPLER_MIROSTAT_TAU 19

/// How fast Mirostat moves towards its target.
#define SISKIN_SAMPLER_MIROSTAT_ETA 20

/// 1: report the logarithm of each token's probability.
#define SISKIN_SAMPLER_LOG_PROBABILITIES 21

/// Report so many of the likeliest tokens as well.
#define SISKIN_SAMPLER_TOP_LOG_PROBABILITIES 22

/// How tokens are chosen. Null stands for the usual way. Freed with `siskin_sampler_free`.
typedef struct siskin_sampler siskin_sampler;

/// Makes the usual way to choose.
SISKIN_NODISCARD siskin_error *siskin_sampler_new(siskin_sampler **out);

/// Sets one of `SISKIN_SAMPLER_...`. A value out of its range is refused.
SISKIN_NODISCARD
siskin_error *siskin_sampler_set(siskin_sampler *sampler,
                                 uint32_t option,
                                 double value);

/// Where random numbers start: the same seed, options, model and prompt give the same text on every machine.
SISKIN_NODISCARD siskin_error *siskin_sampler_set_seed(siskin_sampler *sampler, uint64_t seed);

/// Adds a number to the logit of a token; minus infinity forbids it.
SISKIN_NODISCARD
siskin_error *siskin_sampler_add_bias(siskin_sampler *sampler,
                                      uint32_t token,
                                      float bias);

/// Frees it. Null is nothing.
void siskin_sampler_free(siskin_sampler *sampler);

// How sessions are opened -----------------------------------------------------------------------------

/// What suits the model.
#define SISKIN_CACHE_TYPE_AUTO 0

/// Bytes with a scale: half the memory of f16.
#define SISKIN_CACHE_TYPE_INT8 1

/// Halves.
#define SISKIN_CACHE_TYPE_F16 2

/// Floats.
#define SISKIN_CACHE_TYPE_F32 3

/// How a session is opened. Null stands for the usual way. Freed with `siskin_session_options_free`.
typedef struct siskin_session_options siskin_session_options;

/// Makes the usual options.
SISKIN_NODISCARD siskin_error *siskin_session_options_new(siskin_session_options **out);

/// The most tokens of the conversation or text; 0, as usual: the model's own, but no more than 2048.
SISKIN_NODISCARD
siskin_error *siskin_session_options_set_context(siskin_session_options *options,
                                                 size_t tokens);

/// The most tokens of a prompt that go through the model at once. More are faster and take more memory; the same text
/// comes out. Usually 256.
SISKIN_NODISCARD
siskin_error *siskin_session_options_set_batch(siskin_session_options *options,
                                               size_t tokens);

/// The most bytes of activations, keys and values together: a session that would take more is refused with
/// `SISKIN_ERROR_MEMORY`, whose message names the longest context that fits. 0, as usual: no limit.
SISKIN_NODISCARD
siskin_error *siskin_session_options_set_budget(siskin_session_options *options,
                                                uint64_t bytes);

/// Lets tokens see the `recent` newest and the `first` oldest alone, so that less is kept. 0 and 0: all that the model
/// sees.
SISKIN_NODISCARD
siskin_error *siskin_session_options_set_window(siskin_session_options *options,
                                                size_t recent,
                                                size_t first);

/// The type of keys and values: one of `SISKIN_CACHE_TYPE_...`.
SISKIN_NODISCARD
siskin_error *siskin_session_options_set_cache_type(siskin_session_options *options,
                                                    uint32_t kind);

/// The most tokens of an answer; 0, as usual: as many as there is room for.
SISKIN_NODISCARD
siskin_error *siskin_session_options_set_max_tokens(siskin_session_options *options,
                                                    size_t tokens);

/// How tokens are chosen, which is copied. Null: the usual way.
SISKIN_NODISCARD
siskin_error *siskin_session_options_set_sampler(siskin_session_options *options,
                                                 const siskin_sampler *sampler);

/// Adds a text that ends an answer where it comes; it is not a part of it.
SISKIN_NODISCARD
siskin_error *siskin_session_options_add_stop(siskin_session_options *options,
                                              const char *stop,
                                              size_t length);

/// Frees options. Null is nothing.
void siskin_session_options_free(siskin_session_options *options);

// Sessions --------------------------------------------------------------------------------------------

/// The answer goes on.
#define SISKIN_ENDED_NOT 0

/// The model ended it.
#define SISKIN_ENDED_MODEL 1

/// A stop text came.
#define SISKIN_ENDED_STOP 2

/// It has as many tokens as were wanted.
#define SISKIN_ENDED_LENGTH 3

/// The context is full.
#define SISKIN_ENDED_CONTEXT 4

/// One conversation or text. One call at a time may be at work on it, from any thread; others get
/// `SISKIN_ERROR_BUSY`. Freed with `siskin_session_free`.
typedef struct siskin_session siskin_session;

/// A token that might have been chosen.
typedef struct siskin_choice {
    /// Its id.
    uint32_t token;
    /// The logarithm of its probability.
    float log_probability;
} siskin_choice;

/// A piece of an answer. Set `struct_size` before the call. Pointers are good until the next call that changes the
/// session.
typedef struct siskin_piece {
    /// `sizeof(siskin_piece)`.
    size_t struct_size;
    /// Text: whole characters of UTF-8, with a zero behind them. Empty while a character is not whole, or what came may
    /// be the beginning of a stop text.
    const char *text;
    /// Bytes of that, without the zero.
    size_t length;
    /// The bytes of the token, which may be a part of a character.
    const uint8_t *bytes;
    /// How many those are.
    size_t byte_count;
    /// The likeliest tokens in its place, where the sampler was asked for them.
    const siskin_choice *top;
    /// How many those are.
    size_t top_count;
    /// The token, where `has_token`.
    uint32_t token;
    /// The logarithm of its probability; NaN unless the sampler was asked for it.
    float log_probability;
    /// Whether a token was chosen. Text that was held back until the end comes without one.
    bool has_token;
    /// Whether the answer was over before this call: there is no text, and no more will come.
    bool done;
    /// Why the answer ended, once that is known: one of `SISKIN_ENDED_...`.
    int32_t ended;
} siskin_piece;

/// Opens a session. `options` may be null. Its memory is reserved here, and nothing is allocated for a token.
///
/// Threads: any.
SISKIN_NODISCARD
siskin_error *siskin_session_new(const siskin_model *model,
                                 const siskin_session_options *options,
                                 siskin_session **out);

/// Adds a message that stands before the next prompt, such as one of the role `system`.
SISKIN_NODISCARD
siskin_error *siskin_session_say(siskin_session *session,
                                 const char *role,
                                 size_t role_length,
                                 const char *content,
                                 size_t content_length);

/// Says a text as the user where the model has a chat template, goes on from it where it has none, and gives it to read
/// where the model makes a text of a text; `siskin_session_next` then gives the answer. What the session shares with
/// what it has read is not read again. An answer that was being written is left as it is.
///
/// Control tokens that the text spells are text. After `SISKIN_ERROR_CANCELLED`, the text was not said.
SISKIN_NODISCARD
siskin_error *siskin_session_prompt(siskin_session *session,
                                    const char *text,
                                    size_t length);

/// Goes on from a text as it is, without the chat template. `special` says whether control tokens that it spells are
/// such: not for text from strangers. An empty text goes on where the last one ended.
SISKIN_NODISCARD
siskin_error *siskin_session_prompt_raw(siskin_session *session,
                                        const char *text,
                                        size_t length,
                                        bool special);

/// Answers a conversation: a JSON list of objects with `role` and `content`, which are texts. It takes the place of
/// what was said before; what both have in common is not read again.
SISKIN_NODISCARD
siskin_error *siskin_session_prompt_messages(siskin_session *session,
                                             const char *json,
                                             size_t length);

/// Goes on from tokens behind those that the session has.
SISKIN_NODISCARD
siskin_error *siskin_session_prompt_tokens(siskin_session *session,
                                           const uint32_t *ids,
                                           size_t count);

/// The next token of the answer and the text that it brought. After the last one, `done` is set, again and again.
///
/// After `SISKIN_ERROR_CANCELLED` the answer is where it was: the call can be made again.
SISKIN_NODISCARD
siskin_error *siskin_session_next(siskin_session *session,
                                  siskin_piece *out);

/// The most tokens of the answers that begin from now on; 0: as many as there is room for.
SISKIN_NODISCARD siskin_error *siskin_session_set_max_tokens(siskin_session *session, size_t tokens);

/// Stops the running call, or the next one, within milliseconds: it gives `SISKIN_ERROR_CANCELLED`.
///
/// Threads: any, at any time while the session is there.
SISKIN_NODISCARD siskin_error *siskin_session_stop(const siskin_session *session);

/// Makes the means to stop the session, which may outlive it.
///
/// Threads: any, at any time while the session is there.
SISKIN_NODISCARD
siskin_error *siskin_session_stopper(const siskin_session *session,
                                     siskin_stop **out);

/// Frees a session. Null is nothing. One that a call is at work on stays as it is: stop that, and wait for it.
void siskin_session_free(siskin_session *session);

// What sessions hold ----------------------------------------------------------------------------------

/// Gives back memory that holds nothing.
#define SISKIN_TRIM_UNUSED 1

/// Forgets all that was said and read as well: save it before.
#define SISKIN_TRIM_ALL 2

/// What a session has done so far. Set `struct_size` before the call.
typedef struct siskin_stats {
    /// `sizeof(siskin_stats)`.
    size_t struct_size;
    /// Tokens that it holds.
    uint64_t position;
    /// Tokens of prompts that were read; those that were known already are not counted.
    uint64_t prompt_tokens;
    /// The time that took.
    uint64_t prompt_nanoseconds;
    /// Tokens that were written.
    uint64_t tokens;
    /// The time that took.
    uint64_t nanoseconds;
} siskin_stats;

/// What the session has done so far.
SISKIN_NODISCARD siskin_error *siskin_session_stats(const siskin_session *session, siskin_stats *out);

/// What the session holds in memory.
SISKIN_NODISCARD siskin_error *siskin_session_memory(const siskin_session *session, siskin_memory *out);

/// The scores of all tokens to come next, as the model gives them; zeros before the first token. They are good until
/// the next call that changes the session.
SISKIN_NODISCARD
siskin_error *siskin_session_logits(const siskin_session *session,
                                    const float **logits,
                                    size_t *count);

/// Forgets all that was said and read. The answer that is being written is dropped.
SISKIN_NODISCARD siskin_error *siskin_session_forget(siskin_session *session);

/// Forgets all but the first `position` tokens, and all messages: what follows goes on from those tokens. The answer
/// that is being written is dropped.
SISKIN_NODISCARD
siskin_error *siskin_session_rewind(siskin_session *session,
                                    size_t position);

/// Writes what the session holds to a file, which appears when it is complete: who has it can read what was said. An
/// answer that is being written goes on afterwards; in the file it ends here. For a moment it takes as much memory
/// again as the session's tokens do.
SISKIN_NODISCARD
siskin_error *siskin_session_save(siskin_session *session,
                                  const char *path,
                                  size_t length);

/// The same to memory, which is good until the next call that changes the session.
SISKIN_NODISCARD
siskin_error *siskin_session_save_memory(siskin_session *session,
                                         const uint8_t **bytes,
                                         size_t *length);

/// Goes on from what `siskin_session_save` wrote, in place of what was said here. It must be of the same model, and
/// of a session with the same type of cache and window. What follows is what would have followed there.
SISKIN_NODISCARD
siskin_error *siskin_session_restore(siskin_session *session,
                                     const char *path,
                                     size_t length);

/// The same from memory.
SISKIN_NODISCARD
siskin_error *siskin_session_restore_memory(siskin_session *session,
                                            const uint8_t *bytes,
                                            size_t length);

/// Holds the session, for when an app goes to the background: a running call ends within milliseconds with
/// `SISKIN_ERROR_CANCELLED`, and those after it are refused with `SISKIN_ERROR_SUSPENDED`. Nothing is lost: once
/// resumed, `siskin_session_next` goes on where the answer was.
///
/// Threads: any, at any time while the session is there.
SISKIN_NODISCARD
siskin_error *siskin_session_suspend(const siskin_session *session);

/// Lets the session work again, and takes back stops that no call has followed.
///
/// Threads: any, at any time while the session is there.
SISKIN_NODISCARD siskin_error *siskin_session_resume(const siskin_session *session);

/// Gives memory back to the system, which gives it again as it is needed: `SISKIN_TRIM_...`.
SISKIN_NODISCARD siskin_error *siskin_session_trim(siskin_session *session, uint32_t level);

// Batches of texts ------------------------------------------------------------------------------------

/// Texts that are read or written for together. Freed with `siskin_texts_free`.
typedef struct siskin_texts siskin_texts;

/// Makes an empty batch.
SISKIN_NODISCARD siskin_error *siskin_texts_new(siskin_texts **out);

/// Adds a text of `length` bytes of UTF-8, which is copied.
SISKIN_NODISCARD siskin_error *siskin_texts_add(siskin_texts *texts, const char *text, size_t length);

/// How many texts there are.
SISKIN_NODISCARD siskin_error *siskin_texts_count(const siskin_texts *texts, size_t *count);

/// Takes all texts out.
SISKIN_NODISCARD siskin_error *siskin_texts_clear(siskin_texts *texts);

/// Frees a batch. Null is nothing.
void siskin_texts_free(siskin_texts *texts);

// What encoders find ----------------------------------------------------------------------------------

/// Something that an encoder found: a class, a score, a run with a label, an answer or a token. Set `struct_size` before
/// the call.
typedef struct siskin_found {
    /// `sizeof(siskin_found)`.
    size_t struct_size;
    /// The name of the class or label, the words of the answer, or the text of the token; UTF-8, without a zero.
    const char *text;
    /// Bytes of that.
    size_t length;
    /// The first byte of the text that it stands for.
    size_t start;
    /// The first byte behind that.
    size_t end;
    /// Its probability; of pairs, their score; of the classes of a model of numbers (`regression`), the number.
    float score;
    /// The token; all ones where it is none.
    uint32_t token;
} siskin_found;

// Encoders --------------------------------------------------------------------------------------------

/// What the model was made for.
#define SISKIN_POOLING_AUTO 0

/// The mean over all tokens.
#define SISKIN_POOLING_MEAN 1

/// The first token's.
#define SISKIN_POOLING_FIRST 2

/// The last token's.
#define SISKIN_POOLING_LAST 3

/// The largest of each column.
#define SISKIN_POOLING_MAX 4

/// The mean with weights 1, 2, 3, ...
#define SISKIN_POOLING_WEIGHTED 5

/// A text with too many tokens is refused.
#define SISKIN_LONG_REFUSE 0

/// It is read as far as the model reads.
#define SISKIN_LONG_CUT 1

/// It is read in parts that share some tokens.
#define SISKIN_LONG_PARTS 2

/// Reads whole texts. One call at a time may be at work on it, from any thread. Freed with `siskin_encoder_free`.
typedef struct siskin_encoder siskin_encoder;

/// Opens an encoder. `head` says whether the model's head is used, which classes, labels, scores and answers need and
/// vectors must not have. `batch` is the most tokens that go through the model at once, 0: 512; `cache` is one of
/// `SISKIN_CACHE_TYPE_...`.
///
/// Threads: any.
SISKIN_NODISCARD
siskin_error *siskin_encoder_new(const siskin_model *model,
                                 bool head,
                                 size_t batch,
                                 uint32_t cache,
                                 siskin_encoder **out);

/// What is done with texts that have more tokens than the model reads: `SISKIN_LONG_...`; parts share `overlap` tokens.
SISKIN_NODISCARD
siskin_error *siskin_encoder_set_long(siskin_encoder *encoder,
                                      uint32_t long_,
                                      size_t overlap);

/// How hidden states become one vector: `SISKIN_POOLING_...`; whether it is brought to length one; and how many of its
/// columns are kept, for models that were trained to be cut off, 0: all.
SISKIN_NODISCARD
siskin_error *siskin_encoder_set_pooling(siskin_encoder *encoder,
                                         uint32_t pooling,
                                         bool normalise,
                                         size_t columns);

/// Makes a vector of each text; `siskin_encoder_vector` gives them.
SISKIN_NODISCARD
siskin_error *siskin_encoder_embed(siskin_encoder *encoder,
                                   const siskin_texts *texts);

/// The vector of text `index`, good until the next call that changes the encoder.
SISKIN_NODISCARD
siskin_error *siskin_encoder_vector(const siskin_encoder *encoder,
                                    size_t index,
                                    const float **values,
                                    size_t *count);

/// Tells the classes of each text, the likeliest first; `siskin_encoder_found` gives them.
SISKIN_NODISCARD
siskin_error *siskin_encoder_classify(siskin_encoder *encoder,
                                      const siskin_texts *texts);

/// Scores how well each text goes with a question: only the order means something. `siskin_encoder_found` gives the
/// scores, in the order of the texts. A text that is too long is refused, or cut where `siskin_encoder_set_long` says
/// so; parts cannot be scored.
SISKIN_NODISCARD
siskin_error *siskin_encoder_rerank(siskin_encoder *encoder,
                                    const char *question,
                                    size_t length,
                                    const siskin_texts *texts);

/// Finds the runs of each text that have a label, such as names; `siskin_encoder_found` gives them.
SISKIN_NODISCARD siskin_error *siskin_encoder_tag(siskin_encoder *encoder, const siskin_texts *texts);

/// Finds the likeliest place of each text that answers a question; `siskin_encoder_found` gives it.
SISKIN_NODISCARD
siskin_error *siskin_encoder_answer(siskin_encoder *encoder,
                                    const char *question,
                                    size_t length,
                                    const siskin_texts *texts);

/// Finds the `count` likeliest tokens for each masked place of a text; `siskin_encoder_found` gives them, with the
/// place in the place of the text's number, and `siskin_encoder_found_places` says how many places there are.
SISKIN_NODISCARD
siskin_error *siskin_encoder_fill_mask(siskin_encoder *encoder,
                                       const char *text,
                                       size_t length,
                                       size_t count);

/// How many texts something was looked for in; after `siskin_encoder_fill_mask`, how many masked places the text had.
/// After `siskin_encoder_embed` it is 0.
SISKIN_NODISCARD
siskin_error *siskin_encoder_found_places(const siskin_encoder *encoder,
                                          size_t *count);

/// How many things were found for text `index`.
SISKIN_NODISCARD
siskin_error *siskin_encoder_found_count(const siskin_encoder *encoder,
                                         size_t index,
                                         size_t *count);

/// Thing `rank` of what was found for text `index`. Its text is good until the next call that changes the encoder.
SISKIN_NODISCARD
siskin_error *siskin_encoder_found(const siskin_encoder *encoder,
                                   size_t index,
                                   size_t rank,
                                   siskin_found *out);

/// Stops the running call, or the next one, within milliseconds: it gives `SISKIN_ERROR_CANCELLED`.
///
/// Threads: any, at any time while the encoder is there.
SISKIN_NODISCARD siskin_error *siskin_encoder_stop(const siskin_encoder *encoder);

/// Makes the means to stop the encoder, which may outlive it.
///
/// Threads: any, at any time while the encoder is there.
SISKIN_NODISCARD
siskin_error *siskin_encoder_stopper(const siskin_encoder *encoder,
                                     siskin_stop **out);

/// Frees an encoder. Null is nothing. One that a call is at work on stays as it is.
void siskin_encoder_free(siskin_encoder *encoder);

// How writers write -----------------------------------------------------------------------------------

/// How many texts are begun at the same time, of which the likeliest are kept; 1: the likeliest token each time.
#define SISKIN_WRITING_BEAMS 1

/// How many texts are given for each, the best first.
#define SISKIN_WRITING_BEST 2

/// The most tokens of a text.
#define SISKIN_WRITING_MAX_TOKENS 3

/// The power of a text's length that its score is divided by.
#define SISKIN_WRITING_LENGTH_PENALTY 4

/// Into how many groups beams are divided, each of which looks for something else.
#define SISKIN_WRITING_GROUPS 5

/// What groups lose for the same tokens.
#define SISKIN_WRITING_DIVERSITY 6

/// How a writer writes. Freed with `siskin_writing_free`.
typedef struct siskin_writing siskin_writing;

/// Makes what the model's own configuration asks for.
SISKIN_NODISCARD siskin_error *siskin_writing_new(const siskin_model *model, siskin_writing **out);

/// The same for a summary.
SISKIN_NODISCARD
siskin_error *siskin_writing_new_summary(const siskin_model *model,
                                         siskin_writing **out);

/// The same for a translation. Languages are named as the model names them, or by the code with which its own names
/// begin; empty where the model knows one pair alone.
SISKIN_NODISCARD
siskin_error *siskin_writing_new_translation(const siskin_model *model,
                                             const char *from,
                                             size_t from_length,
                                             const char *to,
                                             size_t to_length,
                                             siskin_writing **out);

/// Sets one of `SISKIN_WRITING_...`. Ranges are looked at when it is used.
SISKIN_NODISCARD
siskin_error *siskin_writing_set(siskin_writing *writing,
                                 uint32_t option,
                                 double value);

/// What is done with texts that are too long for the model: `SISKIN_LONG_...`. Parts end where sentences do.
SISKIN_NODISCARD
siskin_error *siskin_writing_set_long(siskin_writing *writing,
                                      uint32_t long_,
                                      size_t overlap);

/// What stands before each text, such as the name of a task.
SISKIN_NODISCARD
siskin_error *siskin_writing_set_before(siskin_writing *writing,
                                        const char *before,
                                        size_t length);

/// How tokens are chosen where there is one beam, which is copied.
SISKIN_NODISCARD
siskin_error *siskin_writing_set_sampler(siskin_writing *writing,
                                         const siskin_sampler *sampler);

/// Frees it. Null is nothing.
void siskin_writing_free(siskin_writing *writing);

// Writers ---------------------------------------------------------------------------------------------

/// Writes texts for texts: translations, summaries, continuations. One call at a time may be at work on it, from any
/// thread. Freed with `siskin_writer_free`.
typedef struct siskin_writer siskin_writer;

/// A text that was written. Set `struct_size` before the call. Pointers are good until the next call that changes the
/// writer.
typedef struct siskin_written {
    /// `sizeof(siskin_written)`.
    size_t struct_size;
    /// The text; UTF-8, without a zero.
    const char *text;
    /// Bytes of that.
    size_t length;
    /// Its tokens.
    const uint32_t *tokens;
    /// How many those are.
    size_t token_count;
    /// How likely it is by its length: higher is better.
    double score;
    /// Whether the model ended it; otherwise there was room for no more.
    bool ended;
} siskin_written;

/// Opens a writer. `rows` is how many texts or beams go on at the same time, 0: 32; `context` the most tokens of a
/// text with what stands before it, 0: the model's own, but no more than 1024.
///
/// Threads: any.
SISKIN_NODISCARD
siskin_error *siskin_writer_new(const siskin_model *model,
                                size_t rows,
                                size_t context,
                                siskin_writer **out);

/// Writes a text for each text; `siskin_writer_written` gives them. `writing` may be null: what the model's own
/// configuration asks for.
SISKIN_NODISCARD
siskin_error *siskin_writer_write(siskin_writer *writer,
                                  const siskin_texts *texts,
                                  const siskin_writing *writing);

/// How many texts were written for text `index`.
SISKIN_NODISCARD
siskin_error *siskin_writer_count(const siskin_writer *writer,
                                  size_t index,
                                  size_t *count);

/// Text `rank` of those that were written for text `index`, the best first.
SISKIN_NODISCARD
siskin_error *siskin_writer_written(const siskin_writer *writer,
                                    size_t index,
                                    size_t rank,
                                    siskin_written *out);

/// Stops the running call, or the next one, within milliseconds: it gives `SISKIN_ERROR_CANCELLED`.
///
/// Threads: any, at any time while the writer is there.
SISKIN_NODISCARD siskin_error *siskin_writer_stop(const siskin_writer *writer);

/// Makes the means to stop the writer, which may outlive it.
///
/// Threads: any, at any time while the writer is there.
SISKIN_NODISCARD siskin_error *siskin_writer_stopper(const siskin_writer *writer, siskin_stop **out);

/// Frees a writer. Null is nothing. One that a call is at work on stays as it is.
void siskin_writer_free(siskin_writer *writer);

// Transcribers ----------------------------------------------------------------------------------------

/// 1: write English, whatever is spoken.
#define SISKIN_TRANSCRIBE_TRANSLATE 1

/// 1: cut the text into segments with times.
#define SISKIN_TRANSCRIBE_TIMESTAMPS 2

/// How many texts go on at the same time, of which the likeliest is taken.
#define SISKIN_TRANSCRIBE_BEAMS 3

/// 1: let the model see the text of the windows before.
#define SISKIN_TRANSCRIBE_PREVIOUS 4

/// The probability from which a window is silent, unless its text is likely.
#define SISKIN_TRANSCRIBE_SILENCE 5

/// The most tokens of a window.
#define SISKIN_TRANSCRIBE_MAX_TOKENS 6

/// Writes down what is said. One call at a time may be at work on it, from any thread. Freed with
/// `siskin_transcriber_free`.
typedef struct siskin_transcriber siskin_transcriber;

/// A part of a sound, and what is said in it. Set `struct_size` before the call. The text is good until the next call
/// that changes the transcriber.
typedef struct siskin_segment {
    /// `sizeof(siskin_segment)`.
    size_t struct_size;
    /// What is said; UTF-8, without a zero.
    const char *text;
    /// Bytes of that.
    size_t length;
    /// Where it begins, in seconds.
    double start;
    /// Where it ends, in seconds.
    double end;
    /// The mean logarithm of the probabilities of its window's tokens.
    float log_probability;
    /// The probability that its window is silent.
    float silence;
} siskin_segment;

/// Opens a transcriber, for models that listen.
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

/// The language that is spoken, such as `en`; empty, as usual: what the model hears.
SISKIN_NODISCARD
siskin_error *siskin_transcriber_set_language(siskin_transcriber *transcriber,
                                              const char *language,
                                              size_t length);

/// What might have been said before: names and words that the sound may hold. Empty: nothing.
SISKIN_NODISCARD
siskin_error *siskin_transcriber_set_prompt(siskin_transcriber *transcriber,
                                            const char *prompt,
                                            size_t length);

/// Writes down one channel of sound with `rate` samples in a second, full scale being -1 to 1.
SISKIN_NODISCARD
siskin_error *siskin_transcriber_hear(siskin_transcriber *transcriber,
                                      const float *samples,
                                      size_t count,
                                      uint32_t rate);

/// The same of little-endian 16-bit samples, `channels` of them for each moment.
SISKIN_NODISCARD
siskin_error *siskin_transcriber_hear_pcm16(siskin_transcriber *transcriber,
                                            const uint8_t *bytes,
                                            size_t length,
                                            uint32_t rate,
                                            uint16_t channels);

/// The same of the bytes of a WAVE file.
SISKIN_NODISCARD
siskin_error *siskin_transcriber_hear_wav(siskin_transcriber *transcriber,
                                          const uint8_t *bytes,
                                          size_t length);

/// The whole text, and the language that is spoken, which is empty where that is not known. Both are good until the next
/// call that changes the transcriber.
SISKIN_NODISCARD
siskin_error *siskin_transcriber_text(const siskin_transcriber *transcriber,
                                      const char **text,
                                      size_t *length,
                                      const char **language,
                                      size_t *language_length);

/// How many segments there are.
SISKIN_NODISCARD
siskin_error *siskin_transcriber_count(const siskin_transcriber *transcriber,
                                       size_t *count);

/// Segment `index`, in their order.
SISKIN_NODISCARD
siskin_error *siskin_transcriber_segment(const siskin_transcriber *transcriber,
                                         size_t index,
                                         siskin_segment *out);

/// Stops the running call, or the next one, within milliseconds: it gives `SISKIN_ERROR_CANCELLED`.
///
/// Threads: any, at any time while the transcriber is there.
SISKIN_NODISCARD siskin_error *siskin_transcriber_stop(const siskin_transcriber *transcriber);

/// Makes the means to stop the transcriber, which may outlive it.
///
/// Threads: any, at any time while the transcriber is there.
SISKIN_NODISCARD
siskin_error *siskin_transcriber_stopper(const siskin_transcriber *transcriber,
                                         siskin_stop **out);

/// Frees a transcriber. Null is nothing. One that a call is at work on stays as it is.
void siskin_transcriber_free(siskin_transcriber *transcriber);

#ifdef __cplusplus
}
#endif

#endif
