// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Versions.
#include "bridge.h"
#include <string.h>

static jint abi_version(__attribute__((unused)) JNIEnv *env, TYPE) {
    return (jint)siskin_abi_version();
}

static jbyteArray version(JNIEnv *env, TYPE) {
    const char *text = siskin_version();
    return give_bytes(env, text, strlen(text));
}

static const JNINativeMethod METHODS[] = {
    METHOD("abiVersion", "()I", abi_version),
    METHOD("version", "()[B", version),
};

NATIVES(natives_version, "NativeVersion", METHODS);
