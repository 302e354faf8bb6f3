// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Models.
#include "bridge.h"
#include <stdlib.h>

#define MODEL(value) HANDLE(const siskin_model, value)
#define OPTIONS(value) HANDLE(const siskin_model_options, value)

static jlong open_path(JNIEnv *env, TYPE, jbyteArray path, jlong options) {
    struct bytes text;
    siskin_model *model = NULL;
    if (!take_bytes(env, path, &text)) return 0;
    failed(env, siskin_model_open(text.data, text.length, OPTIONS(options), &model));
    drop_bytes(&text);
    return (jlong)(intptr_t)model;
}

static jlong open_descriptor(JNIEnv *env, TYPE, jint descriptor, jlong offset, jlong length, jlong options) {
    siskin_model *model = NULL;
    failed(env, siskin_model_open_descriptor(descriptor, (uint64_t)offset, (uint64_t)length, OPTIONS(options), &model));
    return (jlong)(intptr_t)model;
}

static jlong open_copy(JNIEnv *env, TYPE, jbyteArray array, jlong options) {
    struct bytes bytes;
    siskin_model *model = NULL;
    if (!take_bytes(env, array, &bytes)) return 0;
    failed(env, siskin_model_open_copy(bytes.data, bytes.length, OPTIONS(options), &model));
    drop_bytes(&bytes);
    return (jlong)(intptr_t)model;
}

// The buffer is kept alive until the library releases it.
static jlong open_memory(JNIEnv *env, TYPE, jobject buffer, jlong offset, jlong length, jlong options) {
    siskin_model *model = NULL;
    const uint8_t *bytes = direct_bytes(env, buffer, offset, length);
    if (bytes == NULL) return 0;
    void *held = hold(env, buffer);
    if (held == NULL) {
        no_memory(env);
        return 0;
    }
    failed(env, siskin_model_open_memory(bytes, (size_t)length, held, let_go, OPTIONS(options), &model));
    return (jlong)(intptr_t)model;
}

static jbyteArray describe(JNIEnv *env, TYPE, jlong model) {
    siskin_model_info info = {.struct_size = sizeof info};
    struct packer packer;
    if (failed(env, siskin_model_describe(MODEL(model), &info))) return NULL;
    pack_begin(&packer);
    pack_bytes(&packer, info.family, info.family_length);
    pack_u64(&packer, info.context);
    pack_u64(&packer, info.vocabulary);
    pack_u64(&packer, info.width);
    pack_u64(&packer, info.bytes);
    pack_u32(&packer, info.threads);
    pack_u32(&packer, info.abilities);
    pack_u32(&packer, (uint32_t)info.notes);
    for (size_t i = 0; i < info.notes; i++) {
        const char *text = NULL;
        size_t length = 0;
        if (failed(env, siskin_model_note(MODEL(model), i, &text, &length))) {
            pack_drop(&packer);
            return NULL;
        }
        pack_bytes(&packer, text, length);
    }
    return pack_end(env, &packer);
}

static jbyteArray plan(JNIEnv *env, TYPE, jlong model, jlong options) {
    siskin_memory memory = {.struct_size = sizeof memory};
    const siskin_session_options *session = HANDLE(const siskin_session_options, options);
    if (failed(env, siskin_model_plan(MODEL(model), session, &memory))) return NULL;
    return give_memory(env, &memory);
}

static jintArray tokenize(JNIEnv *env, TYPE, jlong model, jbyteArray array, jboolean special) {
    struct bytes text;
    uint32_t small[256], *ids = small;
    size_t count = 0;
    jintArray answer = NULL;
    if (!take_bytes(env, array, &text)) return NULL;
    bool bad = failed(env, siskin_model_tokenize(MODEL(model), text.data, text.length, special, small, LENGTH(small), &count));
    if (!bad && count > LENGTH(small)) {
        size_t capacity = count;
        ids = malloc(capacity * sizeof *ids);
        bad = ids == NULL;
        if (bad) no_memory(env);
        bad = bad || failed(env, siskin_model_tokenize(MODEL(model), text.data, text.length, special, ids, capacity, &count));
    }
    if (!bad) answer = give_ids(env, ids, count);
    if (ids != small) free(ids);
    drop_bytes(&text);
    return answer;
}

static jbyteArray token(JNIEnv *env, TYPE, jlong model, jint id) {
    const uint8_t *bytes = NULL;
    size_t length = 0;
    if (failed(env, siskin_model_token(MODEL(model), (uint32_t)id, &bytes, &length))) return NULL;
    return give_bytes(env, bytes, length);
}

static void verify(JNIEnv *env, TYPE, jlong model) {
    failed(env, siskin_model_verify(MODEL(model)));
}

static void model_free(__attribute__((unused)) JNIEnv *env, TYPE, jlong model) {
    siskin_model_free(HANDLE(siskin_model, model));
}

static const JNINativeMethod METHODS[] = {
    METHOD("open", "([BJ)J", open_path),
    METHOD("openDescriptor", "(IJJJ)J", open_descriptor),
    METHOD("openCopy", "([BJ)J", open_copy),
    METHOD("openMemory", "(Ljava/nio/ByteBuffer;JJJ)J", open_memory),
    METHOD("describe", "(J)[B", describe),
    METHOD("plan", "(JJ)[B", plan),
    METHOD("tokenize", "(J[BZ)[I", tokenize),
    METHOD("token", "(JI)[B", token),
    METHOD("verify", "(J)V", verify),
    METHOD("free", "(J)V", model_free),
};

NATIVES(natives_model, "NativeModel", METHODS);
