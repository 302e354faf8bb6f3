// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Writers: batched text-to-text generation.
#include "bridge.h"

#define WRITER(value) HANDLE(siskin_writer, value)

static jlong writer_new(JNIEnv *env, TYPE, jlong model, jint rows, jint context) {
    siskin_writer *writer = NULL;
    failed(env, siskin_writer_new(HANDLE(const siskin_model, model), (size_t)rows, (size_t)context, &writer));
    return (jlong)(intptr_t)writer;
}

static jlong writer_stopper(JNIEnv *env, TYPE, jlong writer) {
    siskin_stop *stop = NULL;
    failed(env, siskin_writer_stopper(WRITER(writer), &stop));
    return (jlong)(intptr_t)stop;
}

// Packs the texts generated for one text. Returns false if it threw.
static bool pack_written(JNIEnv *env, struct packer *packer, const siskin_writer *writer, size_t index) {
    size_t count = 0;
    if (failed(env, siskin_writer_count(writer, index, &count))) return false;
    pack_u32(packer, (uint32_t)count);
    for (size_t rank = 0; rank < count; rank++) {
        siskin_written written = {.struct_size = sizeof written};
        if (failed(env, siskin_writer_written(writer, index, rank, &written))) return false;
        pack_bytes(packer, written.text, written.length);
        pack_ids(packer, written.tokens, written.token_count);
        pack_f64(packer, written.score);
        pack_u32(packer, written.ended);
    }
    return true;
}

static jbyteArray writer_write(JNIEnv *env, TYPE, jlong writer, jobjectArray array, jlong writing) {
    struct packer packer;
    siskin_texts *texts = take_texts(env, array);
    if (texts == NULL) return NULL;
    const siskin_writing *how = HANDLE(const siskin_writing, writing);
    bool bad = failed(env, siskin_writer_write(WRITER(writer), texts, how));
    siskin_texts_free(texts);
    if (bad) return NULL;
    jsize count = (*env)->GetArrayLength(env, array);
    pack_begin(&packer);
    pack_u32(&packer, (uint32_t)count);
    for (jsize i = 0; i < count; i++) {
        if (pack_written(env, &packer, WRITER(writer), (size_t)i)) continue;
        pack_drop(&packer);
        return NULL;
    }
    return pack_end(env, &packer);
}

static void writer_free(__attribute__((unused)) JNIEnv *env, TYPE, jlong writer) {
    siskin_writer_free(WRITER(writer));
}

static const JNINativeMethod METHODS[] = {
    METHOD("create", "(JII)J", writer_new),
    METHOD("stopper", "(J)J", writer_stopper),
    METHOD("write", "(J[[BJ)[B", writer_write),
    METHOD("free", "(J)V", writer_free),
};

NATIVES(natives_writer, "NativeWriter", METHODS);
