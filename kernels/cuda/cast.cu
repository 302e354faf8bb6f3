// Numbers of one kind made numbers of another: of parameters, and of what the host gives.
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

template <class T> __device__ void to_floats(const T* from, float* to, int add, long long count) {
    for_each_run<T>(count, is_wide(from, 0) && is_wide(to, 0), [&](long long at, auto size) {
        constexpr int COUNT = decltype(size)::value;
        float x[COUNT];
        read<COUNT>(x, from + at);
#pragma unroll
        for (int i = 0; i < COUNT; i++) give(to[at + i], x[i], add);
    });
}

#define KERNELS(T, type)                                                                             \
    ENTRY(from_floats_##type, 256, (const float* from, T* to, long long count), from_floats(from, to, count)) \
    ENTRY(to_floats_##type, 256, (const T* from, float* to, int add, long long count), to_floats(from, to, add, count))
FOR_EACH_TYPE(KERNELS)
