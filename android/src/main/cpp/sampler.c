// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Sampling options.
#include "bridge.h"

static jlong sampler_new(JNIEnv *env, CLASS) {
    siskin_sampler *sampler = NULL;
    throw_if_error(env, siskin_sampler_new(&sampler));
    return (jlong)(intptr_t)sampler;
}

static void sampler_set(JNIEnv *env, CLASS, jlong sampler, jint option, jdouble value) {
    throw_if_error(env, siskin_sampler_set(HANDLE(siskin_sampler, sampler), (uint32_t)option, value));
}

static void sampler_set_seed(JNIEnv *env, CLASS, jlong sampler, jlong seed) {
    throw_if_error(env, siskin_sampler_set_seed(HANDLE(siskin_sampler, sampler), (uint64_t)seed));
}

static void sampler_add_logit_bias(JNIEnv *env, CLASS, jlong sampler, jint token, jfloat bias) {
    throw_if_error(env, siskin_sampler_add_bias(HANDLE(siskin_sampler, sampler), (uint32_t)token, bias));
}

static void sampler_free(UNUSED_ENV, CLASS, jlong sampler) {
    siskin_sampler_free(HANDLE(siskin_sampler, sampler));
}

static const JNINativeMethod METHODS[] = {
    METHOD("create", "()J", sampler_new),
    METHOD("set", "(JID)V", sampler_set),
    METHOD("setSeed", "(JJ)V", sampler_set_seed),
    METHOD("addLogitBias", "(JIF)V", sampler_add_logit_bias),
    METHOD("free", "(J)V", sampler_free),
};

NATIVES(natives_sampler, "NativeSampler", METHODS);
