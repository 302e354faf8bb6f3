// im2col: lays neighboring rows side by side.
#include "common.cuh"

// Row `indices[row · count + i]` of x becomes part i of a row; zeros if the index is negative.
template <class T>
__device__ void im2col(const T* x, const int* indices, T* out, int rows, int columns, int count) {
    bool aligned = is_aligned(x, columns) && is_aligned(out, columns);
    for_each_element_2d<T>(rows * count, columns, aligned, [&](int part, int column, auto size) {
        constexpr int COUNT = decltype(size)::value;
        float numbers[COUNT] = {};
        if (indices[part] >= 0) read<COUNT>(numbers, x + (long long)indices[part] * columns + column);
        write<COUNT>(out + (long long)part * columns + column, numbers);
    });
}

// col2im: each row of x accumulates the gradients of the parts it was copied to: part
// `parts[row · count + i]` for each i.
template <class T>
__device__ void col2im(const T* gradient, const int* parts, T* to, int add, int rows, int columns, int count) {
    bool aligned = is_aligned(gradient, columns) && is_aligned(to, columns);
    for_each_element_2d<T>(rows, columns, aligned, [&](int row, int column, auto size) {
        constexpr int COUNT = decltype(size)::value;
        float sums[COUNT] = {}, numbers[COUNT];
        for (int i = 0; i < count; i++) {
            int part = parts[row * count + i];
            if (part < 0) continue;
            read<COUNT>(numbers, gradient + (long long)part * columns + column);
#pragma unroll
            for (int j = 0; j < COUNT; j++) sums[j] += numbers[j];
        }
        store_or_accumulate<COUNT>(to + (long long)row * columns + column, sums, add);
    });
}

#define KERNELS(T, type)                                                                                            \
    ENTRY(im2col_##type, 256, (const T* x, const int* indices, T* out, int rows, int columns, int count),        \
          im2col(x, indices, out, rows, columns, count))                                                         \
    ENTRY(col2im_##type, 256,                                                                              \
          (const T* gradient, const int* parts, T* to, int add, int rows, int columns, int count),                  \
          col2im(gradient, parts, to, add, rows, columns, count))
FOR_EACH_TYPE(KERNELS)
