// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Conversion of JVM arrays.
#include "bridge.h"
#include <stdlib.h>
#include <string.h>

bool take_bytes(JNIEnv *env, jbyteArray array, struct bytes *bytes) {
    bytes->data = NULL;
    bytes->length = array == NULL ? 0 : (size_t)(*env)->GetArrayLength(env, array);
    if (bytes->length == 0) return true;
    bytes->data = bytes->length <= sizeof bytes->small ? bytes->small : malloc(bytes->length);
    if (bytes->data == NULL) {
        no_memory(env);
        return false;
    }
    (*env)->GetByteArrayRegion(env, array, 0, (jsize)bytes->length, bytes->data);
    return true;
}

void drop_bytes(struct bytes *bytes) {
    if (bytes->data != bytes->small) free(bytes->data);
}

bool take_ids(JNIEnv *env, jintArray array, uint32_t **ids, size_t *count) {
    *ids = NULL;
    *count = array == NULL ? 0 : (size_t)(*env)->GetArrayLength(env, array);
    if (*count == 0) return true;
    *ids = malloc(*count * sizeof **ids);
    if (*ids == NULL) {
        no_memory(env);
        return false;
    }
    (*env)->GetIntArrayRegion(env, array, 0, (jsize)*count, (jint *)*ids);
    return true;
}

static bool add_text(JNIEnv *env, siskin_texts *texts, jobjectArray array, jsize index) {
    struct bytes text;
    jbyteArray element = (*env)->GetObjectArrayElement(env, array, index);
    if ((*env)->ExceptionCheck(env) || !take_bytes(env, element, &text)) return false;
    bool added = !failed(env, siskin_texts_add(texts, text.data, text.length));
    drop_bytes(&text);
    (*env)->DeleteLocalRef(env, element);
    return added;
}

siskin_texts *take_texts(JNIEnv *env, jobjectArray array) {
    siskin_texts *texts = NULL;
    if (failed(env, siskin_texts_new(&texts))) return NULL;
    jsize count = (*env)->GetArrayLength(env, array);
    for (jsize i = 0; i < count; i++) {
        if (add_text(env, texts, array, i)) continue;
        siskin_texts_free(texts);
        return NULL;
    }
    return texts;
}

const uint8_t *direct_bytes(JNIEnv *env, jobject buffer, jlong offset, jlong length) {
    const uint8_t *start = (*env)->GetDirectBufferAddress(env, buffer);
    jlong capacity = (*env)->GetDirectBufferCapacity(env, buffer);
    if (start != NULL && offset >= 0 && length >= 0 && offset <= capacity && length <= capacity - offset) {
        return start + offset;
    }
    jclass type = (*env)->FindClass(env, "java/lang/IllegalArgumentException");
    if (type != NULL) (*env)->ThrowNew(env, type, "the buffer is not a direct one, or too short");
    return NULL;
}

void pack_begin(struct packer *packer) {
    packer->data = packer->small;
    packer->length = 0;
    packer->capacity = sizeof packer->small;
    packer->failed = false;
}

static void pack(struct packer *packer, const void *bytes, size_t length) {
    if (packer->failed || length == 0) return;
    if (length > packer->capacity - packer->length) {
        size_t capacity = packer->capacity;
        while (length > capacity - packer->length && capacity <= SIZE_MAX / 2) capacity *= 2;
        bool moves = packer->data == packer->small;
        uint8_t *more = length > capacity - packer->length ? NULL : realloc(moves ? NULL : packer->data, capacity);
        packer->failed = more == NULL;
        if (packer->failed) return;
        if (moves) memcpy(more, packer->small, packer->length);
        packer->data = more;
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
        no_memory(env);
    } else {
        array = give_bytes(env, packer->data, packer->length);
    }
    pack_drop(packer);
    return array;
}

void pack_drop(struct packer *packer) {
    if (packer->data != packer->small) free(packer->data);
    packer->data = packer->small;
}

// Returns whether `count` elements fit into an array.
static bool fits(JNIEnv *env, size_t count) {
    if (count > INT32_MAX) no_memory(env);
    return count <= INT32_MAX;
}

jbyteArray give_bytes(JNIEnv *env, const void *bytes, size_t length) {
    if (!fits(env, length)) return NULL;
    jbyteArray array = (*env)->NewByteArray(env, (jsize)length);
    if (array != NULL && length > 0) (*env)->SetByteArrayRegion(env, array, 0, (jsize)length, bytes);
    return array;
}

jintArray give_ids(JNIEnv *env, const uint32_t *ids, size_t count) {
    if (!fits(env, count)) return NULL;
    jintArray array = (*env)->NewIntArray(env, (jsize)count);
    if (array != NULL && count > 0) (*env)->SetIntArrayRegion(env, array, 0, (jsize)count, (const jint *)ids);
    return array;
}

jfloatArray give_floats(JNIEnv *env, const float *values, size_t count) {
    if (!fits(env, count)) return NULL;
    jfloatArray array = (*env)->NewFloatArray(env, (jsize)count);
    if (array != NULL && count > 0) (*env)->SetFloatArrayRegion(env, array, 0, (jsize)count, values);
    return array;
}

jbyteArray give_memory(JNIEnv *env, const siskin_memory *memory) {
    struct packer packer;
    pack_begin(&packer);
    pack_u64(&packer, memory->activations);
    pack_u64(&packer, memory->cache);
    pack_u64(&packer, memory->mapped);
    return pack_end(env, &packer);
}
