// Muon (https://kellerjordan.github.io/posts/muon/): the element-wise work around the Newton-Schulz matmuls
// that orthogonalize a matrix's update. The update overwrites the gradient.
#include "optimizer.cuh"

// Follows the values of Adam, which updates all other tensors.
enum OfMuon { OF_MOMENTUM = DECOUPLED + 1, OF_SHARE, OF_NESTEROV, OF_DECAY, OF_LEAST };

// All parts of a matrix.
struct Whole {
    int tensor;
    int first;
    int parts;
    int unused;
};

// Updates the momentum, replaces gradients by updates, and accumulates the squares of the updates.
__device__ __forceinline__ void changes(const Tensor* tensors, const Part* parts, const Step* step, double* sums) {
    __shared__ double of_warps[PART_THREADS / LANES];
    const Part part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    if (step->finite == 0) return;
    int count = count_of(part, tensor);
    float factor = (float)step->factor, momentum = (float)step->said[OF_MOMENTUM];
    float share = (float)step->said[OF_SHARE];
    bool nesterov = step->said[OF_NESTEROV] != 0;
    float* averages = (float*)tensor.slots[0];
    double sum = 0;
    for (int i = threadIdx.x; i < count; i += PART_THREADS) {
        long long at = first_of(part) + i;
        float gradient = tensor.gradient[at] * factor, average = between(averages[at], gradient, share);
        averages[at] = average;
        float change = nesterov ? between(gradient, average, momentum) : average;
        tensor.gradient[at] = change;
        sum += (double)change * change;
    }
    sum = sum_of_block(sum, of_warps);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// Computes the Frobenius norm of each matrix, one block each.
__device__ __forceinline__ void lengths(const Whole* all, const Step* step, const double* sums, double* lengths) {
    __shared__ double of_warps[PART_THREADS / LANES];
    const Whole whole = all[blockIdx.x];
    if (step->finite == 0) return;
    double sum = 0;
    for (int i = threadIdx.x; i < whole.parts; i += PART_THREADS) sum += sums[whole.first + i];
    sum = sum_of_block(sum, of_warps);
    if (threadIdx.x == 0) lengths[whole.tensor] = max(sqrt(sum), step->said[OF_LEAST]);
}

// Normalizes updates to norm 1. If gradients are not finite, writes zeros, so that the matmuls stay finite.
__device__ __forceinline__ void units(const Tensor* tensors, const Part* parts, const Step* step, const double* lengths) {
    const Part part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    int count = count_of(part, tensor);
    bool finite = step->finite != 0;
    float length = finite ? (float)lengths[part.tensor] : 1;
    for (int i = threadIdx.x; i < count; i += PART_THREADS) {
        float* change = tensor.gradient + first_of(part) + i;
        *change = finite ? *change / length : 0;
    }
}

// Given G = X Xᵀ and the coefficients a, b and c of X, G X and G² X: writes a + b G to `sum` and c G to
// `scaled`.
__device__ __forceinline__ void polynomial(const float* gram, float a, float b, float c, float* sum, float* scaled,
                                           int height) {
    long long count = (long long)height * height, step = gridDim.x * (long long)blockDim.x;
    for (long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x; at < count; at += step) {
        sum[at] = b * gram[at] + (at / height == at % height ? a : 0);
        scaled[at] = c * gram[at];
    }
}

// Applies the orthogonalized update to the weights of one matrix.
template <class T>
__device__ void muon(const Tensor* tensors, const Part* parts, const Step* step, const float* changes, float adjust) {
    const Part part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    int count = count_of(part, tensor);
    double rate = step->rate * tensor.rate;
    float far = (float)(rate * adjust), keep = (float)(1 - rate * step->said[OF_DECAY] * tensor.decay);
    bool finite = step->finite != 0;
    for (int i = threadIdx.x; i < count; i += PART_THREADS) {
        long long at = first_of(part) + i;
        float own = changes[at];
        tensor.gradient[at] = 0;
        if (finite) change<T>(tensor, at, tensor.numbers[at] * keep - far * own);
    }
}

ENTRY(muon_changes, PART_THREADS, (const Tensor* tensors, const Part* parts, const Step* step, double* sums),
      changes(tensors, parts, step, sums))
ENTRY(muon_lengths, PART_THREADS, (const Whole* all, const Step* step, const double* sums, double* to),
      lengths(all, step, sums, to))
ENTRY(muon_units, PART_THREADS, (const Tensor* tensors, const Part* parts, const Step* step, const double* lengths),
      units(tensors, parts, step, lengths))
ENTRY(muon_polynomial, 256, (const float* gram, float a, float b, float c, float* sum, float* scaled, int height),
      polynomial(gram, a, b, c, sum, scaled, height))

#define KERNELS(T, type)                                                                                         \
    ENTRY(muon_##type, PART_THREADS,                                                                             \
          (const Tensor* tensors, const Part* parts, const Step* step, const float* changes, float adjust),      \
          muon<T>(tensors, parts, step, changes, adjust))
FOR_EACH_TYPE(KERNELS)
