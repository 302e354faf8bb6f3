// Matmuls of f32 rows with panels of floats: each output is one chain of fused multiply-adds in order of columns.
#include "exact.cuh"
#include "panel_matmul.cuh"

// The weight of a row in a panel of 16 rows; `line` is the first of the macro-block's lines.
struct F32Panel {
    static constexpr int BYTES = 4;
    static __device__ __forceinline__ float weight(const byte* panel, int row, int column) {
        return reinterpret_cast<const float*>(panel)[column * PANEL_ROWS + row];
    }
};
template <class T> struct HalfPanel {
    static constexpr int BYTES = 2;
    // Two columns share a word.
    static __device__ __forceinline__ float weight(const byte* panel, int row, int column) {
        return to_f32(reinterpret_cast<const T*>(panel)[(column / 2 * PANEL_ROWS + row) * 2 + column % 2]);
    }
};

// A block has 16 threads for the rows of a panel, times 16: one activation row each, of which several share the weights
// that they load at the same time.
template <class P>
__device__ __forceinline__ void matmul_floats(const MatmulPart* parts, int part_count, const float* input, int input_stride, int row_count,
                                              int columns, int padded) {
    const MatmulPart& part = part_of_panel(parts, part_count, blockIdx.x);
    int number = blockIdx.x - part.first_panel;
    const byte* panel = part.weights + (long long)number * padded * PANEL_ROWS * P::BYTES;
    int own_row = threadIdx.x % PANEL_ROWS, output = number * PANEL_ROWS + own_row;
    int row = blockIdx.y * (blockDim.x / PANEL_ROWS) + threadIdx.x / PANEL_ROWS;
    if (row >= row_count || output >= part.outputs) return;
    const float* x = input + (long long)row * input_stride;
    float sum = 0.0f;
#pragma unroll 8
    for (int column = 0; column < columns; column++) sum = fmaf(P::weight(panel, own_row, column), x[column], sum);
    store_output(part, row, output, sum);
}

#define FLOAT_PARAMETERS \
    (const MatmulPart* parts, int part_count, const float* input, int input_stride, const int* row_count, int columns, int padded)
#define FLOAT_ARGUMENTS parts, part_count, input, input_stride, *row_count, columns, padded

ENTRY(matmul_floats_f32, 256, FLOAT_PARAMETERS, matmul_floats<F32Panel>(FLOAT_ARGUMENTS))
ENTRY(matmul_floats_f16, 256, FLOAT_PARAMETERS, matmul_floats<HalfPanel<f16>>(FLOAT_ARGUMENTS))
ENTRY(matmul_floats_bf16, 256, FLOAT_PARAMETERS, matmul_floats<HalfPanel<bf16>>(FLOAT_ARGUMENTS))
