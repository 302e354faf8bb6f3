// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Generation options of encoder–decoder models.
#include "bridge.h"

#define MODEL(value) HANDLE(const siskin_model, value)
#define OPTIONS(value) HANDLE(siskin_seq2seq_options, value)

static jlong options_new(JNIEnv *env, CLASS, jlong model) {
    siskin_seq2seq_options *options = NULL;
    throw_if_error(env, siskin_seq2seq_options_new(MODEL(model), &options));
    return (jlong)(intptr_t)options;
}

static jlong options_new_summary(JNIEnv *env, CLASS, jlong model) {
    siskin_seq2seq_options *options = NULL;
    throw_if_error(env, siskin_seq2seq_options_new_summary(MODEL(model), &options));
    return (jlong)(intptr_t)options;
}

static jlong options_new_translation(JNIEnv *env, CLASS, jlong model, jbyteArray from, jbyteArray to) {
    siskin_seq2seq_options *options = NULL;
    struct bytes source, target;
    if (!read_bytes(env, from, &source)) return 0;
    if (read_bytes(env, to, &target)) {
        throw_if_error(env, siskin_seq2seq_options_new_translation(MODEL(model), source.data, source.length, target.data,
                                                           target.length, &options));
        free_bytes(&target);
    }
    free_bytes(&source);
    return (jlong)(intptr_t)options;
}

static void options_set(JNIEnv *env, CLASS, jlong options, jint option, jdouble value) {
    throw_if_error(env, siskin_seq2seq_options_set(OPTIONS(options), (uint32_t)option, value));
}

static void set_overflow_mode(JNIEnv *env, CLASS, jlong options, jint mode, jint overlap) {
    throw_if_error(env, siskin_seq2seq_options_set_overflow(OPTIONS(options), (uint32_t)mode, (size_t)overlap));
}

static void set_prefix(JNIEnv *env, CLASS, jlong options, jbyteArray prefix) {
    struct bytes text;
    if (!read_bytes(env, prefix, &text)) return;
    throw_if_error(env, siskin_seq2seq_options_set_prefix(OPTIONS(options), text.data, text.length));
    free_bytes(&text);
}

static void set_sampler(JNIEnv *env, CLASS, jlong options, jlong sampler) {
    throw_if_error(env, siskin_seq2seq_options_set_sampler(OPTIONS(options), HANDLE(const siskin_sampler, sampler)));
}

static void options_free(UNUSED_ENV, CLASS, jlong options) {
    siskin_seq2seq_options_free(OPTIONS(options));
}

static const JNINativeMethod METHODS[] = {
    METHOD("create", "(J)J", options_new),
    METHOD("createSummary", "(J)J", options_new_summary),
    METHOD("createTranslation", "(J[B[B)J", options_new_translation),
    METHOD("set", "(JID)V", options_set),
    METHOD("setOverflowMode", "(JII)V", set_overflow_mode),
    METHOD("setPrefix", "(J[B)V", set_prefix),
    METHOD("setSampler", "(JJ)V", set_sampler),
    METHOD("free", "(J)V", options_free),
};

NATIVES(natives_seq2seq_options, "NativeSeq2SeqOptions", METHODS);
