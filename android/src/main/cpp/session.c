// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Sessions: prompts, and generation token by token.
#include "bridge.h"
#include <stdlib.h>

#define SESSION(value) HANDLE(siskin_session, value)

static jlong session_new(JNIEnv *env, CLASS, jlong model, jlong options) {
    siskin_session *session = NULL;
    throw_if_error(env, siskin_session_new(HANDLE(const siskin_model, model),
                                           HANDLE(const siskin_session_options, options), &session));
    return (jlong)(intptr_t)session;
}

static jlong session_cancel_handle(JNIEnv *env, CLASS, jlong session) {
    siskin_cancel_handle *handle = NULL;
    throw_if_error(env, siskin_session_cancel_handle(SESSION(session), &handle));
    return (jlong)(intptr_t)handle;
}

static void session_add_message(JNIEnv *env, CLASS, jlong session, jbyteArray role_array,
                                jbyteArray content_array) {
    struct bytes role, content;
    if (!read_bytes(env, role_array, &role)) return;
    if (read_bytes(env, content_array, &content)) {
        throw_if_error(env, siskin_session_add_message(SESSION(session), role.data, role.length, content.data, content.length));
        free_bytes(&content);
    }
    free_bytes(&role);
}

static void session_prompt(JNIEnv *env, CLASS, jlong session, jbyteArray array) {
    struct bytes text;
    if (!read_bytes(env, array, &text)) return;
    throw_if_error(env, siskin_session_prompt(SESSION(session), text.data, text.length));
    free_bytes(&text);
}

static void session_prompt_raw(JNIEnv *env, CLASS, jlong session, jbyteArray array, jboolean parse_special) {
    struct bytes text;
    if (!read_bytes(env, array, &text)) return;
    throw_if_error(env, siskin_session_prompt_raw(SESSION(session), text.data, text.length, parse_special));
    free_bytes(&text);
}

static void session_prompt_messages(JNIEnv *env, CLASS, jlong session, jbyteArray json) {
    struct bytes text;
    if (!read_bytes(env, json, &text)) return;
    throw_if_error(env, siskin_session_prompt_messages(SESSION(session), text.data, text.length));
    free_bytes(&text);
}

static void session_prompt_chat(JNIEnv *env, CLASS, jlong session, jbyteArray messages, jbyteArray options) {
    struct bytes text, settings;
    if (!read_bytes(env, messages, &text)) return;
    if (read_bytes(env, options, &settings)) {
        throw_if_error(env, siskin_session_prompt_chat(SESSION(session), text.data, text.length,
                                                       settings.data, settings.length));
        free_bytes(&settings);
    }
    free_bytes(&text);
}

static jbyteArray session_message(JNIEnv *env, CLASS, jlong session) {
    const char *message;
    size_t length;
    if (throw_if_error(env, siskin_session_message(SESSION(session), &message, &length))) return NULL;
    return new_byte_array(env, message, length);
}

static jlong session_fork(JNIEnv *env, CLASS, jlong session) {
    siskin_session *fork = NULL;
    throw_if_error(env, siskin_session_fork(SESSION(session), &fork));
    return (jlong)(intptr_t)fork;
}

// Packs the log-probability and the number of tokens.
static jbyteArray session_score_text(JNIEnv *env, CLASS, jlong session, jbyteArray array, jboolean parse_special) {
    struct bytes text;
    struct packer packer;
    double log_probability = 0;
    size_t count = 0;
    if (!read_bytes(env, array, &text)) return NULL;
    siskin_error *error = siskin_session_score_text(SESSION(session), text.data, text.length, parse_special,
                                                    &log_probability, &count);
    free_bytes(&text);
    if (throw_if_error(env, error)) return NULL;
    pack_begin(&packer);
    pack_f64(&packer, log_probability);
    pack_u32(&packer, (uint32_t)count);
    return pack_end(env, &packer);
}

static void session_prompt_tokens(JNIEnv *env, CLASS, jlong session, jintArray array) {
    uint32_t *ids;
    size_t count;
    if (!read_ids(env, array, &ids, &count)) return;
    throw_if_error(env, siskin_session_prompt_tokens(SESSION(session), ids, count));
    free(ids);
}

static jbyteArray session_next(JNIEnv *env, CLASS, jlong session) {
    siskin_text_chunk chunk = {.struct_size = sizeof chunk};
    if (throw_if_error(env, siskin_session_next(SESSION(session), &chunk))) return NULL;
    return new_text_chunk(env, &chunk);
}

static void session_set_max_tokens(JNIEnv *env, CLASS, jlong session, jint tokens) {
    throw_if_error(env, siskin_session_set_max_tokens(SESSION(session), (size_t)tokens));
}

static void session_set_structured_output(JNIEnv *env, CLASS, jlong session, jint kind, jbyteArray array) {
    struct bytes text;
    if (!read_bytes(env, array, &text)) return;
    throw_if_error(env, siskin_session_set_structured_output(SESSION(session), (siskin_structured_output)kind, text.data, text.length));
    free_bytes(&text);
}

static void session_free(UNUSED_ENV, CLASS, jlong session) {
    siskin_session_free(SESSION(session));
}

static const JNINativeMethod METHODS[] = {
    METHOD("create", "(JJ)J", session_new),
    METHOD("cancelHandle", "(J)J", session_cancel_handle),
    METHOD("addMessage", "(J[B[B)V", session_add_message),
    METHOD("prompt", "(J[B)V", session_prompt),
    METHOD("promptRaw", "(J[BZ)V", session_prompt_raw),
    METHOD("promptMessages", "(J[B)V", session_prompt_messages),
    METHOD("promptChat", "(J[B[B)V", session_prompt_chat),
    METHOD("message", "(J)[B", session_message),
    METHOD("promptTokens", "(J[I)V", session_prompt_tokens),
    METHOD("fork", "(J)J", session_fork),
    METHOD("scoreText", "(J[BZ)[B", session_score_text),
    METHOD("next", "(J)[B", session_next),
    METHOD("setMaxTokens", "(JI)V", session_set_max_tokens),
    METHOD("setStructuredOutput", "(JI[B)V", session_set_structured_output),
    METHOD("free", "(J)V", session_free),
};

NATIVES(natives_session, "NativeSession", METHODS);
