// Adafactor (arXiv:1804.04235): for a matrix, keeps running row and column means of the squared gradient; for
// a vector, keeps every element.
#include "optimizer.cuh"

enum OfAdafactor {
    OF_SHARE,
    OF_LEAST,
    OF_EPSILON,
    OF_LEAST_SIZE,
    OF_LIMIT,
    OF_DECAY,
    // Whether steps are scaled by the RMS of the tensor.
    OF_SIZE,
    // The relative learning rate, or 0 to use the given one; then the maximum of the given one.
    OF_RELATIVE,
    OF_MOST
};

// The rows of a matrix, or all elements of a vector, that a block processes.
struct Rows {
    int tensor;
    int first;
    int end;
    // Offset of the partial sums of its columns.
    int room;
};

// Some columns of a matrix, and the number of their partial sums.
struct Columns {
    int tensor;
    int first;
    int room;
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
__device__ __forceinline__ void squares_of_rows(const Tensor* tensors, const Rows* parts, const Step* step, double* room) {
    const Rows part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    if (step->finite == 0) return;
    float share = (float)step->said[OF_SHARE], factor = (float)step->factor;
    float* averages = (float*)tensor.slots[0];
    if (!tensor.slots[1]) {
        for (long long i = threadIdx.x; i < tensor.count; i += PART_THREADS) {
            float gradient = tensor.gradient[i] * factor;
            averages[i] = between(averages[i], gradient * gradient, share);
        }
        return;
    }
    for (int row = part.first + warp(); row < part.end; row += PART_THREADS / LANES) {
        const float* gradient = tensor.gradient + (long long)row * tensor.columns;
        double sum = 0;
        for (int i = lane(); i < tensor.columns; i += LANES) sum += square_of(gradient[i], factor);
        sum = sum_of_warp(sum);
        if (lane() == 0) averages[row] = between(averages[row], (float)(sum / tensor.columns), share);
    }
    for (int column = threadIdx.x; column < tensor.columns; column += PART_THREADS) {
        double sum = 0;
        for (int row = part.first; row < part.end; row++) {
            sum += square_of(tensor.gradient[(long long)row * tensor.columns + column], factor);
        }
        room[part.room + column] = sum;
    }
}

// Updates the column averages from the partial sums; the first block of a matrix computes the mean of its
// rows.
__device__ __forceinline__ void squares_of_columns(const Tensor* tensors, const Columns* parts, const Step* step,
                                                   const double* room, double* means) {
    __shared__ double of_warps[PART_THREADS / LANES];
    const Columns part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    if (step->finite == 0) return;
    int column = part.first + threadIdx.x;
    if (column < tensor.columns) {
        double sum = 0;
        for (int i = 0; i < part.parts; i++) sum += room[part.room + (long long)i * tensor.columns + column];
        float* average = (float*)tensor.slots[1] + column;
        *average = between(*average, (float)(sum / tensor.rows), (float)step->said[OF_SHARE]);
    }
    if (part.first > 0) return;
    const float* rows = (const float*)tensor.slots[0];
    double sum = 0;
    for (int i = threadIdx.x; i < tensor.rows; i += PART_THREADS) sum += rows[i];
    sum = sum_of_block(sum, of_warps);
    if (threadIdx.x == 0) means[part.tensor] = sum / tensor.rows;
}

// Calls work(index, update) for the elements of a part.
template <class Work>
__device__ __forceinline__ void for_each_change(const Tensor& tensor, const Rows& part, const Step* step,
                                                const double* means, Work work) {
    float factor = (float)step->factor, least = (float)step->said[OF_LEAST];
    const float* rows = (const float*)tensor.slots[0];
    const float* columns = (const float*)tensor.slots[1];
    float mean = columns ? max((float)means[part.tensor], (float)step->said[OF_EPSILON]) : 0;
    long long end = columns ? (long long)part.end * tensor.columns : tensor.count;
    long long first = columns ? (long long)part.first * tensor.columns : 0;
    for (long long at = first + threadIdx.x; at < end; at += PART_THREADS) {
        float square = columns ? rows[at / tensor.columns] * columns[at % tensor.columns] / mean : rows[at];
        work(at, tensor.gradient[at] * factor * (1 / sqrtf(max(square, least))));
    }
}

// Accumulates the sums of squares of updates and of weights.
__device__ __forceinline__ void sizes(const Tensor* tensors, const Rows* parts, const Step* step, const double* means,
                                      double* sums) {
    __shared__ double of_warps[PART_THREADS / LANES];
    const Rows part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    if (step->finite == 0) return;
    double of_changes = 0, of_numbers = 0;
    for_each_change(tensor, part, step, means, [&](long long at, float change) {
        of_changes += (double)change * change;
        of_numbers += (double)tensor.numbers[at] * tensor.numbers[at];
    });
    of_changes = sum_of_block(of_changes, of_warps);
    of_numbers = sum_of_block(of_numbers, of_warps);
    if (threadIdx.x > 0) return;
    sums[2 * blockIdx.x] = of_changes;
    sums[2 * blockIdx.x + 1] = of_numbers;
}

// Computes the step size of each tensor, one block each.
__device__ __forceinline__ void paces(const Tensor* tensors, const Whole* all, const Step* step, const double* sums,
                                      double* paces) {
    __shared__ double of_warps[PART_THREADS / LANES];
    const Whole whole = all[blockIdx.x];
    const Tensor tensor = tensors[whole.tensor];
    if (step->finite == 0) return;
    double of_changes = 0, of_numbers = 0;
    for (int i = threadIdx.x; i < whole.parts; i += PART_THREADS) {
        of_changes += sums[2 * (whole.first + i)];
        of_numbers += sums[2 * (whole.first + i) + 1];
    }
    of_changes = sum_of_block(of_changes, of_warps);
    of_numbers = sum_of_block(of_numbers, of_warps);
    if (threadIdx.x > 0) return;
    const double* said = step->said;
    double given = step->rate * tensor.rate;
    double rate = said[OF_RELATIVE] > 0 ? said[OF_RELATIVE] : min(given, said[OF_MOST]);
    double size = said[OF_SIZE] != 0 ? sqrt(of_numbers / tensor.count) : 1;
    double pace = max(size, said[OF_LEAST_SIZE]) * rate;
    paces[whole.tensor] = pace / max(sqrt(of_changes / tensor.count) / said[OF_LIMIT], 1.0);
}

template <class T>
__device__ void adafactor(const Tensor* tensors, const Rows* parts, const Step* step, const double* means,
                          const double* paces) {
    const Rows part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    bool finite = step->finite != 0;
    double rate = step->said[OF_RELATIVE] > 0 ? step->said[OF_RELATIVE] : step->rate * tensor.rate;
    float keep = (float)(1 - rate * step->said[OF_DECAY] * tensor.decay);
    float pace = finite ? (float)paces[part.tensor] : 0;
    if (finite) {
        for_each_change(tensor, part, step, means, [&](long long at, float far) {
            change<T>(tensor, at, tensor.numbers[at] * keep - pace * far);
        });
    }
    long long end = tensor.slots[1] ? (long long)part.end * tensor.columns : tensor.count;
    long long first = tensor.slots[1] ? (long long)part.first * tensor.columns : 0;
    for (long long at = first + threadIdx.x; at < end; at += PART_THREADS) tensor.gradient[at] = 0;
}

ENTRY(adafactor_rows, PART_THREADS, (const Tensor* tensors, const Rows* parts, const Step* step, double* room),
      squares_of_rows(tensors, parts, step, room))
ENTRY(adafactor_columns, PART_THREADS,
      (const Tensor* tensors, const Columns* parts, const Step* step, const double* room, double* means),
      squares_of_columns(tensors, parts, step, room, means))
ENTRY(adafactor_sizes, PART_THREADS,
      (const Tensor* tensors, const Rows* parts, const Step* step, const double* means, double* sums),
      sizes(tensors, parts, step, means, sums))
ENTRY(adafactor_paces, PART_THREADS,
      (const Tensor* tensors, const Whole* all, const Step* step, const double* sums, double* to),
      paces(tensors, all, step, sums, to))

#define KERNELS(T, type)                                                                                              \
    ENTRY(adafactor_##type, PART_THREADS,                                                                             \
          (const Tensor* tensors, const Rows* parts, const Step* step, const double* means, const double* paces),     \
          adafactor<T>(tensors, parts, step, means, paces))
FOR_EACH_TYPE(KERNELS)
