// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The pace of computation with a model.
#include "bridge.h"

static void set_pace(JNIEnv *env, TYPE, jlong model, jint pace, jfloat value) {
    failed(env, siskin_model_set_pace(HANDLE(siskin_model, model), (uint32_t)pace, value));
}

static void set_heat(JNIEnv *env, TYPE, jlong model, jint level) {
    failed(env, siskin_model_set_heat(HANDLE(siskin_model, model), (uint32_t)level));
}

static void set_power(JNIEnv *env, TYPE, jlong model, jboolean saving, jboolean on_battery, jfloat battery) {
    failed(env, siskin_model_set_power(HANDLE(siskin_model, model), saving, on_battery, battery));
}

static jbyteArray pace_stats(JNIEnv *env, TYPE, jlong model) {
    siskin_pace_stats stats = {.struct_size = sizeof stats};
    struct packer packer;
    if (failed(env, siskin_model_pace_stats(HANDLE(siskin_model, model), &stats))) return NULL;
    pack_begin(&packer);
    pack_u64(&packer, stats.passes);
    pack_u64(&packer, stats.worked_nanoseconds);
    pack_u64(&packer, stats.waited_nanoseconds);
    pack_u32(&packer, stats.threads);
    pack_f32(&packer, stats.duty);
    return pack_end(env, &packer);
}

static const JNINativeMethod METHODS[] = {
    METHOD("setPace", "(JIF)V", set_pace),
    METHOD("setHeat", "(JI)V", set_heat),
    METHOD("setPower", "(JZZF)V", set_power),
    METHOD("stats", "(J)[B", pace_stats),
};

NATIVES(natives_governor, "NativeGovernor", METHODS);
