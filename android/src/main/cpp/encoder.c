// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Encoders. Every function encodes the texts and returns all results.
#include "bridge.h"

#define ENCODER(value) HANDLE(siskin_encoder, value)

static jlong encoder_new(JNIEnv *env, TYPE, jlong model, jboolean head, jint batch, jint cache) {
    siskin_encoder *encoder = NULL;
    const siskin_model *of = HANDLE(const siskin_model, model);
    failed(env, siskin_encoder_new(of, head, (size_t)batch, (uint32_t)cache, &encoder));
    return (jlong)(intptr_t)encoder;
}

static jlong encoder_stopper(JNIEnv *env, TYPE, jlong encoder) {
    siskin_stop *stop = NULL;
    failed(env, siskin_encoder_stopper(ENCODER(encoder), &stop));
    return (jlong)(intptr_t)stop;
}

static void set_long(JNIEnv *env, TYPE, jlong encoder, jint kind, jint overlap) {
    failed(env, siskin_encoder_set_long(ENCODER(encoder), (uint32_t)kind, (size_t)overlap));
}

static void set_pooling(JNIEnv *env, TYPE, jlong encoder, jint pooling, jboolean normalize, jint columns) {
    failed(env, siskin_encoder_set_pooling(ENCODER(encoder), (uint32_t)pooling, normalize, (size_t)columns));
}

static jobjectArray vectors(JNIEnv *env, siskin_encoder *encoder, jsize count) {
    jobjectArray all = (*env)->NewObjectArray(env, count, known.floats, NULL);
    for (jsize i = 0; all != NULL && i < count; i++) {
        const float *values = NULL;
        size_t columns = 0;
        if (failed(env, siskin_encoder_vector(encoder, (size_t)i, &values, &columns))) return NULL;
        jfloatArray vector = give_floats(env, values, columns);
        if (vector == NULL) return NULL;
        (*env)->SetObjectArrayElement(env, all, i, vector);
        (*env)->DeleteLocalRef(env, vector);
    }
    return all;
}

static jobjectArray embed(JNIEnv *env, TYPE, jlong encoder, jobjectArray array) {
    siskin_texts *texts = take_texts(env, array);
    if (texts == NULL) return NULL;
    bool bad = failed(env, siskin_encoder_embed(ENCODER(encoder), texts));
    siskin_texts_free(texts);
    return bad ? NULL : vectors(env, ENCODER(encoder), (*env)->GetArrayLength(env, array));
}

// Packs the results of one text. Returns false if it threw.
static bool pack_found(JNIEnv *env, struct packer *packer, const siskin_encoder *encoder, size_t index, size_t count) {
    pack_u32(packer, (uint32_t)count);
    for (size_t rank = 0; rank < count; rank++) {
        siskin_found found = {.struct_size = sizeof found};
        if (failed(env, siskin_encoder_found(encoder, index, rank, &found))) return false;
        pack_bytes(packer, found.text, found.length);
        pack_u32(packer, (uint32_t)found.start);
        pack_u32(packer, (uint32_t)found.end);
        pack_f32(packer, found.score);
        pack_u32(packer, found.token);
    }
    return true;
}

// Packs the results of all texts, preceded by their count.
static jbyteArray all_found(JNIEnv *env, const siskin_encoder *encoder, size_t texts) {
    struct packer packer;
    pack_begin(&packer);
    pack_u32(&packer, (uint32_t)texts);
    for (size_t index = 0; index < texts; index++) {
        size_t count = 0;
        if (failed(env, siskin_encoder_found_count(encoder, index, &count)) ||
            !pack_found(env, &packer, encoder, index, count)) {
            pack_drop(&packer);
            return NULL;
        }
    }
    return pack_end(env, &packer);
}

static jbyteArray find(JNIEnv *env, jlong encoder, jobjectArray array,
                       siskin_error *(*read)(siskin_encoder *, const siskin_texts *)) {
    siskin_texts *texts = take_texts(env, array);
    if (texts == NULL) return NULL;
    bool bad = failed(env, read(ENCODER(encoder), texts));
    siskin_texts_free(texts);
    return bad ? NULL : all_found(env, ENCODER(encoder), (size_t)(*env)->GetArrayLength(env, array));
}

static jbyteArray ask(JNIEnv *env, jlong encoder, jbyteArray question, jobjectArray array,
                      siskin_error *(*read)(siskin_encoder *, const char *, size_t, const siskin_texts *)) {
    struct bytes asked;
    if (!take_bytes(env, question, &asked)) return NULL;
    siskin_texts *texts = take_texts(env, array);
    bool bad = texts == NULL || failed(env, read(ENCODER(encoder), asked.data, asked.length, texts));
    siskin_texts_free(texts);
    drop_bytes(&asked);
    return bad ? NULL : all_found(env, ENCODER(encoder), (size_t)(*env)->GetArrayLength(env, array));
}

static jbyteArray classify(JNIEnv *env, TYPE, jlong encoder, jobjectArray texts) {
    return find(env, encoder, texts, siskin_encoder_classify);
}

static jbyteArray tag(JNIEnv *env, TYPE, jlong encoder, jobjectArray texts) {
    return find(env, encoder, texts, siskin_encoder_tag);
}

static jbyteArray rerank(JNIEnv *env, TYPE, jlong encoder, jbyteArray question, jobjectArray texts) {
    return ask(env, encoder, question, texts, siskin_encoder_rerank);
}

static jbyteArray answer(JNIEnv *env, TYPE, jlong encoder, jbyteArray question, jobjectArray texts) {
    return ask(env, encoder, question, texts, siskin_encoder_answer);
}

static jbyteArray fill_mask(JNIEnv *env, TYPE, jlong encoder, jbyteArray array, jint count) {
    struct bytes text;
    if (!take_bytes(env, array, &text)) return NULL;
    bool bad = failed(env, siskin_encoder_fill_mask(ENCODER(encoder), text.data, text.length, (size_t)count));
    drop_bytes(&text);
    size_t places = 0;
    bad = bad || failed(env, siskin_encoder_found_places(ENCODER(encoder), &places));
    return bad ? NULL : all_found(env, ENCODER(encoder), places);
}

static void encoder_free(__attribute__((unused)) JNIEnv *env, TYPE, jlong encoder) {
    siskin_encoder_free(ENCODER(encoder));
}

static const JNINativeMethod METHODS[] = {
    METHOD("create", "(JZII)J", encoder_new),
    METHOD("stopper", "(J)J", encoder_stopper),
    METHOD("setLong", "(JII)V", set_long),
    METHOD("setPooling", "(JIZI)V", set_pooling),
    METHOD("embed", "(J[[B)[[F", embed),
    METHOD("classify", "(J[[B)[B", classify),
    METHOD("rerank", "(J[B[[B)[B", rerank),
    METHOD("tag", "(J[[B)[B", tag),
    METHOD("answer", "(J[B[[B)[B", answer),
    METHOD("fillMask", "(J[BI)[B", fill_mask),
    METHOD("free", "(J)V", encoder_free),
};

NATIVES(natives_encoder, "NativeEncoder", METHODS);
