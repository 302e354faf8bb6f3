// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Functions of libraries with the feature `ffi-testing`, which panic, fail and block. Not part of shipped packages.
#include "bridge.h"

siskin_error *siskin_testing_panic(siskin_session *session);
siskin_error *siskin_testing_error(int32_t code);
siskin_error *siskin_testing_hold(siskin_session *session, uint32_t milliseconds);

static void testing_panic(JNIEnv *env, CLASS, jlong session) {
    throw_if_error(env, siskin_testing_panic(HANDLE(siskin_session, session)));
}

static void testing_error(JNIEnv *env, CLASS, jint code) {
    throw_if_error(env, siskin_testing_error(code));
}

static void testing_hold(JNIEnv *env, CLASS, jlong session, jint milliseconds) {
    throw_if_error(env, siskin_testing_hold(HANDLE(siskin_session, session), (uint32_t)milliseconds));
}

static const JNINativeMethod METHODS[] = {
    METHOD("panic", "(J)V", testing_panic),
    METHOD("error", "(I)V", testing_error),
    METHOD("hold", "(JI)V", testing_hold),
};

NATIVES(natives_testing, "NativeTesting", METHODS);
