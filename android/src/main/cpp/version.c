// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Versions.
#include "bridge.h"
#include <string.h>

static jint abi_version(UNUSED_ENV, CLASS) {
    return (jint)siskin_abi_version();
}

static jbyteArray version(JNIEnv *env, CLASS) {
    const char *text = siskin_version();
    return new_byte_array(env, text, strlen(text));
}

static const JNINativeMethod METHODS[] = {
    METHOD("abiVersion", "()I", abi_version),
    METHOD("version", "()[B", version),
};

NATIVES(natives_version, "NativeVersion", METHODS);
