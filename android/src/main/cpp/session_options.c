// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Options of sessions.
#include "bridge.h"

#define OPTIONS(value) HANDLE(siskin_session_options, value)

static jlong options_new(JNIEnv *env, CLASS) {
    siskin_session_options *options = NULL;
    throw_if_error(env, siskin_session_options_new(&options));
    return (jlong)(intptr_t)options;
}

static void set_context(JNIEnv *env, CLASS, jlong options, jint tokens) {
    throw_if_error(env, siskin_session_options_set_context(OPTIONS(options), (size_t)tokens));
}

static void set_max_batch_tokens(JNIEnv *env, CLASS, jlong options, jint tokens) {
    throw_if_error(env, siskin_session_options_set_max_batch_tokens(OPTIONS(options), (size_t)tokens));
}

static void set_memory_budget(JNIEnv *env, CLASS, jlong options, jlong bytes) {
    throw_if_error(env, siskin_session_options_set_memory_budget(OPTIONS(options), (uint64_t)bytes));
}

static void set_window(JNIEnv *env, CLASS, jlong options, jint window, jint sinks) {
    throw_if_error(env, siskin_session_options_set_window(OPTIONS(options), (size_t)window, (size_t)sinks));
}

static void set_kv_cache_type(JNIEnv *env, CLASS, jlong options, jint type) {
    throw_if_error(env, siskin_session_options_set_kv_cache_type(OPTIONS(options), (uint32_t)type));
}

static void set_max_tokens(JNIEnv *env, CLASS, jlong options, jint tokens) {
    throw_if_error(env, siskin_session_options_set_max_tokens(OPTIONS(options), (size_t)tokens));
}

static void set_sampler(JNIEnv *env, CLASS, jlong options, jlong sampler) {
    throw_if_error(env, siskin_session_options_set_sampler(OPTIONS(options), HANDLE(const siskin_sampler, sampler)));
}

static void add_stop_string(JNIEnv *env, CLASS, jlong options, jbyteArray array) {
    struct bytes text;
    if (!read_bytes(env, array, &text)) return;
    throw_if_error(env, siskin_session_options_add_stop_string(OPTIONS(options), text.data, text.length));
    free_bytes(&text);
}

static void options_free(UNUSED_ENV, CLASS, jlong options) {
    siskin_session_options_free(OPTIONS(options));
}

static const JNINativeMethod METHODS[] = {
    METHOD("create", "()J", options_new),
    METHOD("setContext", "(JI)V", set_context),
    METHOD("setMaxBatchTokens", "(JI)V", set_max_batch_tokens),
    METHOD("setMemoryBudget", "(JJ)V", set_memory_budget),
    METHOD("setWindow", "(JII)V", set_window),
    METHOD("setKvCacheType", "(JI)V", set_kv_cache_type),
    METHOD("setMaxTokens", "(JI)V", set_max_tokens),
    METHOD("setSampler", "(JJ)V", set_sampler),
    METHOD("addStopString", "(J[B)V", add_stop_string),
    METHOD("free", "(J)V", options_free),
};

NATIVES(natives_session_options, "NativeSessionOptions", METHODS);
