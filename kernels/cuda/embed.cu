// Rows of a table, by number. Gradients of a row are added up by one block, in the order of the batch's rows.
#include "common.cuh"

template <class T> __device__ void embed(const int* numbers, const T* table, T* out, int rows, int columns) {
    bool all_wide = is_wide(table, columns) && is_wide(out, columns);
    for_each_cell<T>(rows, columns, all_wide, [&](int row, int column, auto size) {
        constexpr int COUNT = decltype(size)::value;
        *reinterpret_cast<Pack<T, COUNT>*>(out + (long long)row * columns + column) =
            *reinterpret_cast<const Pack<T, COUNT>*>(table + (long long)numbers[row] * columns + column);
    });
}

#define ROW_LANES 8

// Each number of `numbers`, once, takes the rows order[starts[n]] to order[starts[n + 1] - 1] of the gradient. A block
// has 32 columns of one number, 8 of its rows at a time.
template <class T>
__device__ void embed_back(const int* numbers, const int* starts, const int* order, const T* gradient, float* to,
                           int columns) {
    __shared__ float sums[ROW_LANES][LANES];
    int first = starts[blockIdx.x], end = starts[blockIdx.x + 1];
    if (first >= end) return;
    int column = blockIdx.y * LANES + lane();
    float sum = 0;
    if (column < columns) {
        for (int i = first + warp(); i < end; i += ROW_LANES) {
            sum += number(gradient[(long long)order[i] * columns + column]);
        }
    }
    sums[warp()][lane()] = sum;
    meet();
    if (warp() > 0 || column >= columns) return;
    for (int i = 1; i < ROW_LANES; i++) sum += sums[i][lane()];
    to[(long long)numbers[blockIdx.x] * columns + column] += sum;
}

#define KERNELS(T, type)                                                                                 \
    ENTRY(embed_##type, 256, (const int* numbers, const T* table, T* out, int rows, int columns),        \
          embed(numbers, table, out, rows, columns))                                                     \
    ENTRY(embed_back_##type, ROW_LANES* LANES,                                                           \
          (const int* numbers, const int* starts, const int* order, const T* gradient, float* to, int columns), \
          embed_back(numbers, starts, order, gradient, to, columns))
FOR_EACH_TYPE(KERNELS)
