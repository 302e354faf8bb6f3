// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Library loading, errors, and threads that are not attached to the JVM.
#include "bridge.h"
#include <string.h>

struct jvm jvm;

static const struct natives *const TABLES[] = {
    &natives_cancel_handle, &natives_encoder,       &natives_engine,   &natives_generation, &natives_log,
    &natives_model,         &natives_progress,      &natives_seq2seq,  &natives_session,    &natives_session_state,
    &natives_throttle,      &natives_transcriber,   &natives_version,
#ifdef SISKIN_TESTING
    &natives_testing,
#endif
};

bool throw_if_error(JNIEnv *env, siskin_error *error) {
    if (error == NULL) return false;
    jint code = siskin_error_code(error);
    const char *location = siskin_error_location(error), *message = siskin_error_message(error);
    jbyteArray location_bytes = new_byte_array(env, location, strlen(location));
    jbyteArray message_bytes = location_bytes == NULL ? NULL : new_byte_array(env, message, strlen(message));
    siskin_error_free(error);
    if (message_bytes == NULL) return true;
    jobject exception =
        (*env)->CallStaticObjectMethod(env, jvm.errors, jvm.create_error, code, location_bytes, message_bytes);
    if (!(*env)->ExceptionCheck(env) && exception != NULL) (*env)->Throw(env, exception);
    (*env)->DeleteLocalRef(env, location_bytes);
    (*env)->DeleteLocalRef(env, message_bytes);
    return true;
}

void throw_out_of_memory(JNIEnv *env) {
    jclass class = (*env)->FindClass(env, "java/lang/OutOfMemoryError");
    if (class != NULL) (*env)->ThrowNew(env, class, "cannot allocate native memory for a call of Siskin");
}

// The headers of Android and the JDK differ in the parameter type of `AttachCurrentThreadAsDaemon`.
#ifdef __ANDROID__
#define ENV_OUT(env) (env)
#else
#define ENV_OUT(env) ((void **)(env))
#endif

JNIEnv *attach(bool *attached) {
    JNIEnv *env = NULL;
    *attached = false;
    if ((*jvm.vm)->GetEnv(jvm.vm, (void **)&env, JNI_VERSION_1_6) == JNI_OK) return env;
    if ((*jvm.vm)->AttachCurrentThreadAsDaemon(jvm.vm, ENV_OUT(&env), NULL) != JNI_OK) return NULL;
    *attached = true;
    return env;
}

void detach(bool attached) {
    if (attached) (*jvm.vm)->DetachCurrentThread(jvm.vm);
}

void *retain_object(JNIEnv *env, jobject object) {
    return (*env)->NewGlobalRef(env, object);
}

void release_object(void *object) {
    bool attached;
    if (object == NULL) return;
    JNIEnv *env = attach(&attached);
    if (env != NULL) (*env)->DeleteGlobalRef(env, object);
    detach(attached);
}

static jclass find_class(JNIEnv *env, const char *name) {
    jclass local = (*env)->FindClass(env, name);
    if (local == NULL) return NULL;
    jclass global = (*env)->NewGlobalRef(env, local);
    (*env)->DeleteLocalRef(env, local);
    return global;
}

// Looks up an instance method. The class stays loaded as long as this library.
static jmethodID find_method(JNIEnv *env, const char *class, const char *name, const char *signature) {
    jclass local = (*env)->FindClass(env, class);
    if (local == NULL) return NULL;
    jmethodID method = (*env)->GetMethodID(env, local, name, signature);
    (*env)->DeleteLocalRef(env, local);
    return method;
}

static bool find_all(JNIEnv *env) {
    jvm.errors = find_class(env, "ai/siskin/NativeErrors");
    if (jvm.errors == NULL) return false;
    jvm.create_error = (*env)->GetStaticMethodID(env, jvm.errors, "create", "(I[B[B)Ljava/lang/Throwable;");
    if (jvm.create_error == NULL) return false;
    jvm.float_array = find_class(env, "[F");
    if (jvm.float_array == NULL) return false;
    jvm.on_progress = find_method(env, "ai/siskin/ProgressSink", "onProgress", "(JJ)Z");
    if (jvm.on_progress == NULL) return false;
    jvm.on_segment = find_method(env, "ai/siskin/SegmentSink", "onSegment", "([B)Z");
    if (jvm.on_segment == NULL) return false;
    jvm.on_log_message = find_method(env, "ai/siskin/LogSink", "onLogMessage", "(I[B)V");
    return jvm.on_log_message != NULL;
}

static bool register_natives(JNIEnv *env, const struct natives *table) {
    jclass class = (*env)->FindClass(env, table->class);
    if (class == NULL) return false;
    jint result = (*env)->RegisterNatives(env, class, table->methods, (jint)table->count);
    (*env)->DeleteLocalRef(env, class);
    return result == JNI_OK;
}

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, __attribute__((unused)) void *reserved) {
    JNIEnv *env = NULL;
    if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_1_6) != JNI_OK) return JNI_ERR;
    if (siskin_abi_version() < SISKIN_ABI_VERSION) return JNI_ERR;
    jvm.vm = vm;
    if (!find_all(env)) return JNI_ERR;
    for (size_t i = 0; i < LENGTH(TABLES); i++) {
        if (!register_natives(env, TABLES[i])) return JNI_ERR;
    }
    for (size_t i = 0; i < natives_options_count; i++) {
        if (!register_natives(env, &natives_options[i])) return JNI_ERR;
    }
    return JNI_VERSION_1_6;
}
