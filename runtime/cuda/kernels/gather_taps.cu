// Im2col by a table: concatenates rows, which the host names.
#include "exact.cuh"

// `rows` has the row of each tap, negative for zeros.
ENTRY(gather_taps, 256,
      (const float* from, int stride, float* out, int out_stride, int width, const int* rows, int taps, const int* row_count), {
    long long row = blockIdx.x;
    if (row >= *row_count) return;
    for (int i = threadIdx.x; i < taps * width; i += blockDim.x) {
        int chosen = rows[row * taps + i / width];
        out[row * out_stride + i] = chosen < 0 ? 0.0f : from[(long long)chosen * stride + i % width];
    }
})
