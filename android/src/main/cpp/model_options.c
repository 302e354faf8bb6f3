// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Options for opening a model.
#include "bridge.h"
#include <stdlib.h>

#define OPTIONS(value) HANDLE(siskin_model_options, value)

static jlong options_new(JNIEnv *env, CLASS) {
    siskin_model_options *options = NULL;
    throw_if_error(env, siskin_model_options_new(&options));
    return (jlong)(intptr_t)options;
}

static void set_threads(JNIEnv *env, CLASS, jlong options, jint threads) {
    throw_if_error(env, siskin_model_options_set_threads(OPTIONS(options), (uint32_t)threads));
}

static void set_device(JNIEnv *env, CLASS, jlong options, jint device) {
    throw_if_error(env, siskin_model_options_set_device(OPTIONS(options), (uint32_t)device));
}

static void set_skip_layers(JNIEnv *env, CLASS, jlong options, jintArray layers) {
    uint32_t *ids;
    size_t count;
    if (!read_ids(env, layers, &ids, &count)) return;
    throw_if_error(env, siskin_model_options_set_skip_layers(OPTIONS(options), ids, count));
    free(ids);
}

static void set_adapter(JNIEnv *env, CLASS, jlong options, jbyteArray path, jboolean any_base) {
    struct bytes text;
    if (!read_bytes(env, path, &text)) return;
    throw_if_error(env, siskin_model_options_set_adapter(OPTIONS(options), text.data, text.length, any_base));
    free_bytes(&text);
}

static void set_cache(JNIEnv *env, CLASS, jlong options, jint cache) {
    throw_if_error(env, siskin_model_options_set_cache_mode(OPTIONS(options), (uint32_t)cache));
}

// Sets one of the string options.
static void set_string(JNIEnv *env, jlong options, jbyteArray array,
                       siskin_error *(*set)(siskin_model_options *, const char *, size_t)) {
    struct bytes text;
    if (!read_bytes(env, array, &text)) return;
    throw_if_error(env, set(OPTIONS(options), text.data, text.length));
    free_bytes(&text);
}

static void set_disabled_cpu_features(JNIEnv *env, CLASS, jlong options, jbyteArray names) {
    set_string(env, options, names, siskin_model_options_set_disabled_cpu_features);
}

static void set_cache_folder(JNIEnv *env, CLASS, jlong options, jbyteArray path) {
    set_string(env, options, path, siskin_model_options_set_cache_folder);
}

static void set_recipe(JNIEnv *env, CLASS, jlong options, jbyteArray recipe) {
    set_string(env, options, recipe, siskin_model_options_set_recipe);
}

static bool on_progress(void *user, uint64_t done, uint64_t total) {
    bool attached;
    JNIEnv *env = attach(&attached);
    if (env == NULL) return false;
    jboolean continues = (*env)->CallBooleanMethod(env, user, jvm.on_progress, (jlong)done, (jlong)total);
    // The sink stores exceptions of its listener. Any other exception aborts packing.
    if ((*env)->ExceptionCheck(env)) {
        (*env)->ExceptionClear(env);
        continues = JNI_FALSE;
    }
    detach(attached);
    return continues;
}

static void set_progress(JNIEnv *env, CLASS, jlong options, jobject sink) {
    void *retained = sink == NULL ? NULL : retain_object(env, sink);
    siskin_progress_function function = retained == NULL ? NULL : on_progress;
    throw_if_error(env, siskin_model_options_set_progress(OPTIONS(options), function, retained, release_object));
}

static void options_free(UNUSED_ENV, CLASS, jlong options) {
    siskin_model_options_free(OPTIONS(options));
}

static const JNINativeMethod METHODS[] = {
    METHOD("create", "()J", options_new),
    METHOD("setThreads", "(JI)V", set_threads),
    METHOD("setDisabledCpuFeatures", "(J[B)V", set_disabled_cpu_features),
    METHOD("setDevice", "(JI)V", set_device),
    METHOD("setSkipLayers", "(J[I)V", set_skip_layers),
    METHOD("setAdapter", "(J[BZ)V", set_adapter),
    METHOD("setCache", "(JI)V", set_cache),
    METHOD("setCacheFolder", "(J[B)V", set_cache_folder),
    METHOD("setRecipe", "(J[B)V", set_recipe),
    METHOD("setProgress", "(JLai/siskin/ProgressSink;)V", set_progress),
    METHOD("free", "(J)V", options_free),
};

NATIVES(natives_model_options, "NativeModelOptions", METHODS);
