// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Library loading, errors, and threads that are not attached to the JVM.
#include "bridge.h"
#include <string.h>

struct known known;

static const struct natives *const TABLES[] = {
    &natives_encoder,         &natives_governor,      &natives_log,     &natives_model,
    &natives_model_options,   &natives_sampler,       &natives_session, &natives_session_options,
    &natives_session_state,   &natives_stop,          &natives_transcriber, &natives_version,
    &natives_writer,          &natives_writing,
#ifdef SISKIN_TESTING
    &natives_testing,
#endif
};

bool failed(JNIEnv *env, siskin_error *error) {
    if (error == NULL) return false;
    jint code = siskin_error_code(error);
    const char *place = siskin_error_place(error), *message = siskin_error_message(error);
    jbyteArray where = give_bytes(env, place, strlen(place));
    jbyteArray what = where == NULL ? NULL : give_bytes(env, message, strlen(message));
    siskin_error_free(error);
    if (what == NULL) return true;
    jobject exception = (*env)->CallStaticObjectMethod(env, known.errors, known.errors_of, code, where, what);
    if (!(*env)->ExceptionCheck(env) && exception != NULL) (*env)->Throw(env, exception);
    (*env)->DeleteLocalRef(env, where);
    (*env)->DeleteLocalRef(env, what);
    return true;
}

void no_memory(JNIEnv *env) {
    jclass type = (*env)->FindClass(env, "java/lang/OutOfMemoryError");
    if (type != NULL) (*env)->ThrowNew(env, type, "no memory for a call of the library");
}

// The headers of Android and the JDK differ in the parameter type of `AttachCurrentThread`.
#ifdef __ANDROID__
#define PLACE(environment) (environment)
#else
#define PLACE(environment) ((void **)(environment))
#endif

JNIEnv *attach(bool *attached) {
    JNIEnv *env = NULL;
    *attached = false;
    if ((*known.vm)->GetEnv(known.vm, (void **)&env, JNI_VERSION_1_6) == JNI_OK) return env;
    if ((*known.vm)->AttachCurrentThreadAsDaemon(known.vm, PLACE(&env), NULL) != JNI_OK) return NULL;
    *attached = true;
    return env;
}

void detach(bool attached) {
    if (attached) (*known.vm)->DetachCurrentThread(known.vm);
}

void *hold(JNIEnv *env, jobject object) {
    return (*env)->NewGlobalRef(env, object);
}

void let_go(void *held) {
    bool attached;
    if (held == NULL) return;
    JNIEnv *env = attach(&attached);
    if (env != NULL) (*env)->DeleteGlobalRef(env, held);
    detach(attached);
}

static jclass find(JNIEnv *env, const char *name) {
    jclass local = (*env)->FindClass(env, name);
    if (local == NULL) return NULL;
    jclass global = (*env)->NewGlobalRef(env, local);
    (*env)->DeleteLocalRef(env, local);
    return global;
}

// Looks up an interface method. The class stays loaded as long as this library.
static jmethodID method(JNIEnv *env, const char *type, const char *name, const char *signature) {
    jclass local = (*env)->FindClass(env, type);
    if (local == NULL) return NULL;
    jmethodID found = (*env)->GetMethodID(env, local, name, signature);
    (*env)->DeleteLocalRef(env, local);
    return found;
}

static bool find_known(JNIEnv *env) {
    known.errors = find(env, "ai/siskin/NativeErrors");
    if (known.errors == NULL) return false;
    known.errors_of = (*env)->GetStaticMethodID(env, known.errors, "of", "(I[B[B)Ljava/lang/Throwable;");
    known.floats = find(env, "[F");
    known.progress = method(env, "ai/siskin/ProgressSink", "progress", "(JJ)Z");
    known.message = method(env, "ai/siskin/LogSink", "message", "(I[B)V");
    return known.errors_of != NULL && known.floats != NULL && known.progress != NULL && known.message != NULL;
}

static bool enrol(JNIEnv *env, const struct natives *table) {
    jclass type = (*env)->FindClass(env, table->type);
    if (type == NULL) return false;
    jint answer = (*env)->RegisterNatives(env, type, table->methods, (jint)table->count);
    (*env)->DeleteLocalRef(env, type);
    return answer == JNI_OK;
}

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, __attribute__((unused)) void *reserved) {
    JNIEnv *env = NULL;
    if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_1_6) != JNI_OK) return JNI_ERR;
    if (siskin_abi_version() < SISKIN_ABI_VERSION) return JNI_ERR;
    known.vm = vm;
    if (!find_known(env)) return JNI_ERR;
    for (size_t i = 0; i < LENGTH(TABLES); i++) {
        if (!enrol(env, TABLES[i])) return JNI_ERR;
    }
    return JNI_VERSION_1_6;
}
