// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Conversion between JVM arrays and native values.
#include "bridge.h"
#include <stdlib.h>
#include <string.h>

bool read_bytes(JNIEnv *env, jbyteArray array, struct bytes *bytes) {
    bytes->data = NULL;
    bytes->length = array == NULL ? 0 : (size_t)(*env)->GetArrayLength(env, array);
    if (bytes->length == 0) return true;
    bytes->data = bytes->length <= sizeof bytes->inline_data ? bytes->inline_data : malloc(bytes->length);
    if (bytes->data == NULL) {
        throw_out_of_memory(env);
        return false;
    }
    (*env)->GetByteArrayRegion(env, array, 0, (jsize)bytes->length, bytes->data);
    return true;
}

void free_bytes(struct bytes *bytes) {
    if (bytes->data != bytes->inline_data) free(bytes->data);
}

bool read_ids(JNIEnv *env, jintArray array, uint32_t **ids, size_t *count) {
    *ids = NULL;
    *count = array == NULL ? 0 : (size_t)(*env)->GetArrayLength(env, array);
    if (*count == 0) return true;
    *ids = malloc(*count * sizeof **ids);
    if (*ids == NULL) {
        throw_out_of_memory(env);
        return false;
    }
    (*env)->GetIntArrayRegion(env, array, 0, (jsize)*count, (jint *)*ids);
    return true;
}

static bool add_string(JNIEnv *env, siskin_strings *texts, jobjectArray array, jsize index) {
    struct bytes text;
    jbyteArray element = (*env)->GetObjectArrayElement(env, array, index);
    if ((*env)->ExceptionCheck(env) || !read_bytes(env, element, &text)) return false;
    bool added = !throw_if_error(env, siskin_strings_add(texts, text.data, text.length));
    free_bytes(&text);
    (*env)->DeleteLocalRef(env, element);
    return added;
}

siskin_strings *read_strings(JNIEnv *env, jobjectArray array) {
    siskin_strings *texts = NULL;
    if (throw_if_error(env, siskin_strings_new(&texts))) return NULL;
    jsize count = (*env)->GetArrayLength(env, array);
    for (jsize i = 0; i < count; i++) {
        if (add_string(env, texts, array, i)) continue;
        siskin_strings_free(texts);
        return NULL;
    }
    return texts;
}

const uint8_t *direct_buffer(JNIEnv *env, jobject buffer, jlong offset, jlong length) {
    const uint8_t *start = (*env)->GetDirectBufferAddress(env, buffer);
    jlong capacity = (*env)->GetDirectBufferCapacity(env, buffer);
    if (start != NULL && offset >= 0 && length >= 0 && offset <= capacity && length <= capacity - offset) {
        return start + offset;
    }
    jclass class = (*env)->FindClass(env, "java/lang/IllegalArgumentException");
    if (class != NULL) (*env)->ThrowNew(env, class, "the buffer is not direct, or too short");
    return NULL;
}

void pack_begin(struct packer *packer) {
    packer->data = packer->inline_data;
    packer->length = 0;
    packer->capacity = sizeof packer->inline_data;
    packer->failed = false;
}

static void pack(struct packer *packer, const void *bytes, size_t length) {
    if (packer->failed || length == 0) return;
    if (length > packer->capacity - packer->length) {
        size_t capacity = packer->capacity;
        while (length > capacity - packer->length && capacity <= SIZE_MAX / 2) capacity *= 2;
        bool is_inline = packer->data == packer->inline_data;
        uint8_t *grown = length > capacity - packer->length ? NULL : realloc(is_inline ? NULL : packer->data, capacity);
        packer->failed = grown == NULL;
        if (packer->failed) return;
        if (is_inline) memcpy(grown, packer->inline_data, packer->length);
        packer->data = grown;
        packer->capacity = capacity;
    }
    memcpy(packer->data + packer->length, bytes, length);
    packer->length += length;
}

void pack_u32(struct packer *packer, uint32_t value) {
    pack(packer, &value, sizeof value);
}

void pack_u64(struct packer *packer, uint64_t value) {
    pack(packer, &value, sizeof value);
}

void pack_f32(struct packer *packer, float value) {
    pack(packer, &value, sizeof value);
}

void pack_f64(struct packer *packer, double value) {
    pack(packer, &value, sizeof value);
}

void pack_bytes(struct packer *packer, const void *bytes, size_t length) {
    if (length > INT32_MAX) packer->failed = true;
    pack_u32(packer, (uint32_t)length);
    pack(packer, bytes, length);
}

void pack_ids(struct packer *packer, const uint32_t *ids, size_t count) {
    if (count > INT32_MAX / sizeof *ids) packer->failed = true;
    pack_u32(packer, (uint32_t)count);
    pack(packer, ids, count * sizeof *ids);
}

jbyteArray pack_end(JNIEnv *env, struct packer *packer) {
    jbyteArray array = NULL;
    if (packer->failed) {
        throw_out_of_memory(env);
    } else {
        array = new_byte_array(env, packer->data, packer->length);
    }
    pack_free(packer);
    return array;
}

void pack_free(struct packer *packer) {
    if (packer->data != packer->inline_data) free(packer->data);
    packer->data = packer->inline_data;
}

// Throws unless `count` elements fit in an array. Returns whether they fit.
static bool fits(JNIEnv *env, size_t count) {
    if (count > INT32_MAX) throw_out_of_memory(env);
    return count <= INT32_MAX;
}

jbyteArray new_byte_array(JNIEnv *env, const void *bytes, size_t length) {
    if (!fits(env, length)) return NULL;
    jbyteArray array = (*env)->NewByteArray(env, (jsize)length);
    if (array != NULL && length > 0) (*env)->SetByteArrayRegion(env, array, 0, (jsize)length, bytes);
    return array;
}

jintArray new_int_array(JNIEnv *env, const uint32_t *ids, size_t count) {
    if (!fits(env, count)) return NULL;
    jintArray array = (*env)->NewIntArray(env, (jsize)count);
    if (array != NULL && count > 0) (*env)->SetIntArrayRegion(env, array, 0, (jsize)count, (const jint *)ids);
    return array;
}

jfloatArray new_float_array(JNIEnv *env, const float *values, size_t count) {
    if (!fits(env, count)) return NULL;
    jfloatArray array = (*env)->NewFloatArray(env, (jsize)count);
    if (array != NULL && count > 0) (*env)->SetFloatArrayRegion(env, array, 0, (jsize)count, values);
    return array;
}

jbyteArray new_text_chunk(JNIEnv *env, const siskin_text_chunk *chunk) {
    struct packer packer;
    pack_begin(&packer);
    pack_u32(&packer, chunk->done);
    pack_u32(&packer, (uint32_t)chunk->finish_reason);
    pack_u32(&packer, chunk->has_token);
    pack_u32(&packer, chunk->token);
    pack_f32(&packer, chunk->log_probability);
    pack_bytes(&packer, chunk->text, chunk->length);
    pack_bytes(&packer, chunk->bytes, chunk->byte_count);
    pack_u32(&packer, (uint32_t)chunk->top_count);
    for (size_t i = 0; i < chunk->top_count; i++) {
        pack_u32(&packer, chunk->top[i].token);
        pack_f32(&packer, chunk->top[i].log_probability);
    }
    return pack_end(env, &packer);
}

jbyteArray new_memory_usage(JNIEnv *env, const siskin_memory_usage *memory) {
    struct packer packer;
    pack_begin(&packer);
    pack_u64(&packer, memory->activations);
    pack_u64(&packer, memory->kv_cache);
    pack_u64(&packer, memory->mapped_file);
    return pack_end(env, &packer);
}
