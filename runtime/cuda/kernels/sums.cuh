// Column sums over a part of the rows of a matrix: the first stage of every two-stage reduction over rows.
#pragma once

#include "common.cuh"

#define ROW_LANES 8

// Accumulates what `of(row, column, numbers)` writes to its COUNT elements, for that column and the next
// ones, over `part` rows, for the columns of a block. Row n of `parts` receives the sums of part n. COUNT
// divides the number of columns.
template <int COUNT, class Of>
__device__ __forceinline__ void sum_part(int rows, int columns, int part, float* parts, Of of) {
    __shared__ float sums[ROW_LANES][LANES * COUNT];
    int first = blockIdx.x * part, end = min(rows, first + part);
    for (int base = blockIdx.y * LANES * COUNT; base < columns; base += gridDim.y * LANES * COUNT) {
        int column = base + lane() * COUNT;
        float sum[COUNT] = {};
        if (column < columns) {
            for (int row = first + warp(); row < end; row += ROW_LANES) {
                float x[COUNT];
                of(row, column, x);
#pragma unroll
                for (int i = 0; i < COUNT; i++) sum[i] += x[i];
            }
        }
        sync_block();
#pragma unroll
        for (int i = 0; i < COUNT; i++) sums[warp()][lane() * COUNT + i] = sum[i];
        sync_block();
        if (warp() > 0 || column >= columns) continue;
        for (int n = 1; n < ROW_LANES; n++) {
#pragma unroll
            for (int i = 0; i < COUNT; i++) sum[i] += sums[n][lane() * COUNT + i];
        }
        write_floats<COUNT>(parts + (long long)blockIdx.x * columns + column, sum);
    }
}
