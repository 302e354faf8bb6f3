// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Generation by encoder–decoder models, in batches.
#include "bridge.h"

#define SEQ2SEQ(value) HANDLE(siskin_seq2seq, value)

static jlong seq2seq_new(JNIEnv *env, CLASS, jlong model, jint max_sequences, jint context) {
    siskin_seq2seq *seq2seq = NULL;
    throw_if_error(env, siskin_seq2seq_new(HANDLE(const siskin_model, model), (size_t)max_sequences, (size_t)context,
                                           &seq2seq));
    return (jlong)(intptr_t)seq2seq;
}

static jlong seq2seq_cancel_handle(JNIEnv *env, CLASS, jlong seq2seq) {
    siskin_cancel_handle *handle = NULL;
    throw_if_error(env, siskin_seq2seq_cancel_handle(SEQ2SEQ(seq2seq), &handle));
    return (jlong)(intptr_t)handle;
}

// Packs the texts that were generated for one input. Returns false if it threw.
static bool pack_generated(JNIEnv *env, struct packer *packer, const siskin_seq2seq *seq2seq, size_t index) {
    size_t count = 0;
    if (throw_if_error(env, siskin_seq2seq_text_count(seq2seq, index, &count))) return false;
    pack_u32(packer, (uint32_t)count);
    for (size_t rank = 0; rank < count; rank++) {
        siskin_generated_text text = {.struct_size = sizeof text};
        if (throw_if_error(env, siskin_seq2seq_text(seq2seq, index, rank, &text))) return false;
        pack_bytes(packer, text.text, text.length);
        pack_ids(packer, text.tokens, text.token_count);
        pack_f64(packer, text.score);
        pack_u32(packer, text.finish_reason);
    }
    return true;
}

static jbyteArray seq2seq_generate(JNIEnv *env, CLASS, jlong seq2seq, jobjectArray array, jlong options) {
    struct packer packer;
    siskin_strings *texts = read_strings(env, array);
    if (texts == NULL) return NULL;
    siskin_error *error = siskin_seq2seq_generate(SEQ2SEQ(seq2seq), texts, HANDLE(const siskin_seq2seq_options, options));
    siskin_strings_free(texts);
    if (throw_if_error(env, error)) return NULL;
    jsize count = (*env)->GetArrayLength(env, array);
    pack_begin(&packer);
    pack_u32(&packer, (uint32_t)count);
    for (jsize i = 0; i < count; i++) {
        if (pack_generated(env, &packer, SEQ2SEQ(seq2seq), (size_t)i)) continue;
        pack_free(&packer);
        return NULL;
    }
    return pack_end(env, &packer);
}

static void seq2seq_free(UNUSED_ENV, CLASS, jlong seq2seq) {
    siskin_seq2seq_free(SEQ2SEQ(seq2seq));
}

static const JNINativeMethod METHODS[] = {
    METHOD("create", "(JII)J", seq2seq_new),
    METHOD("cancelHandle", "(J)J", seq2seq_cancel_handle),
    METHOD("generate", "(J[[BJ)[B", seq2seq_generate),
    METHOD("free", "(J)V", seq2seq_free),
};

NATIVES(natives_seq2seq, "NativeSeq2Seq", METHODS);
