// Sums over rows, for the gradients of biases, factors and norms: a two-stage reduction, first over parts of
// the rows, then over the partial sums, so that the order of every sum depends only on the shapes.
#include "sums.cuh"

// Column sums, starting at column `start`, of a matrix with row stride `width`.
template <int COUNT, class T>
__device__ __forceinline__ void sum_some_rows(const T* x, int rows, int columns, int width, int part, float* parts) {
    sum_part<COUNT>(rows, columns, part, parts, [&](int row, int column, float (&numbers)[COUNT]) {
        read<COUNT>(numbers, x + (long long)row * width + column);
    });
}

template <class T>
__device__ void sum_rows(const T* x, int rows, int columns, int width, int start, int part, float* parts) {
    x += start;
    if (is_aligned(x, width) && columns % vector_len<T>() == 0) sum_some_rows<vector_len<T>()>(x, rows, columns, width, part, parts);
    else sum_some_rows<1>(x, rows, columns, width, part, parts);
}

// Column sums of the element-wise product of two matrices with `columns` columns.
template <class T>
__device__ void sum_products(const T* x, const T* gradient, int rows, int columns, int part, float* parts) {
    sum_part<1>(rows, columns, part, parts, [&](int row, int column, float (&product)[1]) {
        long long at = (long long)row * columns + column;
        product[0] = to_f32(x[at]) * to_f32(gradient[at]);
    });
}

// Column sums of gradient · normalized x: `left` has the mean and factor of each group of `size` elements. A
// row is a whole number of groups.
template <int COUNT, class T>
__device__ __forceinline__ void sum_some_normalized(const T* x, const T* gradient, const float* saved, int size, int rows,
                                                    int columns, int part, float* parts) {
    int groups = columns / size;
    sum_part<COUNT>(rows, columns, part, parts, [&](int row, int column, float (&products)[COUNT]) {
        long long at = (long long)row * columns + column;
        long long group = columns == size ? row : (long long)row * groups + column / size;
        float of_x[COUNT], moments[2];
        read<COUNT>(of_x, x + at);
        read<COUNT>(products, gradient + at);
        read<2>(moments, saved + 2 * group);
#pragma unroll
        for (int i = 0; i < COUNT; i++) products[i] = products[i] * (of_x[i] - moments[0]) * moments[1];
    });
}

template <class T>
__device__ void sum_normalized(const T* x, const T* gradient, const float* saved, int size, int rows, int columns,
                               int part, float* parts) {
    if (is_aligned(x, size) && is_aligned(gradient, size)) {
        sum_some_normalized<vector_len<T>()>(x, gradient, saved, size, rows, columns, part, parts);
    } else {
        sum_some_normalized<1>(x, gradient, saved, size, rows, columns, part, parts);
    }
}

// Adds all partial sums to `to`.
__device__ __forceinline__ void add_partial_sums(const float* parts, int count, int columns, float* to) {
    __shared__ float sums[LANES][LANES];
    int column = blockIdx.x * LANES + lane();
    float sum = 0;
    if (column < columns) {
        for (int i = warp(); i < count; i += LANES) sum += parts[(long long)i * columns + column];
    }
    sums[warp()][lane()] = sum;
    sync_block();
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
    ENTRY(sum_normalized_##type, ROW_LANES* LANES,                                                                \
          (const T* x, const T* gradient, const float* saved, int size, int rows, int columns, int part, float* parts), \
          sum_normalized(x, gradient, saved, size, rows, columns, part, parts))
FOR_EACH_TYPE(KERNELS)

ENTRY(reduce_parts, LANES* LANES, (const float* parts, int count, int columns, float* to),
      add_partial_sums(parts, count, columns, to))
