// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Options of sessions.
#include "bridge.h"

#define OPTIONS(value) HANDLE(siskin_session_options, value)

static jlong options_new(JNIEnv *env, TYPE) {
    siskin_session_options *options = NULL;
    failed(env, siskin_session_options_new(&options));
    return (jlong)(intptr_t)options;
}

static void set_context(JNIEnv *env, TYPE, jlong options, jint tokens) {
    failed(env, siskin_session_options_set_context(OPTIONS(options), (size_t)tokens));
}

static void set_batch(JNIEnv *env, TYPE, jlong options, jint tokens) {
    failed(env, siskin_session_options_set_batch(OPTIONS(options), (size_t)tokens));
}

static void set_budget(JNIEnv *env, TYPE, jlong options, jlong bytes) {
    failed(env, siskin_session_options_set_budget(OPTIONS(options), (uint64_t)bytes));
}

static void set_window(JNIEnv *env, TYPE, jlong options, jint recent, jint first) {
    failed(env, siskin_session_options_set_window(OPTIONS(options), (size_t)recent, (size_t)first));
}

static void set_cache_type(JNIEnv *env, TYPE, jlong options, jint kind) {
    failed(env, siskin_session_options_set_cache_type(OPTIONS(options), (uint32_t)kind));
}

static void set_max_tokens(JNIEnv *env, TYPE, jlong options, jint tokens) {
    failed(env, siskin_session_options_set_max_tokens(OPTIONS(options), (size_t)tokens));
}

static void set_sampler(JNIEnv *env, TYPE, jlong options, jlong sampler) {
    failed(env, siskin_session_options_set_sampler(OPTIONS(options), HANDLE(const siskin_sampler, sampler)));
}

static void add_stop(JNIEnv *env, TYPE, jlong options, jbyteArray stop) {
    struct bytes text;
    if (!take_bytes(env, stop, &text)) return;
    failed(env, siskin_session_options_add_stop(OPTIONS(options), text.data, text.length));
    drop_bytes(&text);
}

static void options_free(__attribute__((unused)) JNIEnv *env, TYPE, jlong options) {
    siskin_session_options_free(OPTIONS(options));
}

static const JNINativeMethod METHODS[] = {
    METHOD("create", "()J", options_new),
    METHOD("setContext", "(JI)V", set_context),
    METHOD("setBatch", "(JI)V", set_batch),
    METHOD("setBudget", "(JJ)V", set_budget),
    METHOD("setWindow", "(JII)V", set_window),
    METHOD("setCacheType", "(JI)V", set_cache_type),
    METHOD("setMaxTokens", "(JI)V", set_max_tokens),
    METHOD("setSampler", "(JJ)V", set_sampler),
    METHOD("addStop", "(J[B)V", add_stop),
    METHOD("free", "(J)V", options_free),
};

NATIVES(natives_session_options, "NativeSessionOptions", METHODS);
