// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Models.
#include "bridge.h"
#include <stdlib.h>

#define MODEL(value) HANDLE(const siskin_model, value)
#define OPTIONS(value) HANDLE(const siskin_model_options, value)

static jlong open_path(JNIEnv *env, CLASS, jbyteArray path, jlong options) {
    struct bytes text;
    siskin_model *model = NULL;
    if (!read_bytes(env, path, &text)) return 0;
    throw_if_error(env, siskin_model_open(text.data, text.length, OPTIONS(options), &model));
    free_bytes(&text);
    return (jlong)(intptr_t)model;
}

static jlong open_file_descriptor(JNIEnv *env, CLASS, jint descriptor, jlong offset, jlong length, jlong options) {
    siskin_model *model = NULL;
    throw_if_error(env, siskin_model_open_descriptor(descriptor, (uint64_t)offset, (uint64_t)length, OPTIONS(options),
                                                     &model));
    return (jlong)(intptr_t)model;
}

static jlong open_copy(JNIEnv *env, CLASS, jbyteArray array, jlong options) {
    struct bytes bytes;
    siskin_model *model = NULL;
    if (!read_bytes(env, array, &bytes)) return 0;
    throw_if_error(env, siskin_model_open_copy(bytes.data, bytes.length, OPTIONS(options), &model));
    free_bytes(&bytes);
    return (jlong)(intptr_t)model;
}

// The buffer stays reachable until the library releases it.
static jlong open_buffer(JNIEnv *env, CLASS, jobject buffer, jlong offset, jlong length, jlong options) {
    siskin_model *model = NULL;
    const uint8_t *bytes = direct_buffer(env, buffer, offset, length);
    if (bytes == NULL) return 0;
    void *retained = retain_object(env, buffer);
    if (retained == NULL) {
        throw_out_of_memory(env);
        return 0;
    }
    throw_if_error(env, siskin_model_open_memory(bytes, (size_t)length, retained, release_object, OPTIONS(options),
                                                 &model));
    return (jlong)(intptr_t)model;
}

static jbyteArray describe(JNIEnv *env, CLASS, jlong model) {
    siskin_model_info info = {.struct_size = sizeof info};
    struct packer packer;
    if (throw_if_error(env, siskin_model_describe(MODEL(model), &info))) return NULL;
    pack_begin(&packer);
    pack_bytes(&packer, info.family, info.family_length);
    pack_u64(&packer, info.context_length);
    pack_u64(&packer, info.vocabulary_size);
    pack_u64(&packer, info.hidden_size);
    pack_u64(&packer, info.file_size);
    pack_u32(&packer, info.threads);
    pack_u32(&packer, info.capabilities);
    pack_u32(&packer, (uint32_t)info.warning_count);
    for (size_t i = 0; i < info.warning_count; i++) {
        const char *text = NULL;
        size_t length = 0;
        if (throw_if_error(env, siskin_model_warning(MODEL(model), i, &text, &length))) {
            pack_free(&packer);
            return NULL;
        }
        pack_bytes(&packer, text, length);
    }
    return pack_end(env, &packer);
}

static jbyteArray session_memory(JNIEnv *env, CLASS, jlong model, jlong options) {
    siskin_memory_usage memory = {.struct_size = sizeof memory};
    const siskin_session_options *session_options = HANDLE(const siskin_session_options, options);
    if (throw_if_error(env, siskin_model_session_memory(MODEL(model), session_options, &memory))) return NULL;
    return new_memory_usage(env, &memory);
}

static jintArray tokenize(JNIEnv *env, CLASS, jlong model, jbyteArray array, jboolean add_special) {
    struct bytes text;
    uint32_t inline_ids[256], *ids = inline_ids;
    size_t count = 0;
    jintArray result = NULL;
    if (!read_bytes(env, array, &text)) return NULL;
    bool threw = throw_if_error(env, siskin_model_tokenize(MODEL(model), text.data, text.length, add_special,
                                                           inline_ids, LENGTH(inline_ids), &count));
    if (!threw && count > LENGTH(inline_ids)) {
        size_t capacity = count;
        ids = malloc(capacity * sizeof *ids);
        threw = ids == NULL;
        if (threw) throw_out_of_memory(env);
        threw = threw || throw_if_error(env, siskin_model_tokenize(MODEL(model), text.data, text.length, add_special,
                                                                   ids, capacity, &count));
    }
    if (!threw) result = new_int_array(env, ids, count);
    if (ids != inline_ids) free(ids);
    free_bytes(&text);
    return result;
}

static jbyteArray token_bytes(JNIEnv *env, CLASS, jlong model, jint id) {
    const uint8_t *bytes = NULL;
    size_t length = 0;
    if (throw_if_error(env, siskin_model_token_bytes(MODEL(model), (uint32_t)id, &bytes, &length))) return NULL;
    return new_byte_array(env, bytes, length);
}

static void verify(JNIEnv *env, CLASS, jlong model) {
    throw_if_error(env, siskin_model_verify(MODEL(model)));
}

static void model_free(UNUSED_ENV, CLASS, jlong model) {
    siskin_model_free(HANDLE(siskin_model, model));
}

static const JNINativeMethod METHODS[] = {
    METHOD("open", "([BJ)J", open_path),
    METHOD("openFileDescriptor", "(IJJJ)J", open_file_descriptor),
    METHOD("openCopy", "([BJ)J", open_copy),
    METHOD("openBuffer", "(Ljava/nio/ByteBuffer;JJJ)J", open_buffer),
    METHOD("describe", "(J)[B", describe),
    METHOD("sessionMemory", "(JJ)[B", session_memory),
    METHOD("tokenize", "(J[BZ)[I", tokenize),
    METHOD("tokenBytes", "(JI)[B", token_bytes),
    METHOD("verify", "(J)V", verify),
    METHOD("free", "(J)V", model_free),
};

NATIVES(natives_model, "NativeModel", METHODS);
