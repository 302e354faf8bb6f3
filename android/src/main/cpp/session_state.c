// SPDX-License-Identifier: MIT OR Apache-2.0
//
// State of sessions.
#include "bridge.h"

#define SESSION(value) HANDLE(siskin_session, value)

static jbyteArray stats(JNIEnv *env, TYPE, jlong session) {
    siskin_stats stats = {.struct_size = sizeof stats};
    struct packer packer;
    if (failed(env, siskin_session_stats(SESSION(session), &stats))) return NULL;
    pack_begin(&packer);
    pack_u64(&packer, stats.position);
    pack_u64(&packer, stats.prompt_tokens);
    pack_u64(&packer, stats.prompt_nanoseconds);
    pack_u64(&packer, stats.tokens);
    pack_u64(&packer, stats.nanoseconds);
    return pack_end(env, &packer);
}

static jbyteArray memory(JNIEnv *env, TYPE, jlong session) {
    siskin_memory memory = {.struct_size = sizeof memory};
    if (failed(env, siskin_session_memory(SESSION(session), &memory))) return NULL;
    return give_memory(env, &memory);
}

static jfloatArray logits(JNIEnv *env, TYPE, jlong session) {
    const float *values = NULL;
    size_t count = 0;
    if (failed(env, siskin_session_logits(SESSION(session), &values, &count))) return NULL;
    return give_floats(env, values, count);
}

static void forget(JNIEnv *env, TYPE, jlong session) {
    failed(env, siskin_session_forget(SESSION(session)));
}

static void rewind_to(JNIEnv *env, TYPE, jlong session, jint position) {
    failed(env, siskin_session_rewind(SESSION(session), (size_t)position));
}

static void save(JNIEnv *env, TYPE, jlong session, jbyteArray path) {
    struct bytes text;
    if (!take_bytes(env, path, &text)) return;
    failed(env, siskin_session_save(SESSION(session), text.data, text.length));
    drop_bytes(&text);
}

static jbyteArray save_memory(JNIEnv *env, TYPE, jlong session) {
    const uint8_t *bytes = NULL;
    size_t length = 0;
    if (failed(env, siskin_session_save_memory(SESSION(session), &bytes, &length))) return NULL;
    return give_bytes(env, bytes, length);
}

static void restore(JNIEnv *env, TYPE, jlong session, jbyteArray path) {
    struct bytes text;
    if (!take_bytes(env, path, &text)) return;
    failed(env, siskin_session_restore(SESSION(session), text.data, text.length));
    drop_bytes(&text);
}

static void restore_memory(JNIEnv *env, TYPE, jlong session, jbyteArray array) {
    struct bytes bytes;
    if (!take_bytes(env, array, &bytes)) return;
    failed(env, siskin_session_restore_memory(SESSION(session), bytes.data, bytes.length));
    drop_bytes(&bytes);
}

static void suspend(JNIEnv *env, TYPE, jlong session) {
    failed(env, siskin_session_suspend(SESSION(session)));
}

static void resume(JNIEnv *env, TYPE, jlong session) {
    failed(env, siskin_session_resume(SESSION(session)));
}

static void trim(JNIEnv *env, TYPE, jlong session, jint level) {
    failed(env, siskin_session_trim(SESSION(session), (uint32_t)level));
}

static const JNINativeMethod METHODS[] = {
    METHOD("stats", "(J)[B", stats),
    METHOD("memory", "(J)[B", memory),
    METHOD("logits", "(J)[F", logits),
    METHOD("forget", "(J)V", forget),
    METHOD("rewind", "(JI)V", rewind_to),
    METHOD("save", "(J[B)V", save),
    METHOD("saveMemory", "(J)[B", save_memory),
    METHOD("restore", "(J[B)V", restore),
    METHOD("restoreMemory", "(J[B)V", restore_memory),
    METHOD("suspend", "(J)V", suspend),
    METHOD("resume", "(J)V", resume),
    METHOD("trim", "(JI)V", trim),
};

NATIVES(natives_session_state, "NativeSessionState", METHODS);
