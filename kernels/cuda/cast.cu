// Converts f32 to other element types: parameters and host data.
#include "common.cuh"

template <class T> __device__ void from_floats(const float* from, T* to, long long count) {
    for_each_run<T>(count, is_wide(from, 0) && is_wide(to, 0), [&](long long at, auto size) {
        constexpr int COUNT = decltype(size)::value;
        float x[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; i++) x[i] = from[at + i];
        write<COUNT>(to + at, x);
    });
}

#define KERNELS(T, type) \
    ENTRY(from_floats_##type, 256, (const float* from, T* to, long long count), from_floats(from, to, count))
FOR_EACH_TYPE(KERNELS)
