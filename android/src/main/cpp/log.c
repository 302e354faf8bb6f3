// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Log messages.
#include "bridge.h"

static void on_message(void *user, siskin_log_level level, const char *text, size_t length) {
    bool attached;
    JNIEnv *env = attach(&attached);
    if (env == NULL) return;
    jbyteArray bytes = new_byte_array(env, text, length);
    if (bytes != NULL) (*env)->CallVoidMethod(env, user, jvm.on_log_message, (jint)level, bytes);
    // The sink catches exceptions of its listener. Any other exception has no caller to propagate to.
    (*env)->ExceptionClear(env);
    if (bytes != NULL) (*env)->DeleteLocalRef(env, bytes);
    detach(attached);
}

static void log_set(JNIEnv *env, CLASS, jobject sink) {
    void *retained = sink == NULL ? NULL : retain_object(env, sink);
    throw_if_error(env, siskin_log_set(retained == NULL ? NULL : on_message, retained, release_object));
}

static const JNINativeMethod METHODS[] = {
    METHOD("set", "(Lai/siskin/LogSink;)V", log_set),
};

NATIVES(natives_log, "NativeLog", METHODS);
