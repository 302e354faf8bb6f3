// Slicing of columns, gathering of rows, and repetition of columns.
#include "common.cuh"

// Copies columns from `from_start` on of one matrix to columns from `to_start` on of another.
template <class T>
__device__ void copy_columns(const T* from, T* to, int add, int rows, int columns, int from_width, int from_start,
                             int to_width, int to_start) {
    from += from_start;
    to += to_start;
    bool aligned = is_aligned(from, from_width) && is_aligned(to, to_width);
    for_each_element_2d<T>(rows, columns, aligned, [&](int row, int column, auto size) {
        constexpr int COUNT = decltype(size)::value;
        float x[COUNT];
        read<COUNT>(x, from + (long long)row * from_width + column);
        store_or_accumulate<COUNT>(to + (long long)row * to_width + column, x, add);
    });
}

// Gathers rows: row n of `to` is row `indices[n]` of `from`, or zero if the index is negative.
template <class T>
__device__ void gather_rows(const T* from, const int* indices, T* to, int add, int rows, int columns) {
    bool aligned = is_aligned(from, columns) && is_aligned(to, columns);
    for_each_element_2d<T>(rows, columns, aligned, [&](int row, int column, auto size) {
        constexpr int COUNT = decltype(size)::value;
        float x[COUNT] = {};
        int index = indices[row];
        if (index >= 0) read<COUNT>(x, from + (long long)index * columns + column);
        store_or_accumulate<COUNT>(to + (long long)row * columns + column, x, add);
    });
}

// Repeats every column of `from` `times` times, adjacent to each other.
template <class T> __device__ void repeat_columns(const T* from, T* to, int times, int rows, int columns) {
    for_each_element_2d<T>(rows, columns * times, false, [&](int row, int column, auto) {
        to[(long long)row * columns * times + column] = from[(long long)row * columns + column / times];
    });
}

template <class T>
__device__ void repeat_columns_backward(const T* gradient, T* to, int add, int times, int rows, int columns) {
    for_each_element_2d<T>(rows, columns, false, [&](int row, int column, auto) {
        const T* own = gradient + ((long long)row * columns + column) * times;
        float sum = 0;
        for (int i = 0; i < times; i++) sum += to_f32(own[i]);
        store_or_accumulate(to[(long long)row * columns + column], sum, add);
    });
}

#define KERNELS(T, type)                                                                                        \
    ENTRY(copy_columns_##type, 256,                                                                             \
          (const T* from, T* to, int add, int rows, int columns, int from_width, int from_start, int to_width,  \
           int to_start),                                                                                       \
          copy_columns(from, to, add, rows, columns, from_width, from_start, to_width, to_start))               \
    ENTRY(gather_rows_##type, 256, (const T* from, const int* indices, T* to, int add, int rows, int columns),     \
          gather_rows(from, indices, to, add, rows, columns))                                                      \
    ENTRY(repeat_columns_##type, 256, (const T* from, T* to, int times, int rows, int columns),                         \
          repeat_columns(from, to, times, rows, columns))                                                               \
    ENTRY(repeat_columns_backward_##type, 256, (const T* gradient, T* to, int add, int times, int rows, int columns),       \
          repeat_columns_backward(gradient, to, add, times, rows, columns))
FOR_EACH_TYPE(KERNELS)
