// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Cancellation from any thread.
#include "bridge.h"

#define CANCEL_HANDLE(value) HANDLE(siskin_cancel_handle, value)

static void cancel_handle_cancel(JNIEnv *env, CLASS, jlong handle) {
    throw_if_error(env, siskin_cancel_handle_cancel(CANCEL_HANDLE(handle)));
}

static void cancel_handle_reset(JNIEnv *env, CLASS, jlong handle) {
    throw_if_error(env, siskin_cancel_handle_reset(CANCEL_HANDLE(handle)));
}

static void cancel_handle_free(UNUSED_ENV, CLASS, jlong handle) {
    siskin_cancel_handle_free(CANCEL_HANDLE(handle));
}

static const JNINativeMethod METHODS[] = {
    METHOD("cancel", "(J)V", cancel_handle_cancel),
    METHOD("reset", "(J)V", cancel_handle_reset),
    METHOD("free", "(J)V", cancel_handle_free),
};

NATIVES(natives_cancel_handle, "NativeCancelHandle", METHODS);
