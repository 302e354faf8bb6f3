// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Progress of opening a model.
#include "bridge.h"

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
    throw_if_error(env, siskin_model_options_set_progress(HANDLE(siskin_model_options, options), function, retained,
                                                          release_object));
}

static const JNINativeMethod METHODS[] = {
    METHOD("set", "(JLai/siskin/ProgressSink;)V", set_progress),
};

NATIVES(natives_progress, "NativeProgress", METHODS);
