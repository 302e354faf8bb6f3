// Sums over some rows of a table, the first half of every sum over all of them.
#pragma once

#include "common.cuh"

#define ROW_LANES 8

// Adds up `of(row, column)` over PART rows, for 32 columns of a block. Row n of `parts` has the sums of part n.
template <class Of> __device__ __forceinline__ void sum_part(int rows, int columns, int part, float* parts, Of of) {
    __shared__ float sums[ROW_LANES][LANES];
    int column = blockIdx.y * LANES + lane(), first = blockIdx.x * part, end = min(rows, first + part);
    float sum = 0;
    if (column < columns) {
        for (int row = first + warp(); row < end; row += ROW_LANES) sum += of(row, column);
    }
    meet();
    sums[warp()][lane()] = sum;
    meet();
    if (warp() == 0 && column < columns) {
        for (int i = 1; i < ROW_LANES; i++) sum += sums[i][lane()];
        parts[(long long)blockIdx.x * columns + column] = sum;
    }
}
