// Global gradient norm, gradient clipping and the check for non-finite gradients.
#include "optimizer.cuh"

__device__ __forceinline__ void sum_squares(const Tensor* tensors, const Part* parts, double* sums) {
    __shared__ double of_warps[PART_THREADS / LANES];
    const Part part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    double sum = 0;
    for_each_of_part(part, tensor, [&](long long at, auto size) {
        constexpr int COUNT = decltype(size)::value;
        float gradients[COUNT];
        read<COUNT>(gradients, tensor.gradient + at);
#pragma unroll
        for (int i = 0; i < COUNT; i++) sum += (double)gradients[i] * gradients[i];
    });
    sum = block_sum(sum, of_warps);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// In one block.
__device__ __forceinline__ void compute_grad_norm(const double* sums, int count, Step* step) {
    __shared__ double of_warps[PART_THREADS / LANES];
    double sum = 0;
    for (int i = threadIdx.x; i < count; i += PART_THREADS) sum += sums[i];
    sum = block_sum(sum, of_warps);
    if (threadIdx.x > 0) return;
    double length = sqrt(sum);
    double shorter = step->max_grad_norm > 0 ? step->max_grad_norm / (length / step->loss_scale + 1e-6) : 1;
    step->grad_norm = length;
    step->factor = (shorter < 1 ? shorter : 1) / step->loss_scale;
    step->finite = isfinite(sum) ? 1 : 0;
}

ENTRY(grad_squares, PART_THREADS, (const Tensor* tensors, const Part* parts, double* sums),
      sum_squares(tensors, parts, sums))
ENTRY(grad_norm, PART_THREADS, (const double* sums, int count, Step* step), compute_grad_norm(sums, count, step))
