// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the files of the bridge share. One file per handle, as in ffi/src, with a table of its functions at its end;
// bridge.c has the list of tables. Every function of Kotlin's is one of these, registered when the library is loaded, so
// that a name or a signature that is wrong is found there.
//
// Handles are `jlong`: Kotlin's `Owner` keeps them, and sees to it that no call gets one that was freed. Texts come as
// `byte[]` of UTF-8 and go as such. What has several parts goes as one `byte[]`: `packer`, which Kotlin's `Unpacker`
// reads. A function that fails throws, and what it returns then means nothing.
#ifndef SISKIN_BRIDGE_H
#define SISKIN_BRIDGE_H

#include <jni.h>
#include <siskin.h>

// The class that a static function belongs to, which none of them needs.
#define TYPE __attribute__((unused)) jclass type
#define HANDLE(kind, value) ((kind *)(intptr_t)(value))
#define LENGTH(array) (sizeof(array) / sizeof *(array))
#define METHOD(name, signature, function) {(char *)(name), (char *)(signature), (void *)(function)}

// The functions of one class of Kotlin's.
struct natives {
    const char *type;
    const JNINativeMethod *methods;
    size_t count;
};

#define NATIVES(name, java, methods) const struct natives name = {"ai/siskin/" java, methods, LENGTH(methods)}

extern const struct natives natives_encoder, natives_governor, natives_log, natives_model, natives_model_options,
    natives_sampler, natives_session, natives_session_options, natives_session_state, natives_stop,
    natives_testing, natives_transcriber, natives_version, natives_writer, natives_writing;

// Classes and methods of Java's and Kotlin's, found when the library is loaded.
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

// Whether it failed; then Kotlin's exception for it is thrown, and the error freed.
bool failed(JNIEnv *env, siskin_error *error);

// Throws Java's error for memory that was not there.
void no_memory(JNIEnv *env);

// bridge.c: threads of the library, which Java need not know

// The environment of this thread. Whether `detach` must follow is put into `attached`.
JNIEnv *attach(bool *attached);

void detach(bool attached);

// A reference that holds an object until `let_go`, which fits `siskin_release`.
void *hold(JNIEnv *env, jobject object);

void let_go(void *held);

// values.c: what comes in

// The bytes of an array. `data` is null, and nothing is to be freed, where there are none.
struct bytes {
    void *data;
    size_t length;
    char small[256];
};

// Copies an array, which may be null. False where it threw.
bool take_bytes(JNIEnv *env, jbyteArray array, struct bytes *bytes);

void drop_bytes(struct bytes *bytes);

// Copies the ids of an array. Freed with `free`. False where it threw.
bool take_ids(JNIEnv *env, jintArray array, uint32_t **ids, size_t *count);

// A batch of the texts of an array, or null where it threw.
siskin_texts *take_texts(JNIEnv *env, jobjectArray array);

// The memory of a direct buffer from `offset` on, `length` bytes. Null where it is too short or of another kind; then it
// threw.
const uint8_t *direct_bytes(JNIEnv *env, jobject buffer, jlong offset, jlong length);

// values.c: what goes out

// Several values, one behind the other, in the order of bytes that the processor has.
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
// Bytes with their count before them.
void pack_bytes(struct packer *packer, const void *bytes, size_t length);
// Ids with their count before them.
void pack_ids(struct packer *packer, const uint32_t *ids, size_t count);
// The array of what was packed, which is freed; null where it threw.
jbyteArray pack_end(JNIEnv *env, struct packer *packer);
// Frees what was packed.
void pack_drop(struct packer *packer);

jbyteArray give_bytes(JNIEnv *env, const void *bytes, size_t length);
jintArray give_ids(JNIEnv *env, const uint32_t *ids, size_t count);
jfloatArray give_floats(JNIEnv *env, const float *values, size_t count);

// What a plan or a session says of memory.
jbyteArray give_memory(JNIEnv *env, const siskin_memory *memory);

#endif
