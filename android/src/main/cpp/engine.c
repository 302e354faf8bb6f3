// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Engines: requests that share batches.
#include "bridge.h"
#include <stdlib.h>

#define ENGINE(value) HANDLE(const siskin_engine, value)
#define OPTIONS(value) HANDLE(const siskin_request_options, value)

static jlong engine_new(JNIEnv *env, CLASS, jlong options) {
    siskin_engine *engine = NULL;
    throw_if_error(env, siskin_engine_new(HANDLE(const siskin_engine_options, options), &engine));
    return (jlong)(intptr_t)engine;
}

static jint engine_add_model(JNIEnv *env, CLASS, jlong engine, jlong model, jlong options) {
    uint32_t number = 0;
    throw_if_error(env, siskin_engine_add_model(ENGINE(engine), HANDLE(const siskin_model, model),
                                                HANDLE(const siskin_served_model_options, options), &number));
    return (jint)number;
}

static jlong engine_new_session(JNIEnv *env, CLASS, jlong engine, jint model, jlong options) {
    siskin_session *session = NULL;
    throw_if_error(env, siskin_engine_session_new(ENGINE(engine), (uint32_t)model,
                                                  HANDLE(const siskin_session_options, options), &session));
    return (jlong)(intptr_t)session;
}

static jlong engine_new_encoder(JNIEnv *env, CLASS, jlong engine, jlong model, jboolean use_head, jint max_batch_tokens,
                                jint cache_type) {
    siskin_encoder *encoder = NULL;
    throw_if_error(env, siskin_engine_encoder_new(ENGINE(engine), HANDLE(const siskin_model, model), use_head,
                                                  (size_t)max_batch_tokens, (uint32_t)cache_type, &encoder));
    return (jlong)(intptr_t)encoder;
}

static jlong engine_attach_model(JNIEnv *env, CLASS, jlong engine, jlong model) {
    siskin_model *attached = NULL;
    throw_if_error(env, siskin_engine_attach_model(ENGINE(engine), HANDLE(const siskin_model, model), &attached));
    return (jlong)(intptr_t)attached;
}

static jlong engine_submit(JNIEnv *env, CLASS, jlong engine, jint model, jbyteArray array, jlong options) {
    siskin_generation *generation = NULL;
    struct bytes text;
    if (!read_bytes(env, array, &text)) return 0;
    throw_if_error(env, siskin_engine_submit(ENGINE(engine), (uint32_t)model, text.data, text.length, OPTIONS(options),
                                             &generation));
    free_bytes(&text);
    return (jlong)(intptr_t)generation;
}

static jlong engine_submit_messages(JNIEnv *env, CLASS, jlong engine, jint model, jbyteArray json, jlong options) {
    siskin_generation *generation = NULL;
    struct bytes text;
    if (!read_bytes(env, json, &text)) return 0;
    throw_if_error(env, siskin_engine_submit_messages(ENGINE(engine), (uint32_t)model, text.data, text.length,
                                                      OPTIONS(options), &generation));
    free_bytes(&text);
    return (jlong)(intptr_t)generation;
}

static jlong engine_submit_chat(JNIEnv *env, CLASS, jlong engine, jint model, jbyteArray messages,
                                jbyteArray chat_options, jlong options) {
    siskin_generation *generation = NULL;
    struct bytes text, settings;
    if (!read_bytes(env, messages, &text)) return 0;
    if (read_bytes(env, chat_options, &settings)) {
        throw_if_error(env, siskin_engine_submit_chat(ENGINE(engine), (uint32_t)model, text.data, text.length,
                                                      settings.data, settings.length, OPTIONS(options), &generation));
        free_bytes(&settings);
    }
    free_bytes(&text);
    return (jlong)(intptr_t)generation;
}

static jlong engine_submit_raw(JNIEnv *env, CLASS, jlong engine, jint model, jbyteArray array, jboolean parse_special,
                               jlong options) {
    siskin_generation *generation = NULL;
    struct bytes text;
    if (!read_bytes(env, array, &text)) return 0;
    throw_if_error(env, siskin_engine_submit_raw(ENGINE(engine), (uint32_t)model, text.data, text.length, parse_special,
                                                 OPTIONS(options), &generation));
    free_bytes(&text);
    return (jlong)(intptr_t)generation;
}

static jlong engine_submit_tokens(JNIEnv *env, CLASS, jlong engine, jint model, jintArray array, jlong options) {
    siskin_generation *generation = NULL;
    uint32_t *ids;
    size_t count;
    if (!read_ids(env, array, &ids, &count)) return 0;
    throw_if_error(env, siskin_engine_submit_tokens(ENGINE(engine), (uint32_t)model, ids, count, OPTIONS(options),
                                                    &generation));
    free(ids);
    return (jlong)(intptr_t)generation;
}

static jbyteArray engine_stats(JNIEnv *env, CLASS, jlong engine, jint model) {
    siskin_engine_stats stats = {.struct_size = sizeof stats};
    struct packer packer;
    if (throw_if_error(env, siskin_engine_read_stats(ENGINE(engine), (uint32_t)model, &stats))) return NULL;
    pack_begin(&packer);
    pack_u64(&packer, stats.running);
    pack_u64(&packer, stats.waiting);
    pack_u64(&packer, stats.cached_prefixes);
    pack_u64(&packer, stats.steps);
    pack_u64(&packer, stats.rows);
    pack_u64(&packer, stats.prefix_queried_tokens);
    pack_u64(&packer, stats.prefix_hit_tokens);
    pack_u64(&packer, stats.preemptions);
    pack_u64(&packer, stats.drafted_tokens);
    pack_u64(&packer, stats.accepted_tokens);
    pack_u64(&packer, stats.prefix_restored_tokens);
    pack_u64(&packer, stats.kv_blocks);
    pack_u64(&packer, stats.free_kv_blocks);
    return pack_end(env, &packer);
}

static void engine_drain(JNIEnv *env, CLASS, jlong engine, jint milliseconds) {
    throw_if_error(env, siskin_engine_drain(ENGINE(engine), (uint32_t)milliseconds));
}

static void engine_remove_model(JNIEnv *env, CLASS, jlong engine, jint model, jint milliseconds) {
    throw_if_error(env, siskin_engine_remove_model(ENGINE(engine), (uint32_t)model, (uint32_t)milliseconds));
}

static void engine_trim(JNIEnv *env, CLASS, jlong engine) { throw_if_error(env, siskin_engine_trim(ENGINE(engine))); }

static void engine_free(UNUSED_ENV, CLASS, jlong engine) {
    siskin_engine_free(HANDLE(siskin_engine, engine));
}

static const JNINativeMethod METHODS[] = {
    METHOD("create", "(J)J", engine_new),
    METHOD("addModel", "(JJJ)I", engine_add_model),
    METHOD("newSession", "(JIJ)J", engine_new_session),
    METHOD("newEncoder", "(JJZII)J", engine_new_encoder),
    METHOD("attachModel", "(JJ)J", engine_attach_model),
    METHOD("submit", "(JI[BJ)J", engine_submit),
    METHOD("submitMessages", "(JI[BJ)J", engine_submit_messages),
    METHOD("submitChat", "(JI[B[BJ)J", engine_submit_chat),
    METHOD("submitRaw", "(JI[BZJ)J", engine_submit_raw),
    METHOD("submitTokens", "(JI[IJ)J", engine_submit_tokens),
    METHOD("stats", "(JI)[B", engine_stats),
    METHOD("drain", "(JI)V", engine_drain),
    METHOD("removeModel", "(JII)V", engine_remove_model),
    METHOD("trim", "(J)V", engine_trim),
    METHOD("free", "(J)V", engine_free),
};

NATIVES(natives_engine, "NativeEngine", METHODS);
