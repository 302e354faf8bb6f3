// Muon (https://kellerjordan.github.io/posts/muon/): the element-wise work around the Newton-Schulz matmuls
// that orthogonalize a matrix's update. The update overwrites the gradient.
#include "optimizer.cuh"

// Follows the values of Adam, which updates all other tensors.
enum OfMuon { OF_MOMENTUM = DECOUPLED + 1, OF_WEIGHT, OF_NESTEROV, OF_DECAY, OF_MIN_NORM };

// All parts of a matrix.
struct Whole {
    int tensor;
    int first;
    int parts;
    int unused;
};

// Updates the momentum, replaces gradients by updates, and accumulates the squares of the updates.
__device__ __forceinline__ void momentum_updates(const Tensor* tensors, const Part* parts, const Step* step, double* sums) {
    __shared__ double of_warps[PART_THREADS / LANES];
    const Part part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    if (step->finite == 0) return;
    int count = count_of(part, tensor);
    float factor = (float)step->factor, momentum = (float)step->values[OF_MOMENTUM];
    float gradient_weight = (float)step->values[OF_WEIGHT];
    bool nesterov = step->values[OF_NESTEROV] != 0;
    float* averages = (float*)tensor.slots[0];
    double sum = 0;
    for (int i = threadIdx.x; i < count; i += PART_THREADS) {
        long long at = first_of(part) + i;
        float gradient = tensor.gradient[at] * factor, average = interpolate(averages[at], gradient, gradient_weight);
        averages[at] = average;
        float change = nesterov ? interpolate(gradient, average, momentum) : average;
        tensor.gradient[at] = change;
        sum += (double)change * change;
    }
    sum = block_sum(sum, of_warps);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// Computes the Frobenius norm of each matrix, one block each.
__device__ __forceinline__ void norms(const Whole* all, const Step* step, const double* sums, double* norms) {
    __shared__ double of_warps[PART_THREADS / LANES];
    const Whole whole = all[blockIdx.x];
    if (step->finite == 0) return;
    double sum = 0;
    for (int i = threadIdx.x; i < whole.parts; i += PART_THREADS) sum += sums[whole.first + i];
    sum = block_sum(sum, of_warps);
    if (threadIdx.x == 0) norms[whole.tensor] = max(sqrt(sum), step->values[OF_MIN_NORM]);
}

// Normalizes updates to norm 1. If gradients are not finite, writes zeros, so that the matmuls stay finite.
__device__ __forceinline__ void normalize(const Tensor* tensors, const Part* parts, const Step* step, const double* norms) {
    const Part part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    int count = count_of(part, tensor);
    bool finite = step->finite != 0;
    float norm = finite ? (float)norms[part.tensor] : 1;
    for (int i = threadIdx.x; i < count; i += PART_THREADS) {
        float* change = tensor.gradient + first_of(part) + i;
        *change = finite ? *change / norm : 0;
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
__device__ void muon(const Tensor* tensors, const Part* parts, const Step* step, const float* momentum_updates, float lr_adjustment) {
    const Part part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    int count = count_of(part, tensor);
    double rate = step->learning_rate * tensor.lr_factor;
    float step_size = (float)(rate * lr_adjustment), keep = (float)(1 - rate * step->values[OF_DECAY] * tensor.weight_decay_factor);
    bool finite = step->finite != 0;
    for (int i = threadIdx.x; i < count; i += PART_THREADS) {
        long long at = first_of(part) + i;
        float own = momentum_updates[at];
        tensor.gradient[at] = 0;
        if (finite) set_weight<T>(tensor, at, tensor.data[at] * keep - step_size * own);
    }
}

ENTRY(muon_momentum, PART_THREADS, (const Tensor* tensors, const Part* parts, const Step* step, double* sums),
      momentum_updates(tensors, parts, step, sums))
ENTRY(muon_norms, PART_THREADS, (const Whole* all, const Step* step, const double* sums, double* to),
      norms(all, step, sums, to))
ENTRY(muon_normalize, PART_THREADS, (const Tensor* tensors, const Part* parts, const Step* step, const double* norms),
      normalize(tensors, parts, step, norms))
ENTRY(muon_polynomial, 256, (const float* gram, float a, float b, float c, float* sum, float* scaled, int height),
      polynomial(gram, a, b, c, sum, scaled, height))

#define KERNELS(T, type)                                                                                         \
    ENTRY(muon_##type, PART_THREADS,                                                                             \
          (const Tensor* tensors, const Part* parts, const Step* step, const float* momentum_updates, float lr_adjustment),      \
          muon<T>(tensors, parts, step, momentum_updates, lr_adjustment))
FOR_EACH_TYPE(KERNELS)
