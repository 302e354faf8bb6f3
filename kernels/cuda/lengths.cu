// One over the lengths of the rows of a matrix and its adapter together. A warp has a row; one of zeros has no direction,
// and gets zero.
#include "common.cuh"

template <class T>
__device__ void inverse_lengths(const T* matrix, const float* product, float factor, float* to, int rows, int columns) {
    int row = blockIdx.x * warps() + warp();
    if (row >= rows) return;
    float sum = 0;
    for (int i = lane(); i < columns; i += LANES) {
        long long at = (long long)row * columns + i;
        float x = number(matrix[at]) + factor * product[at];
        sum += x * x;
    }
    float length = sqrtf(sum_of_warp(sum));
    if (lane() == 0) to[row] = length == 0 ? 0 : 1 / length;
}

#define KERNELS(T, type)                                                                                      \
    ENTRY(inverse_lengths_##type, 256,                                                                        \
          (const T* matrix, const float* product, float factor, float* to, int rows, int columns),            \
          inverse_lengths(matrix, product, factor, to, rows, columns))
FOR_EACH_TYPE(KERNELS)
