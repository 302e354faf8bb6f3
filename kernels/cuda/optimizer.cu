// Global gradient norm, gradient clipping and the check for non-finite gradients.
#include "optimizer.cuh"

__device__ __forceinline__ void squares(const Tensor* tensors, const Part* parts, double* sums) {
    __shared__ double of_warps[PART_THREADS / LANES];
    const Part part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    int count = count_of(part, tensor);
    const float* gradient = tensor.gradient + first_of(part);
    double sum = 0;
    for (int i = threadIdx.x; i < count; i += PART_THREADS) sum += (double)gradient[i] * gradient[i];
    sum = sum_of_block(sum, of_warps);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// In one block.
__device__ __forceinline__ void judge(const double* sums, int count, Step* step) {
    __shared__ double of_warps[PART_THREADS / LANES];
    double sum = 0;
    for (int i = threadIdx.x; i < count; i += PART_THREADS) sum += sums[i];
    sum = sum_of_block(sum, of_warps);
    if (threadIdx.x > 0) return;
    double length = sqrt(sum);
    double shorter = step->limit > 0 ? step->limit / (length / step->scale + 1e-6) : 1;
    step->length = length;
    step->factor = (shorter < 1 ? shorter : 1) / step->scale;
    step->finite = isfinite(sum) ? 1 : 0;
}

ENTRY(squares_of_all, PART_THREADS, (const Tensor* tensors, const Part* parts, double* sums),
      squares(tensors, parts, sums))
ENTRY(judge_step, PART_THREADS, (const double* sums, int count, Step* step), judge(sums, count, step))
