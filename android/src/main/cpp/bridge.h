// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Shared declarations of the bridge. One file per handle, as in ffi/src, with a table of its native methods at its end;
// bridge.c lists the tables. Every Kotlin `external` function is registered when the library is loaded, so that a wrong
// name or signature fails there.
//
// Handles are `jlong`: Kotlin's `Owner` keeps them and guarantees that no call gets a freed one. Texts are passed as
// `byte[]` of UTF-8 in both directions. Compound results are one `byte[]`: written by `packer`, read by Kotlin's
// `Unpacker`. A function that fails throws, and its return value is then meaningless.
#ifndef SISKIN_BRIDGE_H
#define SISKIN_BRIDGE_H

#include <jni.h>
#include <siskin.h>

// The class parameter of a static native method, which is unused.
#define TYPE __attribute__((unused)) jclass type
#define HANDLE(kind, value) ((kind *)(intptr_t)(value))
#define LENGTH(array) (sizeof(array) / sizeof *(array))
#define METHOD(name, signature, function) {(char *)(name), (char *)(signature), (void *)(function)}

// The native methods of one Kotlin class.
struct natives {
    const char *type;
    const JNINativeMethod *methods;
    size_t count;
};

#define NATIVES(name, java, methods) const struct natives name = {"ai/siskin/" java, methods, LENGTH(methods)}

extern const struct natives natives_encoder, natives_governor, natives_log, natives_model, natives_model_options,
    natives_sampler, natives_session, natives_session_options, natives_session_state, natives_stop,
    natives_testing, natives_transcriber, natives_version, natives_writer, natives_writing;

// JVM classes and methods, looked up when the library is loaded.
struct known {
    JavaVM *vm;
    jclass errors;
    jmethodID errors_of;
    jclass floats;
    jmethodID progress;
    jmethodID message;
};

extern struct known known;

// bridge.c: errors

// Returns whether the call failed; if so, the Kotlin exception is thrown and the error freed.
bool failed(JNIEnv *env, siskin_error *error);

// Throws `OutOfMemoryError`.
void no_memory(JNIEnv *env);

// bridge.c: library threads, which may not be attached to the JVM

// Returns the JNI environment of this thread. `attached` is set if `detach` must follow.
JNIEnv *attach(bool *attached);

void detach(bool attached);

// Creates a global reference that keeps an object alive until `let_go`, which fits `siskin_release`.
void *hold(JNIEnv *env, jobject object);

void let_go(void *held);

// values.c: arguments

// The bytes of an array. `data` is null, and must not be freed, if the array is empty.
struct bytes {
    void *data;
    size_t length;
    char small[256];
};

// Copies an array, which may be null. Returns false if it threw.
bool take_bytes(JNIEnv *env, jbyteArray array, struct bytes *bytes);

void drop_bytes(struct bytes *bytes);

// Copies the ids of an array. Freed with `free`. Returns false if it threw.
bool take_ids(JNIEnv *env, jintArray array, uint32_t **ids, size_t *count);

// Copies an array of texts to a batch; null if it threw.
siskin_texts *take_texts(JNIEnv *env, jobjectArray array);

// Returns the memory of a direct buffer: `length` bytes from `offset`. Null if it is too short or not direct; then it
// threw.
const uint8_t *direct_bytes(JNIEnv *env, jobject buffer, jlong offset, jlong length);

// values.c: results

// Several values, concatenated in native byte order.
struct packer {
    uint8_t *data;
    size_t length;
    size_t capacity;
    bool failed;
    uint8_t small[512];
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
// Returns the packed values as an array and frees the packer; null if it threw.
jbyteArray pack_end(JNIEnv *env, struct packer *packer);
// Frees the packer.
void pack_drop(struct packer *packer);

jbyteArray give_bytes(JNIEnv *env, const void *bytes, size_t length);
jintArray give_ids(JNIEnv *env, const uint32_t *ids, size_t count);
jfloatArray give_floats(JNIEnv *env, const float *values, size_t count);

// Packs the memory use of a plan or session.
jbyteArray give_memory(JNIEnv *env, const siskin_memory *memory);

#endif
