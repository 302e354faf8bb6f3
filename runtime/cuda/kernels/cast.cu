// Converts f32 to other element types: parameters and host data.
#include "common.cuh"

template <class T> __device__ void cast_from_f32(const float* from, T* to, long long count) {
    for_each_element<T>(count, is_aligned(from, 0) && is_aligned(to, 0), [&](long long at, auto size) {
        constexpr int COUNT = decltype(size)::value;
        float x[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; i++) x[i] = from[at + i];
        write<COUNT>(to + at, x);
    });
}

#define KERNELS(T, type) \
    ENTRY(cast_from_f32_##type, 256, (const float* from, T* to, long long count), cast_from_f32(from, to, count))
FOR_EACH_TYPE(KERNELS)
