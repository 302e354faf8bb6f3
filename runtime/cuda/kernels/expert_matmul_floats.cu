// Matmuls of experts with panels of floats: each output is one chain of fused multiply-adds in order of columns.
#include "exact.cuh"
#include "expert_matmul.cuh"

__device__ __forceinline__ float panel_float(const float* panel, int row, int column) { return panel[column * PANEL_ROWS + row]; }

// Two columns share a word.
template <class T> __device__ __forceinline__ float panel_float(const T* panel, int row, int column) {
    return to_f32(panel[(column / 2 * PANEL_ROWS + row) * 2 + column % 2]);
}

// A block has 16 threads for the rows of a panel, for each of 16 slots.
template <class T>
__device__ __forceinline__ void multiply_floats(const MatmulPart* parts, const int* slot_table, const float* input, int input_stride,
                                                int columns, int padded) {
    const MatmulPart& part = parts[blockIdx.y];
    ExpertSlots slots = slots_of_expert(slot_table, part.first_panel);
    int own_row = threadIdx.x % PANEL_ROWS, output = blockIdx.x * PANEL_ROWS + own_row;
    if (output >= part.outputs) return;
    const T* panel = reinterpret_cast<const T*>(part.weights) + (long long)blockIdx.x * padded * PANEL_ROWS;
    for (int slot = slots.start + threadIdx.x / PANEL_ROWS; slot < slots.end; slot += blockDim.x / PANEL_ROWS) {
        const float* x = input + (long long)slot * input_stride;
        float sum = 0.0f;
#pragma unroll 8
        for (int column = 0; column < columns; column++) sum = fmaf(panel_float(panel, own_row, column), x[column], sum);
        store_output(part, slot, output, sum);
    }
}

#define EXPERT_FLOATS(T, name) \
    ENTRY(expert_floats_##name, 256, \
          (const MatmulPart* parts, const int* slots, const float* input, int input_stride, int columns, int padded), \
          multiply_floats<T>(parts, slots, input, input_stride, columns, padded))
FOR_EACH_TYPE(EXPERT_FLOATS)
