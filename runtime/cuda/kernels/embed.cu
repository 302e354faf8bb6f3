// Embedding lookup. The gradient of a table row is accumulated by one block, in the order of the batch's
// rows.
#include "common.cuh"

template <class T> __device__ void embed(const int* numbers, const T* table, T* out, int rows, int columns) {
    bool aligned = is_aligned(table, columns) && is_aligned(out, columns);
    for_each_element_2d<T>(rows, columns, aligned, [&](int row, int column, auto size) {
        constexpr int COUNT = decltype(size)::value;
        *reinterpret_cast<Pack<T, COUNT>*>(out + (long long)row * columns + column) =
            *reinterpret_cast<const Pack<T, COUNT>*>(table + (long long)numbers[row] * columns + column);
    });
}

#define ROW_LANES 8

// For each of the first `count` distinct token ids, accumulates rows order[starts[n]] to order[starts[n + 1]
// - 1] of the gradient. A block handles some columns of one id after the other, 8 rows at a time.
template <int COUNT, class T>
__device__ __forceinline__ void add_rows(const int* numbers, const int* starts, const int* order, int count,
                                         const T* gradient, float* to, int columns) {
    constexpr int OF_BLOCK = LANES * vector_len<T>();
    __shared__ float sums[ROW_LANES][LANES * COUNT];
    int all = min(columns, (int)(blockIdx.y + 1) * OF_BLOCK);
    for (int n = blockIdx.x; n < count; n += gridDim.x) {
        int first = starts[n], end = starts[n + 1];
        for (int base = blockIdx.y * OF_BLOCK; base < all; base += LANES * COUNT) {
            int column = base + lane() * COUNT;
            float sum[COUNT] = {};
            if (column < all) {
                for (int i = first + warp(); i < end; i += ROW_LANES) {
                    float x[COUNT];
                    read<COUNT>(x, gradient + (long long)order[i] * columns + column);
#pragma unroll
                    for (int j = 0; j < COUNT; j++) sum[j] += x[j];
                }
            }
            sync_block();
#pragma unroll
            for (int j = 0; j < COUNT; j++) sums[warp()][lane() * COUNT + j] = sum[j];
            sync_block();
            if (warp() > 0 || column >= all) continue;
            for (int i = 1; i < min(ROW_LANES, end - first); i++) {
#pragma unroll
                for (int j = 0; j < COUNT; j++) sum[j] += sums[i][lane() * COUNT + j];
            }
            float* own = to + (long long)numbers[n] * columns + column;
            float before[COUNT];
            read_floats<COUNT>(before, own);
#pragma unroll
            for (int j = 0; j < COUNT; j++) sum[j] += before[j];
            write_floats<COUNT>(own, sum);
        }
    }
}

template <class T>
__device__ void embed_backward(const int* numbers, const int* starts, const int* order, const int* count,
                           const T* gradient, float* to, int columns) {
    bool aligned = is_aligned(gradient, columns) && is_aligned(to, columns);
    if (aligned) add_rows<vector_len<T>()>(numbers, starts, order, *count, gradient, to, columns);
    else add_rows<1>(numbers, starts, order, *count, gradient, to, columns);
}

#define KERNELS(T, type)                                                                                 \
    ENTRY(embed_##type, 256, (const int* numbers, const T* table, T* out, int rows, int columns),        \
          embed(numbers, table, out, rows, columns))                                                     \
    ENTRY(embed_backward_##type, ROW_LANES* LANES,                                                           \
          (const int* numbers, const int* starts, const int* order, const int* count, const T* gradient, \
           float* to, int columns),                                                                      \
          embed_backward(numbers, starts, order, count, gradient, to, columns))
FOR_EACH_TYPE(KERNELS)
