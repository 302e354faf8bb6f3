// Adafactor (arXiv:1804.04235): for a matrix, keeps running row and column means of the squared gradient; for
// a vector, keeps every element.
#include "optimizer.cuh"

enum OfAdafactor {
    OF_WEIGHT,
    OF_MIN_SQUARE,
    OF_EPSILON,
    OF_MIN_RMS,
    OF_LIMIT,
    OF_DECAY,
    // Whether steps are scaled by the RMS of the tensor.
    OF_SCALE_PARAMETER,
    // The relative learning rate, or 0 to use the given one; then the maximum of the given one.
    OF_RELATIVE,
    OF_MAX_RATE
};

// The rows of a matrix, or all elements of a vector, that a block processes.
struct Rows {
    int tensor;
    int first;
    int end;
    // Offset of the partial sums of its columns.
    int partials;
};

// Some columns of a matrix, and the number of their partial sums.
struct Columns {
    int tensor;
    int first;
    int partials;
    int parts;
};

// All parts of a tensor.
struct Whole {
    int tensor;
    int first;
    int parts;
    int unused;
};

__device__ __forceinline__ double square_of(float gradient, float factor) {
    double x = gradient * factor;
    return x * x;
}

// Updates the row averages of the squares, and accumulates partial column sums.
__device__ __forceinline__ void row_squares(const Tensor* tensors, const Rows* parts, const Step* step, double* partials) {
    const Rows part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    if (step->finite == 0) return;
    float gradient_weight = (float)step->values[OF_WEIGHT], factor = (float)step->factor;
    float* averages = (float*)tensor.slots[0];
    if (!tensor.slots[1]) {
        for (long long i = threadIdx.x; i < tensor.count; i += PART_THREADS) {
            float gradient = tensor.gradient[i] * factor;
            averages[i] = interpolate(averages[i], gradient * gradient, gradient_weight);
        }
        return;
    }
    for (int row = part.first + warp(); row < part.end; row += PART_THREADS / LANES) {
        const float* gradient = tensor.gradient + (long long)row * tensor.columns;
        double sum = 0;
        for (int i = lane(); i < tensor.columns; i += LANES) sum += square_of(gradient[i], factor);
        sum = warp_sum(sum);
        if (lane() == 0) averages[row] = interpolate(averages[row], (float)(sum / tensor.columns), gradient_weight);
    }
    for (int column = threadIdx.x; column < tensor.columns; column += PART_THREADS) {
        double sum = 0;
        for (int row = part.first; row < part.end; row++) {
            sum += square_of(tensor.gradient[(long long)row * tensor.columns + column], factor);
        }
        partials[part.partials + column] = sum;
    }
}

// Updates the column averages from the partial sums; the first block of a matrix computes the mean of its
// rows.
__device__ __forceinline__ void column_squares(const Tensor* tensors, const Columns* parts, const Step* step,
                                                   const double* partials, double* means) {
    __shared__ double of_warps[PART_THREADS / LANES];
    const Columns part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    if (step->finite == 0) return;
    int column = part.first + threadIdx.x;
    if (column < tensor.columns) {
        double sum = 0;
        for (int i = 0; i < part.parts; i++) sum += partials[part.partials + (long long)i * tensor.columns + column];
        float* average = (float*)tensor.slots[1] + column;
        *average = interpolate(*average, (float)(sum / tensor.rows), (float)step->values[OF_WEIGHT]);
    }
    if (part.first > 0) return;
    const float* rows = (const float*)tensor.slots[0];
    double sum = 0;
    for (int i = threadIdx.x; i < tensor.rows; i += PART_THREADS) sum += rows[i];
    sum = block_sum(sum, of_warps);
    if (threadIdx.x == 0) means[part.tensor] = sum / tensor.rows;
}

// Calls work(index, update) for the elements of a part.
template <class Work>
__device__ __forceinline__ void for_each_update(const Tensor& tensor, const Rows& part, const Step* step,
                                                const double* means, Work work) {
    float factor = (float)step->factor, least = (float)step->values[OF_MIN_SQUARE];
    const float* rows = (const float*)tensor.slots[0];
    const float* columns = (const float*)tensor.slots[1];
    float mean = columns ? max((float)means[part.tensor], (float)step->values[OF_EPSILON]) : 0;
    long long end = columns ? (long long)part.end * tensor.columns : tensor.count;
    long long first = columns ? (long long)part.first * tensor.columns : 0;
    for (long long at = first + threadIdx.x; at < end; at += PART_THREADS) {
        float square = columns ? rows[at / tensor.columns] * columns[at % tensor.columns] / mean : rows[at];
        work(at, tensor.gradient[at] * factor * (1 / sqrtf(max(square, least))));
    }
}

// Accumulates the sums of squares of updates and of weights.
__device__ __forceinline__ void sum_squares(const Tensor* tensors, const Rows* parts, const Step* step, const double* means,
                                      double* sums) {
    __shared__ double of_warps[PART_THREADS / LANES];
    const Rows part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    if (step->finite == 0) return;
    double of_updates = 0, of_weights = 0;
    for_each_update(tensor, part, step, means, [&](long long at, float change) {
        of_updates += (double)change * change;
        of_weights += (double)tensor.data[at] * tensor.data[at];
    });
    of_updates = block_sum(of_updates, of_warps);
    of_weights = block_sum(of_weights, of_warps);
    if (threadIdx.x > 0) return;
    sums[2 * blockIdx.x] = of_updates;
    sums[2 * blockIdx.x + 1] = of_weights;
}

// Computes the step size of each tensor, one block each.
__device__ __forceinline__ void step_sizes(const Tensor* tensors, const Whole* all, const Step* step, const double* sums,
                                      double* step_sizes) {
    __shared__ double of_warps[PART_THREADS / LANES];
    const Whole whole = all[blockIdx.x];
    const Tensor tensor = tensors[whole.tensor];
    if (step->finite == 0) return;
    double of_updates = 0, of_weights = 0;
    for (int i = threadIdx.x; i < whole.parts; i += PART_THREADS) {
        of_updates += sums[2 * (whole.first + i)];
        of_weights += sums[2 * (whole.first + i) + 1];
    }
    of_updates = block_sum(of_updates, of_warps);
    of_weights = block_sum(of_weights, of_warps);
    if (threadIdx.x > 0) return;
    const double* values = step->values;
    double given = step->learning_rate * tensor.lr_factor;
    double rate = values[OF_RELATIVE] > 0 ? values[OF_RELATIVE] : min(given, values[OF_MAX_RATE]);
    double size = values[OF_SCALE_PARAMETER] != 0 ? sqrt(of_weights / tensor.count) : 1;
    double base_step = max(size, values[OF_MIN_RMS]) * rate;
    step_sizes[whole.tensor] = base_step / max(sqrt(of_updates / tensor.count) / values[OF_LIMIT], 1.0);
}

template <class T>
__device__ void adafactor(const Tensor* tensors, const Rows* parts, const Step* step, const double* means,
                          const double* step_sizes) {
    const Rows part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    bool finite = step->finite != 0;
    double rate = step->values[OF_RELATIVE] > 0 ? step->values[OF_RELATIVE] : step->learning_rate * tensor.lr_factor;
    float keep = (float)(1 - rate * step->values[OF_DECAY] * tensor.weight_decay_factor);
    float base_step = finite ? (float)step_sizes[part.tensor] : 0;
    if (finite) {
        for_each_update(tensor, part, step, means, [&](long long at, float step_size) {
            set_weight<T>(tensor, at, tensor.data[at] * keep - base_step * step_size);
        });
    }
    long long end = tensor.slots[1] ? (long long)part.end * tensor.columns : tensor.count;
    long long first = tensor.slots[1] ? (long long)part.first * tensor.columns : 0;
    for (long long at = first + threadIdx.x; at < end; at += PART_THREADS) tensor.gradient[at] = 0;
}

ENTRY(adafactor_rows, PART_THREADS, (const Tensor* tensors, const Rows* parts, const Step* step, double* partials),
      row_squares(tensors, parts, step, partials))
ENTRY(adafactor_columns, PART_THREADS,
      (const Tensor* tensors, const Columns* parts, const Step* step, const double* partials, double* means),
      column_squares(tensors, parts, step, partials, means))
ENTRY(adafactor_rms, PART_THREADS,
      (const Tensor* tensors, const Rows* parts, const Step* step, const double* means, double* sums),
      sum_squares(tensors, parts, step, means, sums))
ENTRY(adafactor_step_sizes, PART_THREADS,
      (const Tensor* tensors, const Whole* all, const Step* step, const double* sums, double* to),
      step_sizes(tensors, all, step, sums, to))

#define KERNELS(T, type)                                                                                              \
    ENTRY(adafactor_##type, PART_THREADS,                                                                             \
          (const Tensor* tensors, const Rows* parts, const Step* step, const double* means, const double* step_sizes),     \
          adafactor<T>(tensors, parts, step, means, step_sizes))
FOR_EACH_TYPE(KERNELS)
