// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Log messages of the whole library.
#include "bridge.h"

static void on_message(void *user, int32_t level, const char *text, size_t length) {
    bool attached;
    JNIEnv *env = attach(&attached);
    if (env == NULL) return;
    jbyteArray bytes = give_bytes(env, text, length);
    if (bytes != NULL) (*env)->CallVoidMethod(env, user, known.message, (jint)level, bytes);
    // The sink stores exceptions of its listener; any other exception is cleared, since there is no caller to receive
    // it.
    (*env)->ExceptionClear(env);
    if (bytes != NULL) (*env)->DeleteLocalRef(env, bytes);
    detach(attached);
}

static void log_set(JNIEnv *env, TYPE, jobject sink) {
    void *held = sink == NULL ? NULL : hold(env, sink);
    failed(env, siskin_log_set(held == NULL ? NULL : on_message, held, let_go));
}

static const JNINativeMethod METHODS[] = {
    METHOD("set", "(Lai/siskin/LogSink;)V", log_set),
};

NATIVES(natives_log, "NativeLog", METHODS);
