// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Session state: counters, truncation, saving, pausing.
#include "bridge.h"

#define SESSION(value) HANDLE(siskin_session, value)

static jbyteArray stats(JNIEnv *env, CLASS, jlong session) {
    siskin_stats stats = {.struct_size = sizeof stats};
    struct packer packer;
    if (throw_if_error(env, siskin_session_stats(SESSION(session), &stats))) return NULL;
    pack_begin(&packer);
    pack_u64(&packer, stats.position);
    pack_u64(&packer, stats.prompt_tokens);
    pack_u64(&packer, stats.prompt_nanoseconds);
    pack_u64(&packer, stats.generated_tokens);
    pack_u64(&packer, stats.generation_nanoseconds);
    return pack_end(env, &packer);
}

static jbyteArray memory(JNIEnv *env, CLASS, jlong session) {
    siskin_memory_usage memory = {.struct_size = sizeof memory};
    if (throw_if_error(env, siskin_session_memory(SESSION(session), &memory))) return NULL;
    return new_memory_usage(env, &memory);
}

static jfloatArray logits(JNIEnv *env, CLASS, jlong session) {
    const float *values = NULL;
    size_t count = 0;
    if (throw_if_error(env, siskin_session_logits(SESSION(session), &values, &count))) return NULL;
    return new_float_array(env, values, count);
}

static void reset(JNIEnv *env, CLASS, jlong session) {
    throw_if_error(env, siskin_session_reset(SESSION(session)));
}

static void rewind_to(JNIEnv *env, CLASS, jlong session, jint position) {
    throw_if_error(env, siskin_session_rewind(SESSION(session), (size_t)position));
}

static void save(JNIEnv *env, CLASS, jlong session, jbyteArray path) {
    struct bytes text;
    if (!read_bytes(env, path, &text)) return;
    throw_if_error(env, siskin_session_save(SESSION(session), text.data, text.length));
    free_bytes(&text);
}

static jbyteArray save_memory(JNIEnv *env, CLASS, jlong session) {
    const uint8_t *bytes = NULL;
    size_t length = 0;
    if (throw_if_error(env, siskin_session_save_to_memory(SESSION(session), &bytes, &length))) return NULL;
    return new_byte_array(env, bytes, length);
}

static void restore(JNIEnv *env, CLASS, jlong session, jbyteArray path) {
    struct bytes text;
    if (!read_bytes(env, path, &text)) return;
    throw_if_error(env, siskin_session_restore(SESSION(session), text.data, text.length));
    free_bytes(&text);
}

static void restore_memory(JNIEnv *env, CLASS, jlong session, jbyteArray array) {
    struct bytes bytes;
    if (!read_bytes(env, array, &bytes)) return;
    throw_if_error(env, siskin_session_restore_from_memory(SESSION(session), bytes.data, bytes.length));
    free_bytes(&bytes);
}

static void pause_session(JNIEnv *env, CLASS, jlong session) {
    throw_if_error(env, siskin_session_pause(SESSION(session)));
}

static void resume(JNIEnv *env, CLASS, jlong session) {
    throw_if_error(env, siskin_session_resume(SESSION(session)));
}

static void trim(JNIEnv *env, CLASS, jlong session, jint level) {
    throw_if_error(env, siskin_session_trim(SESSION(session), (uint32_t)level));
}

static const JNINativeMethod METHODS[] = {
    METHOD("stats", "(J)[B", stats),
    METHOD("memory", "(J)[B", memory),
    METHOD("logits", "(J)[F", logits),
    METHOD("reset", "(J)V", reset),
    METHOD("rewind", "(JI)V", rewind_to),
    METHOD("save", "(J[B)V", save),
    METHOD("saveMemory", "(J)[B", save_memory),
    METHOD("restore", "(J[B)V", restore),
    METHOD("restoreMemory", "(J[B)V", restore_memory),
    METHOD("pause", "(J)V", pause_session),
    METHOD("resume", "(J)V", resume),
    METHOD("trim", "(JI)V", trim),
};

NATIVES(natives_session_state, "NativeSessionState", METHODS);
