// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Encoders. Each task is one call, which returns all results.
#include "bridge.h"

#define ENCODER(value) HANDLE(siskin_encoder, value)

static jlong encoder_new(JNIEnv *env, CLASS, jlong model, jboolean use_head, jint max_batch_tokens,
                          jint cache_type) {
    siskin_encoder *encoder = NULL;
    throw_if_error(env, siskin_encoder_new(HANDLE(const siskin_model, model), use_head, (size_t)max_batch_tokens,
                                           (uint32_t)cache_type, &encoder));
    return (jlong)(intptr_t)encoder;
}

static jlong encoder_cancel_handle(JNIEnv *env, CLASS, jlong encoder) {
    siskin_cancel_handle *handle = NULL;
    throw_if_error(env, siskin_encoder_cancel_handle(ENCODER(encoder), &handle));
    return (jlong)(intptr_t)handle;
}

static void set_overflow_mode(JNIEnv *env, CLASS, jlong encoder, jint mode, jint overlap) {
    throw_if_error(env, siskin_encoder_set_overflow(ENCODER(encoder), (uint32_t)mode, (size_t)overlap));
}

static void set_pooling(JNIEnv *env, CLASS, jlong encoder, jint pooling, jboolean normalize, jint dimensions) {
    throw_if_error(env, siskin_encoder_set_pooling(ENCODER(encoder), (uint32_t)pooling, normalize, (size_t)dimensions));
}

static void set_early_exit(JNIEnv *env, CLASS, jlong encoder, jint criterion, jfloat threshold) {
    throw_if_error(env, siskin_encoder_set_early_exit(ENCODER(encoder), (uint32_t)criterion, threshold));
}

// Packs how many layers each text of the last call passed.
static jbyteArray layers(JNIEnv *env, CLASS, jlong encoder) {
    size_t count = 0;
    struct packer packer;
    if (throw_if_error(env, siskin_encoder_result_count(ENCODER(encoder), &count))) return NULL;
    pack_begin(&packer);
    pack_u32(&packer, (uint32_t)count);
    for (size_t i = 0; i < count; i++) {
        size_t passed = 0;
        if (throw_if_error(env, siskin_encoder_layers(ENCODER(encoder), i, &passed))) {
            pack_free(&packer);
            return NULL;
        }
        pack_u32(&packer, (uint32_t)passed);
    }
    return pack_end(env, &packer);
}

static jobjectArray new_vectors(JNIEnv *env, siskin_encoder *encoder, jsize count) {
    jobjectArray all = (*env)->NewObjectArray(env, count, jvm.float_array, NULL);
    for (jsize i = 0; all != NULL && i < count; i++) {
        const float *values = NULL;
        size_t dimensions = 0;
        if (throw_if_error(env, siskin_encoder_embedding(encoder, (size_t)i, &values, &dimensions))) return NULL;
        jfloatArray vector = new_float_array(env, values, dimensions);
        if (vector == NULL) return NULL;
        (*env)->SetObjectArrayElement(env, all, i, vector);
        (*env)->DeleteLocalRef(env, vector);
    }
    return all;
}

static jobjectArray embed(JNIEnv *env, CLASS, jlong encoder, jobjectArray array) {
    siskin_strings *texts = read_strings(env, array);
    if (texts == NULL) return NULL;
    bool threw = throw_if_error(env, siskin_encoder_embed(ENCODER(encoder), texts));
    siskin_strings_free(texts);
    return threw ? NULL : new_vectors(env, ENCODER(encoder), (*env)->GetArrayLength(env, array));
}

// Packs the predictions for one text. Returns false if it threw.
static bool pack_predictions(JNIEnv *env, struct packer *packer, const siskin_encoder *encoder, size_t index,
                             size_t count) {
    pack_u32(packer, (uint32_t)count);
    for (size_t rank = 0; rank < count; rank++) {
        siskin_prediction prediction = {.struct_size = sizeof prediction};
        if (throw_if_error(env, siskin_encoder_prediction(encoder, index, rank, &prediction))) return false;
        pack_bytes(packer, prediction.text, prediction.length);
        pack_u32(packer, (uint32_t)prediction.start);
        pack_u32(packer, (uint32_t)prediction.end);
        pack_f32(packer, prediction.score);
        pack_u32(packer, prediction.token);
    }
    return true;
}

// Returns the predictions for all texts, preceded by the number of texts.
static jbyteArray new_predictions(JNIEnv *env, const siskin_encoder *encoder, size_t texts) {
    struct packer packer;
    pack_begin(&packer);
    pack_u32(&packer, (uint32_t)texts);
    for (size_t index = 0; index < texts; index++) {
        size_t count = 0;
        if (throw_if_error(env, siskin_encoder_prediction_count(encoder, index, &count)) ||
            !pack_predictions(env, &packer, encoder, index, count)) {
            pack_free(&packer);
            return NULL;
        }
    }
    return pack_end(env, &packer);
}

static jbyteArray run(JNIEnv *env, jlong encoder, jobjectArray array,
                      siskin_error *(*task)(siskin_encoder *, const siskin_strings *)) {
    siskin_strings *texts = read_strings(env, array);
    if (texts == NULL) return NULL;
    bool threw = throw_if_error(env, task(ENCODER(encoder), texts));
    siskin_strings_free(texts);
    return threw ? NULL : new_predictions(env, ENCODER(encoder), (size_t)(*env)->GetArrayLength(env, array));
}

static jbyteArray run_with_query(JNIEnv *env, jlong encoder, jbyteArray query_array, jobjectArray array,
                                 siskin_error *(*task)(siskin_encoder *, const char *, size_t, const siskin_strings *)) {
    struct bytes query;
    if (!read_bytes(env, query_array, &query)) return NULL;
    siskin_strings *texts = read_strings(env, array);
    bool threw = texts == NULL || throw_if_error(env, task(ENCODER(encoder), query.data, query.length, texts));
    siskin_strings_free(texts);
    free_bytes(&query);
    return threw ? NULL : new_predictions(env, ENCODER(encoder), (size_t)(*env)->GetArrayLength(env, array));
}

static jbyteArray classify(JNIEnv *env, CLASS, jlong encoder, jobjectArray texts) {
    return run(env, encoder, texts, siskin_encoder_classify);
}

static jbyteArray tag(JNIEnv *env, CLASS, jlong encoder, jobjectArray texts) {
    return run(env, encoder, texts, siskin_encoder_tag);
}

static jbyteArray rerank(JNIEnv *env, CLASS, jlong encoder, jbyteArray query, jobjectArray documents) {
    return run_with_query(env, encoder, query, documents, siskin_encoder_rerank);
}

static jbyteArray answer(JNIEnv *env, CLASS, jlong encoder, jbyteArray question, jobjectArray contexts) {
    return run_with_query(env, encoder, question, contexts, siskin_encoder_answer);
}

static jbyteArray fill_mask(JNIEnv *env, CLASS, jlong encoder, jbyteArray array, jint count) {
    struct bytes text;
    if (!read_bytes(env, array, &text)) return NULL;
    bool threw = throw_if_error(env, siskin_encoder_fill_mask(ENCODER(encoder), text.data, text.length, (size_t)count));
    free_bytes(&text);
    size_t masks = 0;
    threw = threw || throw_if_error(env, siskin_encoder_result_count(ENCODER(encoder), &masks));
    return threw ? NULL : new_predictions(env, ENCODER(encoder), masks);
}

static void encoder_free(UNUSED_ENV, CLASS, jlong encoder) {
    siskin_encoder_free(ENCODER(encoder));
}

static const JNINativeMethod METHODS[] = {
    METHOD("create", "(JZII)J", encoder_new),
    METHOD("cancelHandle", "(J)J", encoder_cancel_handle),
    METHOD("setOverflowMode", "(JII)V", set_overflow_mode),
    METHOD("setPooling", "(JIZI)V", set_pooling),
    METHOD("setEarlyExit", "(JIF)V", set_early_exit),
    METHOD("layers", "(J)[B", layers),
    METHOD("embed", "(J[[B)[[F", embed),
    METHOD("classify", "(J[[B)[B", classify),
    METHOD("rerank", "(J[B[[B)[B", rerank),
    METHOD("tag", "(J[[B)[B", tag),
    METHOD("answer", "(J[B[[B)[B", answer),
    METHOD("fillMask", "(J[BI)[B", fill_mask),
    METHOD("free", "(J)V", encoder_free),
};

NATIVES(natives_encoder, "NativeEncoder", METHODS);
