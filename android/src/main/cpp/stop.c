// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Cancellation from any thread.
#include "bridge.h"

static void stop_now(JNIEnv *env, TYPE, jlong stop) {
    failed(env, siskin_stop_now(HANDLE(siskin_stop, stop)));
}

static void stop_withdraw(JNIEnv *env, TYPE, jlong stop) {
    failed(env, siskin_stop_withdraw(HANDLE(siskin_stop, stop)));
}

static void stop_free(__attribute__((unused)) JNIEnv *env, TYPE, jlong stop) {
    siskin_stop_free(HANDLE(siskin_stop, stop));
}

static const JNINativeMethod METHODS[] = {
    METHOD("now", "(J)V", stop_now),
    METHOD("withdraw", "(J)V", stop_withdraw),
    METHOD("free", "(J)V", stop_free),
};

NATIVES(natives_stop, "NativeStop", METHODS);
