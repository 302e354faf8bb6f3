// im2col: lays neighboring rows side by side.
#include "common.cuh"

// Row `places[row · count + i]` of x becomes part i of a row; zeros if the index is negative.
template <class T>
__device__ void neighbors(const T* x, const int* places, T* out, int rows, int columns, int count) {
    bool all_wide = is_wide(x, columns) && is_wide(out, columns);
    for_each_cell<T>(rows * count, columns, all_wide, [&](int part, int column, auto size) {
        constexpr int COUNT = decltype(size)::value;
        float numbers[COUNT] = {};
        if (places[part] >= 0) read<COUNT>(numbers, x + (long long)places[part] * columns + column);
        write<COUNT>(out + (long long)part * columns + column, numbers);
    });
}

// col2im: each row of x accumulates the gradients of the parts it was copied to: part
// `parts[row · count + i]` for each i.
template <class T>
__device__ void neighbors_back(const T* gradient, const int* parts, T* to, int add, int rows, int columns, int count) {
    bool all_wide = is_wide(gradient, columns) && is_wide(to, columns);
    for_each_cell<T>(rows, columns, all_wide, [&](int row, int column, auto size) {
        constexpr int COUNT = decltype(size)::value;
        float sums[COUNT] = {}, numbers[COUNT];
        for (int i = 0; i < count; i++) {
            int part = parts[row * count + i];
            if (part < 0) continue;
            read<COUNT>(numbers, gradient + (long long)part * columns + column);
#pragma unroll
            for (int j = 0; j < COUNT; j++) sums[j] += numbers[j];
        }
        give<COUNT>(to + (long long)row * columns + column, sums, add);
    });
}

#define KERNELS(T, type)                                                                                            \
    ENTRY(neighbors_##type, 256, (const T* x, const int* places, T* out, int rows, int columns, int count),        \
          neighbors(x, places, out, rows, columns, count))                                                         \
    ENTRY(neighbors_back_##type, 256,                                                                              \
          (const T* gradient, const int* parts, T* to, int add, int rows, int columns, int count),                  \
          neighbors_back(gradient, parts, to, add, rows, columns, count))
FOR_EACH_TYPE(KERNELS)
