// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Transcribers. Every function that transcribes returns the complete result; segments are also passed on as they come.
#include "bridge.h"

#define TRANSCRIBER(value) HANDLE(siskin_transcriber, value)

static jlong transcriber_new(JNIEnv *env, CLASS, jlong model) {
    siskin_transcriber *transcriber = NULL;
    throw_if_error(env, siskin_transcriber_new(HANDLE(const siskin_model, model), &transcriber));
    return (jlong)(intptr_t)transcriber;
}

static jlong transcriber_cancel_handle(JNIEnv *env, CLASS, jlong transcriber) {
    siskin_cancel_handle *handle = NULL;
    throw_if_error(env, siskin_transcriber_cancel_handle(TRANSCRIBER(transcriber), &handle));
    return (jlong)(intptr_t)handle;
}

static void pack_segment(struct packer *packer, const siskin_segment *segment) {
    pack_bytes(packer, segment->text, segment->length);
    pack_f64(packer, segment->start);
    pack_f64(packer, segment->end);
    pack_f32(packer, segment->log_probability);
    pack_f32(packer, segment->no_speech_probability);
}

static bool on_segment(void *user, const siskin_segment *segment) {
    bool attached;
    JNIEnv *env = attach(&attached);
    if (env == NULL) return false;
    struct packer packer;
    pack_begin(&packer);
    pack_segment(&packer, segment);
    jbyteArray packed = pack_end(env, &packer);
    jboolean continues = packed != NULL && (*env)->CallBooleanMethod(env, user, jvm.on_segment, packed);
    // The sink stores exceptions of its listener. Any other exception ends the call.
    if ((*env)->ExceptionCheck(env)) {
        (*env)->ExceptionClear(env);
        continues = JNI_FALSE;
    }
    if (packed != NULL) (*env)->DeleteLocalRef(env, packed);
    detach(attached);
    return continues;
}

static void set_segment_sink(JNIEnv *env, CLASS, jlong transcriber, jobject sink) {
    void *retained = sink == NULL ? NULL : retain_object(env, sink);
    siskin_segment_function function = retained == NULL ? NULL : on_segment;
    throw_if_error(env, siskin_transcriber_set_segment_function(TRANSCRIBER(transcriber), function, retained,
                                                                retained == NULL ? NULL : release_object));
}

// Packs the text, the language, and the segments.
static jbyteArray new_transcript(JNIEnv *env, const siskin_transcriber *transcriber) {
    const char *text = NULL, *language = NULL;
    size_t length = 0, language_length = 0, count = 0;
    struct packer packer;
    siskin_error *error = siskin_transcriber_text(transcriber, &text, &length, &language, &language_length);
    if (throw_if_error(env, error)) return NULL;
    if (throw_if_error(env, siskin_transcriber_segment_count(transcriber, &count))) return NULL;
    pack_begin(&packer);
    pack_bytes(&packer, text, length);
    pack_bytes(&packer, language, language_length);
    pack_u32(&packer, (uint32_t)count);
    for (size_t index = 0; index < count; index++) {
        siskin_segment segment = {.struct_size = sizeof segment};
        if (throw_if_error(env, siskin_transcriber_segment(transcriber, index, &segment))) {
            pack_free(&packer);
            return NULL;
        }
        pack_segment(&packer, &segment);
    }
    return pack_end(env, &packer);
}

static jbyteArray transcribe(JNIEnv *env, CLASS, jlong transcriber, jfloatArray array, jint rate) {
    jsize count = (*env)->GetArrayLength(env, array);
    jfloat *samples = (*env)->GetFloatArrayElements(env, array, NULL);
    if (samples == NULL) return NULL;
    siskin_error *error = siskin_transcriber_transcribe(TRANSCRIBER(transcriber), samples, (size_t)count, (uint32_t)rate);
    (*env)->ReleaseFloatArrayElements(env, array, samples, JNI_ABORT);
    return throw_if_error(env, error) ? NULL : new_transcript(env, TRANSCRIBER(transcriber));
}

static jbyteArray transcribe_pcm16(JNIEnv *env, CLASS, jlong transcriber, jobject buffer, jlong offset, jlong length,
                                   jint rate, jint channels) {
    const uint8_t *bytes = direct_buffer(env, buffer, offset, length);
    if (bytes == NULL) return NULL;
    siskin_error *error = siskin_transcriber_transcribe_pcm16(TRANSCRIBER(transcriber), bytes, (size_t)length,
                                                        (uint32_t)rate, (uint16_t)channels);
    return throw_if_error(env, error) ? NULL : new_transcript(env, TRANSCRIBER(transcriber));
}

static jbyteArray transcribe_wav(JNIEnv *env, CLASS, jlong transcriber, jobject buffer, jlong offset, jlong length) {
    const uint8_t *bytes = direct_buffer(env, buffer, offset, length);
    if (bytes == NULL) return NULL;
    siskin_error *error = siskin_transcriber_transcribe_wav(TRANSCRIBER(transcriber), bytes, (size_t)length);
    return throw_if_error(env, error) ? NULL : new_transcript(env, TRANSCRIBER(transcriber));
}

static void transcriber_free(UNUSED_ENV, CLASS, jlong transcriber) {
    siskin_transcriber_free(TRANSCRIBER(transcriber));
}

static const JNINativeMethod METHODS[] = {
    METHOD("create", "(J)J", transcriber_new),
    METHOD("cancelHandle", "(J)J", transcriber_cancel_handle),
    METHOD("setSegmentSink", "(JLai/siskin/SegmentSink;)V", set_segment_sink),
    METHOD("transcribe", "(J[FI)[B", transcribe),
    METHOD("transcribePcm16", "(JLjava/nio/ByteBuffer;JJII)[B", transcribe_pcm16),
    METHOD("transcribeWav", "(JLjava/nio/ByteBuffer;JJ)[B", transcribe_wav),
    METHOD("free", "(J)V", transcriber_free),
};

NATIVES(natives_transcriber, "NativeTranscriber", METHODS);
