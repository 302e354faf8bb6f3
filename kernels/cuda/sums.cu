// Sums over rows, for the gradients of biases, factors and norms: first over some rows each, then over what that gave, so
// that the order of every sum is that of the shapes.
#include "sums.cuh"

// Of columns from `start` on of a table whose rows are `width` wide.
template <class T>
__device__ void sum_rows(const T* x, int rows, int columns, int width, int start, int part, float* parts) {
    sum_part(rows, columns, part, parts,
             [&](int row, int column) { return number(x[(long long)row * width + start + column]); });
}

// Of products of two tables of `columns` columns.
template <class T>
__device__ void sum_products(const T* x, const T* gradient, int rows, int columns, int part, float* parts) {
    sum_part(rows, columns, part, parts, [&](int row, int column) {
        long long at = (long long)row * columns + column;
        return number(x[at]) * number(gradient[at]);
    });
}

// The same where x was normalised: `left` has mean and factor of each run of `size` numbers.
template <class T>
__device__ void sum_normalised(const T* x, const T* gradient, const float* left, int size, int rows, int columns,
                               int part, float* parts) {
    sum_part(rows, columns, part, parts, [&](int row, int column) {
        long long at = (long long)row * columns + column, run = at / size;
        return number(gradient[at]) * (number(x[at]) - left[2 * run]) * left[2 * run + 1];
    });
}

// Adds all parts to `to`.
__device__ __forceinline__ void add_all_parts(const float* parts, int count, int columns, float* to) {
    __shared__ float sums[LANES][LANES];
    int column = blockIdx.x * LANES + lane();
    float sum = 0;
    if (column < columns) {
        for (int i = warp(); i < count; i += LANES) sum += parts[(long long)i * columns + column];
    }
    sums[warp()][lane()] = sum;
    meet();
    if (warp() == 0 && column < columns) {
        for (int i = 1; i < LANES; i++) sum += sums[i][lane()];
        to[column] += sum;
    }
}

#define KERNELS(T, type)                                                                                          \
    ENTRY(sum_rows_##type, ROW_LANES* LANES,                                                                      \
          (const T* x, int rows, int columns, int width, int start, int part, float* parts),                      \
          sum_rows(x, rows, columns, width, start, part, parts))                                                  \
    ENTRY(sum_products_##type, ROW_LANES* LANES,                                                                  \
          (const T* x, const T* gradient, int rows, int columns, int part, float* parts),                         \
          sum_products(x, gradient, rows, columns, part, parts))                                                  \
    ENTRY(sum_normalised_##type, ROW_LANES* LANES,                                                                \
          (const T* x, const T* gradient, const float* left, int size, int rows, int columns, int part, float* parts), \
          sum_normalised(x, gradient, left, size, rows, columns, part, parts))
FOR_EACH_TYPE(KERNELS)

ENTRY(add_parts, LANES* LANES, (const float* parts, int count, int columns, float* to),
      add_all_parts(parts, count, columns, to))
