// Slicing of columns, gathering of rows, and repetition of columns.
#include "common.cuh"

// Copies columns from `from_start` on of one matrix to columns from `to_start` on of another.
template <class T>
__device__ void move_columns(const T* from, T* to, int add, int rows, int columns, int from_width, int from_start,
                             int to_width, int to_start) {
    from += from_start;
    to += to_start;
    bool all_wide = is_wide(from, from_width) && is_wide(to, to_width);
    for_each_cell<T>(rows, columns, all_wide, [&](int row, int column, auto size) {
        constexpr int COUNT = decltype(size)::value;
        float x[COUNT];
        read<COUNT>(x, from + (long long)row * from_width + column);
        give<COUNT>(to + (long long)row * to_width + column, x, add);
    });
}

// Gathers rows: row n of `to` is row `places[n]` of `from`, or zero if the index is negative.
template <class T>
__device__ void move_rows(const T* from, const int* places, T* to, int add, int rows, int columns) {
    bool all_wide = is_wide(from, columns) && is_wide(to, columns);
    for_each_cell<T>(rows, columns, all_wide, [&](int row, int column, auto size) {
        constexpr int COUNT = decltype(size)::value;
        float x[COUNT] = {};
        int place = places[row];
        if (place >= 0) read<COUNT>(x, from + (long long)place * columns + column);
        give<COUNT>(to + (long long)row * columns + column, x, add);
    });
}

// Repeats every column of `from` `times` times, adjacent to each other.
template <class T> __device__ void repeat(const T* from, T* to, int times, int rows, int columns) {
    for_each_cell<T>(rows, columns * times, false, [&](int row, int column, auto) {
        to[(long long)row * columns * times + column] = from[(long long)row * columns + column / times];
    });
}

template <class T>
__device__ void repeat_back(const T* gradient, T* to, int add, int times, int rows, int columns) {
    for_each_cell<T>(rows, columns, false, [&](int row, int column, auto) {
        const T* own = gradient + ((long long)row * columns + column) * times;
        float sum = 0;
        for (int i = 0; i < times; i++) sum += number(own[i]);
        give(to[(long long)row * columns + column], sum, add);
    });
}

#define KERNELS(T, type)                                                                                        \
    ENTRY(move_columns_##type, 256,                                                                             \
          (const T* from, T* to, int add, int rows, int columns, int from_width, int from_start, int to_width,  \
           int to_start),                                                                                       \
          move_columns(from, to, add, rows, columns, from_width, from_start, to_width, to_start))               \
    ENTRY(move_rows_##type, 256, (const T* from, const int* places, T* to, int add, int rows, int columns),     \
          move_rows(from, places, to, add, rows, columns))                                                      \
    ENTRY(repeat_##type, 256, (const T* from, T* to, int times, int rows, int columns),                         \
          repeat(from, to, times, rows, columns))                                                               \
    ENTRY(repeat_back_##type, 256, (const T* gradient, T* to, int add, int times, int rows, int columns),       \
          repeat_back(gradient, to, add, times, rows, columns))
FOR_EACH_TYPE(KERNELS)
