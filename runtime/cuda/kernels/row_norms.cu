// DoRA: the reciprocal L2 norms of the rows of a matrix plus its adapter. A warp computes one row; a zero row
// has no direction and gets zero.
#include "common.cuh"

template <class T>
__device__ void inverse_row_norms(const T* matrix, const float* product, float factor, float* to, int rows, int columns) {
    int row = blockIdx.x * warps() + warp();
    if (row >= rows) return;
    float sum = 0;
    for (int i = lane(); i < columns; i += LANES) {
        long long at = (long long)row * columns + i;
        float x = to_f32(matrix[at]) + factor * product[at];
        sum += x * x;
    }
    float norm = sqrtf(warp_sum(sum));
    if (lane() == 0) to[row] = norm == 0 ? 0 : 1 / norm;
}

#define KERNELS(T, type)                                                                                      \
    ENTRY(inverse_row_norms_##type, 256,                                                                        \
          (const T* matrix, const float* product, float factor, float* to, int rows, int columns),            \
          inverse_row_norms(matrix, product, factor, to, rows, columns))
FOR_EACH_TYPE(KERNELS)
