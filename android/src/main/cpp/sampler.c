// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Sampling options.
#include "bridge.h"

static jlong sampler_new(JNIEnv *env, TYPE) {
    siskin_sampler *sampler = NULL;
    failed(env, siskin_sampler_new(&sampler));
    return (jlong)(intptr_t)sampler;
}

static void sampler_set(JNIEnv *env, TYPE, jlong sampler, jint option, jdouble value) {
    failed(env, siskin_sampler_set(HANDLE(siskin_sampler, sampler), (uint32_t)option, value));
}

static void sampler_set_seed(JNIEnv *env, TYPE, jlong sampler, jlong seed) {
    failed(env, siskin_sampler_set_seed(HANDLE(siskin_sampler, sampler), (uint64_t)seed));
}

static void sampler_add_bias(JNIEnv *env, TYPE, jlong sampler, jint token, jfloat bias) {
    failed(env, siskin_sampler_add_bias(HANDLE(siskin_sampler, sampler), (uint32_t)token, bias));
}

static void sampler_free(__attribute__((unused)) JNIEnv *env, TYPE, jlong sampler) {
    siskin_sampler_free(HANDLE(siskin_sampler, sampler));
}

static const JNINativeMethod METHODS[] = {
    METHOD("create", "()J", sampler_new),
    METHOD("set", "(JID)V", sampler_set),
    METHOD("setSeed", "(JJ)V", sampler_set_seed),
    METHOD("addBias", "(JIF)V", sampler_add_bias),
    METHOD("free", "(J)V", sampler_free),
};

NATIVES(natives_sampler, "NativeSampler", METHODS);
