// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Throttling of a model.
#include "bridge.h"

static void set_mode(JNIEnv *env, CLASS, jlong model, jint mode, jfloat value) {
    throw_if_error(env, siskin_model_set_throttle(HANDLE(siskin_model, model), (uint32_t)mode, value));
}

static void set_thermal_state(JNIEnv *env, CLASS, jlong model, jint state) {
    throw_if_error(env, siskin_model_set_thermal_state(HANDLE(siskin_model, model), (uint32_t)state));
}

static void set_power_state(JNIEnv *env, CLASS, jlong model, jboolean saving, jboolean on_battery, jfloat battery) {
    throw_if_error(env, siskin_model_set_power_state(HANDLE(siskin_model, model), saving, on_battery, battery));
}

static jbyteArray throttle_stats(JNIEnv *env, CLASS, jlong model) {
    siskin_throttle_stats stats = {.struct_size = sizeof stats};
    struct packer packer;
    if (throw_if_error(env, siskin_model_throttle_stats(HANDLE(siskin_model, model), &stats))) return NULL;
    pack_begin(&packer);
    pack_u64(&packer, stats.passes);
    pack_u64(&packer, stats.compute_nanoseconds);
    pack_u64(&packer, stats.wait_nanoseconds);
    pack_u32(&packer, stats.threads);
    pack_f32(&packer, stats.duty_cycle);
    return pack_end(env, &packer);
}

static const JNINativeMethod METHODS[] = {
    METHOD("setMode", "(JIF)V", set_mode),
    METHOD("setThermalState", "(JI)V", set_thermal_state),
    METHOD("setPowerState", "(JZZF)V", set_power_state),
    METHOD("stats", "(J)[B", throttle_stats),
};

NATIVES(natives_throttle, "NativeThrottle", METHODS);
