// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Options of opening a model.
#include "bridge.h"
#include <stdlib.h>

#define OPTIONS(value) HANDLE(siskin_model_options, value)

static jlong options_new(JNIEnv *env, TYPE) {
    siskin_model_options *options = NULL;
    failed(env, siskin_model_options_new(&options));
    return (jlong)(intptr_t)options;
}

static void set_threads(JNIEnv *env, TYPE, jlong options, jint threads) {
    failed(env, siskin_model_options_set_threads(OPTIONS(options), (uint32_t)threads));
}

static void set_reference(JNIEnv *env, TYPE, jlong options, jboolean reference) {
    failed(env, siskin_model_options_set_reference(OPTIONS(options), reference));
}

static void set_skip(JNIEnv *env, TYPE, jlong options, jintArray layers) {
    uint32_t *ids;
    size_t count;
    if (!take_ids(env, layers, &ids, &count)) return;
    failed(env, siskin_model_options_set_skip(OPTIONS(options), ids, count));
    free(ids);
}

static void set_adapter(JNIEnv *env, TYPE, jlong options, jbyteArray path, jboolean any_base) {
    struct bytes text;
    if (!take_bytes(env, path, &text)) return;
    failed(env, siskin_model_options_set_adapter(OPTIONS(options), text.data, text.length, any_base));
    drop_bytes(&text);
}

static void set_cache(JNIEnv *env, TYPE, jlong options, jint cache) {
    failed(env, siskin_model_options_set_cache(OPTIONS(options), (uint32_t)cache));
}

// Sets one of the three text options.
static void set_text(JNIEnv *env, jlong options, jbyteArray array,
                     siskin_error *(*set)(siskin_model_options *, const char *, size_t)) {
    struct bytes text;
    if (!take_bytes(env, array, &text)) return;
    failed(env, set(OPTIONS(options), text.data, text.length));
    drop_bytes(&text);
}

static void set_without(JNIEnv *env, TYPE, jlong options, jbyteArray names) {
    set_text(env, options, names, siskin_model_options_set_without);
}

static void set_cache_folder(JNIEnv *env, TYPE, jlong options, jbyteArray path) {
    set_text(env, options, path, siskin_model_options_set_cache_folder);
}

static void set_recipe(JNIEnv *env, TYPE, jlong options, jbyteArray recipe) {
    set_text(env, options, recipe, siskin_model_options_set_recipe);
}

static bool on_progress(void *user, uint64_t done, uint64_t total) {
    bool attached;
    JNIEnv *env = attach(&attached);
    if (env == NULL) return false;
    jboolean on = (*env)->CallBooleanMethod(env, user, known.progress, (jlong)done, (jlong)total);
    // The sink stores exceptions of its listener; any other exception ends the work.
    if ((*env)->ExceptionCheck(env)) {
        (*env)->ExceptionClear(env);
        on = JNI_FALSE;
    }
    detach(attached);
    return on;
}

static void set_progress(JNIEnv *env, TYPE, jlong options, jobject sink) {
    void *held = sink == NULL ? NULL : hold(env, sink);
    failed(env, siskin_model_options_set_progress(OPTIONS(options), held == NULL ? NULL : on_progress, held, let_go));
}

static void options_free(__attribute__((unused)) JNIEnv *env, TYPE, jlong options) {
    siskin_model_options_free(OPTIONS(options));
}

static const JNINativeMethod METHODS[] = {
    METHOD("create", "()J", options_new),
    METHOD("setThreads", "(JI)V", set_threads),
    METHOD("setWithout", "(J[B)V", set_without),
    METHOD("setReference", "(JZ)V", set_reference),
    METHOD("setSkip", "(J[I)V", set_skip),
    METHOD("setAdapter", "(J[BZ)V", set_adapter),
    METHOD("setCache", "(JI)V", set_cache),
    METHOD("setCacheFolder", "(J[B)V", set_cache_folder),
    METHOD("setRecipe", "(J[B)V", set_recipe),
    METHOD("setProgress", "(JLai/siskin/ProgressSink;)V", set_progress),
    METHOD("free", "(J)V", options_free),
};

NATIVES(natives_model_options, "NativeModelOptions", METHODS);
