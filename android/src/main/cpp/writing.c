// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Generation options of writers.
#include "bridge.h"

#define MODEL(value) HANDLE(const siskin_model, value)
#define WRITING(value) HANDLE(siskin_writing, value)

static jlong writing_new(JNIEnv *env, TYPE, jlong model) {
    siskin_writing *writing = NULL;
    failed(env, siskin_writing_new(MODEL(model), &writing));
    return (jlong)(intptr_t)writing;
}

static jlong writing_new_summary(JNIEnv *env, TYPE, jlong model) {
    siskin_writing *writing = NULL;
    failed(env, siskin_writing_new_summary(MODEL(model), &writing));
    return (jlong)(intptr_t)writing;
}

static jlong writing_new_translation(JNIEnv *env, TYPE, jlong model, jbyteArray from, jbyteArray to) {
    siskin_writing *writing = NULL;
    struct bytes source, target;
    if (!take_bytes(env, from, &source)) return 0;
    if (take_bytes(env, to, &target)) {
        failed(env, siskin_writing_new_translation(MODEL(model), source.data, source.length, target.data,
                                                   target.length, &writing));
        drop_bytes(&target);
    }
    drop_bytes(&source);
    return (jlong)(intptr_t)writing;
}

static void writing_set(JNIEnv *env, TYPE, jlong writing, jint option, jdouble value) {
    failed(env, siskin_writing_set(WRITING(writing), (uint32_t)option, value));
}

static void writing_set_long(JNIEnv *env, TYPE, jlong writing, jint kind, jint overlap) {
    failed(env, siskin_writing_set_long(WRITING(writing), (uint32_t)kind, (size_t)overlap));
}

static void writing_set_before(JNIEnv *env, TYPE, jlong writing, jbyteArray before) {
    struct bytes text;
    if (!take_bytes(env, before, &text)) return;
    failed(env, siskin_writing_set_before(WRITING(writing), text.data, text.length));
    drop_bytes(&text);
}

static void writing_set_sampler(JNIEnv *env, TYPE, jlong writing, jlong sampler) {
    failed(env, siskin_writing_set_sampler(WRITING(writing), HANDLE(const siskin_sampler, sampler)));
}

static void writing_free(__attribute__((unused)) JNIEnv *env, TYPE, jlong writing) {
    siskin_writing_free(WRITING(writing));
}

static const JNINativeMethod METHODS[] = {
    METHOD("create", "(J)J", writing_new),
    METHOD("createSummary", "(J)J", writing_new_summary),
    METHOD("createTranslation", "(J[B[B)J", writing_new_translation),
    METHOD("set", "(JID)V", writing_set),
    METHOD("setLong", "(JII)V", writing_set_long),
    METHOD("setBefore", "(J[B)V", writing_set_before),
    METHOD("setSampler", "(JJ)V", writing_set_sampler),
    METHOD("free", "(J)V", writing_free),
};

NATIVES(natives_writing, "NativeWriting", METHODS);
