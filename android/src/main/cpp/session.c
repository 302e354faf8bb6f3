// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Sessions: prompts, and pieces of answers.
#include "bridge.h"
#include <stdlib.h>

#define SESSION(value) HANDLE(siskin_session, value)

static jlong session_new(JNIEnv *env, TYPE, jlong model, jlong options) {
    siskin_session *session = NULL;
    const siskin_session_options *how = HANDLE(const siskin_session_options, options);
    failed(env, siskin_session_new(HANDLE(const siskin_model, model), how, &session));
    return (jlong)(intptr_t)session;
}

static jlong session_stopper(JNIEnv *env, TYPE, jlong session) {
    siskin_stop *stop = NULL;
    failed(env, siskin_session_stopper(SESSION(session), &stop));
    return (jlong)(intptr_t)stop;
}

static void session_say(JNIEnv *env, TYPE, jlong session, jbyteArray role, jbyteArray content) {
    struct bytes who, what;
    if (!take_bytes(env, role, &who)) return;
    if (take_bytes(env, content, &what)) {
        failed(env, siskin_session_say(SESSION(session), who.data, who.length, what.data, what.length));
        drop_bytes(&what);
    }
    drop_bytes(&who);
}

static void session_prompt(JNIEnv *env, TYPE, jlong session, jbyteArray array) {
    struct bytes text;
    if (!take_bytes(env, array, &text)) return;
    failed(env, siskin_session_prompt(SESSION(session), text.data, text.length));
    drop_bytes(&text);
}

static void session_prompt_raw(JNIEnv *env, TYPE, jlong session, jbyteArray array, jboolean special) {
    struct bytes text;
    if (!take_bytes(env, array, &text)) return;
    failed(env, siskin_session_prompt_raw(SESSION(session), text.data, text.length, special));
    drop_bytes(&text);
}

static void session_prompt_messages(JNIEnv *env, TYPE, jlong session, jbyteArray json) {
    struct bytes text;
    if (!take_bytes(env, json, &text)) return;
    failed(env, siskin_session_prompt_messages(SESSION(session), text.data, text.length));
    drop_bytes(&text);
}

static void session_prompt_tokens(JNIEnv *env, TYPE, jlong session, jintArray array) {
    uint32_t *ids;
    size_t count;
    if (!take_ids(env, array, &ids, &count)) return;
    failed(env, siskin_session_prompt_tokens(SESSION(session), ids, count));
    free(ids);
}

// Packs the numbers, the text, the bytes, and the most probable tokens.
static jbyteArray session_next(JNIEnv *env, TYPE, jlong session) {
    siskin_piece piece = {.struct_size = sizeof piece};
    struct packer packer;
    if (failed(env, siskin_session_next(SESSION(session), &piece))) return NULL;
    pack_begin(&packer);
    pack_u32(&packer, piece.done);
    pack_u32(&packer, (uint32_t)piece.ended);
    pack_u32(&packer, piece.has_token);
    pack_u32(&packer, piece.token);
    pack_f32(&packer, piece.log_probability);
    pack_bytes(&packer, piece.text, piece.length);
    pack_bytes(&packer, piece.bytes, piece.byte_count);
    pack_u32(&packer, (uint32_t)piece.top_count);
    for (size_t i = 0; i < piece.top_count; i++) {
        pack_u32(&packer, piece.top[i].token);
        pack_f32(&packer, piece.top[i].log_probability);
    }
    return pack_end(env, &packer);
}

static void session_set_max_tokens(JNIEnv *env, TYPE, jlong session, jint tokens) {
    failed(env, siskin_session_set_max_tokens(SESSION(session), (size_t)tokens));
}

static void session_free(__attribute__((unused)) JNIEnv *env, TYPE, jlong session) {
    siskin_session_free(SESSION(session));
}

static const JNINativeMethod METHODS[] = {
    METHOD("create", "(JJ)J", session_new),
    METHOD("stopper", "(J)J", session_stopper),
    METHOD("say", "(J[B[B)V", session_say),
    METHOD("prompt", "(J[B)V", session_prompt),
    METHOD("promptRaw", "(J[BZ)V", session_prompt_raw),
    METHOD("promptMessages", "(J[B)V", session_prompt_messages),
    METHOD("promptTokens", "(J[I)V", session_prompt_tokens),
    METHOD("next", "(J)[B", session_next),
    METHOD("setMaxTokens", "(JI)V", session_set_max_tokens),
    METHOD("free", "(J)V", session_free),
};

NATIVES(natives_session, "NativeSession", METHODS);
