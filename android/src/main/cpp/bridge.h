// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Declarations shared by the files of the JNI bridge. There is one file per handle, which ends with a table of its
// native methods; bridge.c lists the tables and registers them when the library is loaded, so that a wrong name or
// signature fails there. generated/options.c has the tables of options.
//
// Handles are passed as `jlong`. Kotlin's `NativePointer` owns them and guarantees that no call receives a freed one.
// Strings are passed as `byte[]` of UTF-8 in both directions. Compound results are one `byte[]`, written by `struct
// packer` and read by Kotlin's `Unpacker`. The return value of a function that throws is ignored.
#ifndef SISKIN_BRIDGE_H
#define SISKIN_BRIDGE_H

#include <jni.h>
#include <siskin.h>

// The parameters of static native methods that a function does not use.
#define UNUSED_ENV __attribute__((unused)) JNIEnv *env
#define CLASS __attribute__((unused)) jclass class
#define HANDLE(type, value) ((type *)(intptr_t)(value))
#define LENGTH(array) (sizeof(array) / sizeof *(array))
#define METHOD(name, signature, function) {(char *)(name), (char *)(signature), (void *)(function)}

// The native methods of one Kotlin class.
struct natives {
    const char *class;
    const JNINativeMethod *methods;
    size_t count;
};

#define NATIVES(name, class, methods) const struct natives name = {"ai/siskin/" class, methods, LENGTH(methods)}

extern const struct natives natives_cancel_handle, natives_encoder, natives_engine, natives_generation, natives_log,
    natives_model, natives_progress, natives_seq2seq, natives_session, natives_session_state, natives_testing, natives_throttle, natives_transcriber,
    natives_version;

// generated/options.c
extern const struct natives natives_options[];
extern const size_t natives_options_count;

// Classes and methods of the JVM, looked up when the library is loaded.
struct jvm {
    JavaVM *vm;
    jclass errors;
    jmethodID create_error;
    jclass float_array;
    jmethodID on_progress;
    jmethodID on_segment;
    jmethodID on_log_message;
};

extern struct jvm jvm;

// bridge.c: errors

// Throws the exception for an error and frees the error. Returns whether there was one.
bool throw_if_error(JNIEnv *env, siskin_error *error);

// Throws `OutOfMemoryError`.
void throw_out_of_memory(JNIEnv *env);

// bridge.c: threads of the library, which are not attached to the JVM

// Returns the JNI environment of this thread. `attached` is set if `detach` must follow.
JNIEnv *attach(bool *attached);

void detach(bool attached);

// Returns a global reference, which keeps an object reachable until `release_object`.
void *retain_object(JNIEnv *env, jobject object);

// A `siskin_release_function`.
void release_object(void *object);

// values.c: arguments

// The bytes of an array. `data` is null if the array is empty.
struct bytes {
    void *data;
    size_t length;
    char inline_data[256];
};

// Copies an array, which may be null. Returns false if it threw; otherwise `free_bytes` must follow.
bool read_bytes(JNIEnv *env, jbyteArray array, struct bytes *bytes);

void free_bytes(struct bytes *bytes);

// Copies an array of token ids, which the caller frees with `free`. Returns false if it threw.
bool read_ids(JNIEnv *env, jintArray array, uint32_t **ids, size_t *count);

// Copies an array of strings. Returns null if it threw.
siskin_strings *read_strings(JNIEnv *env, jobjectArray array);

// Returns the memory of a direct buffer, `length` bytes from `offset`. Throws and returns null if the buffer is not
// direct or too short.
const uint8_t *direct_buffer(JNIEnv *env, jobject buffer, jlong offset, jlong length);

// values.c: results

// Several values, concatenated in native byte order.
struct packer {
    uint8_t *data;
    size_t length;
    size_t capacity;
    bool failed;
    uint8_t inline_data[512];
};

void pack_begin(struct packer *packer);
void pack_u32(struct packer *packer, uint32_t value);
void pack_u64(struct packer *packer, uint64_t value);
void pack_f32(struct packer *packer, float value);
void pack_f64(struct packer *packer, double value);
// Packs bytes, preceded by their count.
void pack_bytes(struct packer *packer, const void *bytes, size_t length);
// Packs ids, preceded by their count.
void pack_ids(struct packer *packer, const uint32_t *ids, size_t count);
// Returns the packed values as an array, and frees the packer. Returns null if it threw.
jbyteArray pack_end(JNIEnv *env, struct packer *packer);
// Frees the packer.
void pack_free(struct packer *packer);

jbyteArray new_byte_array(JNIEnv *env, const void *bytes, size_t length);
jintArray new_int_array(JNIEnv *env, const uint32_t *ids, size_t count);
jfloatArray new_float_array(JNIEnv *env, const float *values, size_t count);

// Packs the flags and numbers, the text, the bytes, and the most probable tokens of a chunk.
jbyteArray new_text_chunk(JNIEnv *env, const siskin_text_chunk *chunk);

// Packs the memory usage of a plan or session.
jbyteArray new_memory_usage(JNIEnv *env, const siskin_memory_usage *memory);

#endif
