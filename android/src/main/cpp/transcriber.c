// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Transcribers. Every function that transcribes returns the complete result.
#include "bridge.h"

#define TRANSCRIBER(value) HANDLE(siskin_transcriber, value)

static jlong transcriber_new(JNIEnv *env, TYPE, jlong model) {
    siskin_transcriber *transcriber = NULL;
    failed(env, siskin_transcriber_new(HANDLE(const siskin_model, model), &transcriber));
    return (jlong)(intptr_t)transcriber;
}

static jlong transcriber_stopper(JNIEnv *env, TYPE, jlong transcriber) {
    siskin_stop *stop = NULL;
    failed(env, siskin_transcriber_stopper(TRANSCRIBER(transcriber), &stop));
    return (jlong)(intptr_t)stop;
}

static void transcriber_set(JNIEnv *env, TYPE, jlong transcriber, jint option, jdouble value) {
    failed(env, siskin_transcriber_set(TRANSCRIBER(transcriber), (uint32_t)option, value));
}

static void set_text(JNIEnv *env, jlong transcriber, jbyteArray array,
                     siskin_error *(*set)(siskin_transcriber *, const char *, size_t)) {
    struct bytes text;
    if (!take_bytes(env, array, &text)) return;
    failed(env, set(TRANSCRIBER(transcriber), text.data, text.length));
    drop_bytes(&text);
}

static void set_language(JNIEnv *env, TYPE, jlong transcriber, jbyteArray language) {
    set_text(env, transcriber, language, siskin_transcriber_set_language);
}

static void set_prompt(JNIEnv *env, TYPE, jlong transcriber, jbyteArray prompt) {
    set_text(env, transcriber, prompt, siskin_transcriber_set_prompt);
}

// Packs the text, the language, and the segments.
static jbyteArray heard(JNIEnv *env, const siskin_transcriber *transcriber) {
    const char *text = NULL, *language = NULL;
    size_t length = 0, language_length = 0, count = 0;
    struct packer packer;
    if (failed(env, siskin_transcriber_text(transcriber, &text, &length, &language, &language_length))) return NULL;
    if (failed(env, siskin_transcriber_count(transcriber, &count))) return NULL;
    pack_begin(&packer);
    pack_bytes(&packer, text, length);
    pack_bytes(&packer, language, language_length);
    pack_u32(&packer, (uint32_t)count);
    for (size_t index = 0; index < count; index++) {
        siskin_segment segment = {.struct_size = sizeof segment};
        if (failed(env, siskin_transcriber_segment(transcriber, index, &segment))) {
            pack_drop(&packer);
            return NULL;
        }
        pack_bytes(&packer, segment.text, segment.length);
        pack_f64(&packer, segment.start);
        pack_f64(&packer, segment.end);
        pack_f32(&packer, segment.log_probability);
        pack_f32(&packer, segment.silence);
    }
    return pack_end(env, &packer);
}

static jbyteArray hear(JNIEnv *env, TYPE, jlong transcriber, jfloatArray array, jint rate) {
    jsize count = (*env)->GetArrayLength(env, array);
    jfloat *samples = (*env)->GetFloatArrayElements(env, array, NULL);
    if (samples == NULL) return NULL;
    siskin_error *error = siskin_transcriber_hear(TRANSCRIBER(transcriber), samples, (size_t)count, (uint32_t)rate);
    (*env)->ReleaseFloatArrayElements(env, array, samples, JNI_ABORT);
    return failed(env, error) ? NULL : heard(env, TRANSCRIBER(transcriber));
}

static jbyteArray hear_pcm16(JNIEnv *env, TYPE, jlong transcriber, jobject buffer, jlong offset, jlong length,
                             jint rate, jint channels) {
    const uint8_t *bytes = direct_bytes(env, buffer, offset, length);
    if (bytes == NULL) return NULL;
    siskin_error *error = siskin_transcriber_hear_pcm16(TRANSCRIBER(transcriber), bytes, (size_t)length,
                                                        (uint32_t)rate, (uint16_t)channels);
    return failed(env, error) ? NULL : heard(env, TRANSCRIBER(transcriber));
}

static jbyteArray hear_wav(JNIEnv *env, TYPE, jlong transcriber, jobject buffer, jlong offset, jlong length) {
    const uint8_t *bytes = direct_bytes(env, buffer, offset, length);
    if (bytes == NULL) return NULL;
    siskin_error *error = siskin_transcriber_hear_wav(TRANSCRIBER(transcriber), bytes, (size_t)length);
    return failed(env, error) ? NULL : heard(env, TRANSCRIBER(transcriber));
}

static void transcriber_free(__attribute__((unused)) JNIEnv *env, TYPE, jlong transcriber) {
    siskin_transcriber_free(TRANSCRIBER(transcriber));
}

static const JNINativeMethod METHODS[] = {
    METHOD("create", "(J)J", transcriber_new),
    METHOD("stopper", "(J)J", transcriber_stopper),
    METHOD("set", "(JID)V", transcriber_set),
    METHOD("setLanguage", "(J[B)V", set_language),
    METHOD("setPrompt", "(J[B)V", set_prompt),
    METHOD("hear", "(J[FI)[B", hear),
    METHOD("hearPcm16", "(JLjava/nio/ByteBuffer;JJII)[B", hear_pcm16),
    METHOD("hearWav", "(JLjava/nio/ByteBuffer;JJ)[B", hear_wav),
    METHOD("free", "(J)V", transcriber_free),
};

NATIVES(natives_transcriber, "NativeTranscriber", METHODS);
