// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Generations: the responses to requests of an engine.
#include "bridge.h"

#define GENERATION(value) HANDLE(siskin_generation, value)

static jlong generation_cancel_handle(JNIEnv *env, CLASS, jlong generation) {
    siskin_cancel_handle *handle = NULL;
    throw_if_error(env, siskin_generation_cancel_handle(GENERATION(generation), &handle));
    return (jlong)(intptr_t)handle;
}

static jbyteArray generation_next(JNIEnv *env, CLASS, jlong generation) {
    siskin_text_chunk chunk = {.struct_size = sizeof chunk};
    if (throw_if_error(env, siskin_generation_next(GENERATION(generation), &chunk))) return NULL;
    return new_text_chunk(env, &chunk);
}

static jbyteArray generation_message(JNIEnv *env, CLASS, jlong generation) {
    const char *message;
    size_t length;
    if (throw_if_error(env, siskin_generation_message(GENERATION(generation), &message, &length))) return NULL;
    return new_byte_array(env, message, length);
}

static jbyteArray generation_usage(JNIEnv *env, CLASS, jlong generation) {
    siskin_generation_usage usage = {.struct_size = sizeof usage};
    struct packer packer;
    if (throw_if_error(env, siskin_generation_read_usage(GENERATION(generation), &usage))) return NULL;
    pack_begin(&packer);
    pack_u64(&packer, usage.prompt_tokens);
    pack_u64(&packer, usage.cached_tokens);
    pack_u64(&packer, usage.generated_tokens);
    return pack_end(env, &packer);
}

static void generation_free(UNUSED_ENV, CLASS, jlong generation) {
    siskin_generation_free(GENERATION(generation));
}

static const JNINativeMethod METHODS[] = {
    METHOD("cancelHandle", "(J)J", generation_cancel_handle),
    METHOD("next", "(J)[B", generation_next),
    METHOD("message", "(J)[B", generation_message),
    METHOD("usage", "(J)[B", generation_usage),
    METHOD("free", "(J)V", generation_free),
};

NATIVES(natives_generation, "NativeGeneration", METHODS);
