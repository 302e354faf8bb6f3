// Pooling of sequences to embeddings, and the contrastive loss (InfoNCE, arXiv:1807.03748): the cross-entropy
// of each anchor's similarities to all sequences that are not anchors. Embeddings are f32, whatever the
// element type of the rows.
#include "common.cuh"

#define THREADS 512

// How a sequence is pooled into an embedding.
enum Pooling { MEAN, CLS, LAST };

// The rows of a sequence.
struct Span {
    int start;
    int end;
};

// Computes an embedding for each sequence; blockIdx.y is the sequence. Rows of x have stride `width`.
template <class T>
__device__ void pool_sequences(const T* x, const Span* spans, int how, float* pooled, int columns, int width) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    Span span = spans[blockIdx.y];
    int first = how == LAST ? span.end - 1 : span.start, end = how == CLS ? span.start + 1 : span.end;
    float sum = 0;
    for (int row = first; row < end; row++) sum += to_f32(x[(long long)row * width + column]);
    pooled[(long long)blockIdx.y * columns + column] = sum / (end - first);
}

// Normalizes the first `width` columns of the embeddings, in the given order, to L2 norm 1. A warp handles
// one sequence.
__device__ __forceinline__ void normalize(const float* pooled, const int* order, float* units, float* norms,
                                               int sequences, int columns, int width) {
    int place = blockIdx.x * warps() + warp();
    if (place >= sequences) return;
    const float* x = pooled + (long long)order[place] * columns;
    float sum = 0;
    for (int i = lane(); i < width; i += LANES) sum += x[i] * x[i];
    float norm = max(sqrtf(warp_sum(sum)), 1e-12f);
    for (int i = lane(); i < width; i += LANES) units[(long long)place * width + i] = x[i] / norm;
    if (lane() == 0) norms[place] = norm;
}

// A block handles the scores of an anchor and replaces them by their gradient. `own` has the index of its
// match. Row n of `results` receives the loss, 1, and whether the match has the highest score.
__device__ __forceinline__ void contrastive_row(float* scores, const int* own, float factor, const double* scale,
                                           int parts, float* results, int count, int back) {
    __shared__ float of_warps[THREADS / LANES];
    float* x = scores + (long long)blockIdx.x * count;
    int positive = own[blockIdx.x];
    float maximum = -infinity();
    for (int i = threadIdx.x; i < count; i += THREADS) maximum = max(maximum, x[i] * factor);
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2) maximum = max(maximum, shuffle_xor(maximum, mask));
    if (lane() == 0) of_warps[warp()] = maximum;
    sync_block();
    for (int i = 0; i < THREADS / LANES; i++) maximum = max(maximum, of_warps[i]);
    sync_block();
    float sum = 0;
    for (int i = threadIdx.x; i < count; i += THREADS) sum += expf(x[i] * factor - maximum);
    float total = maximum + logf(block_sum(sum, of_warps)), of_positive = x[positive] * factor;
    sync_block();
    if (threadIdx.x == 0) {
        float* result = results + 3 * blockIdx.x;
        result[0] = total - of_positive;
        result[1] = 1;
        result[2] = of_positive >= maximum ? 1 : 0;
    }
    if (!back) return;
    float weight = (float)(*scale / parts) * factor;
    for (int i = threadIdx.x; i < count; i += THREADS) {
        x[i] = (expf(x[i] * factor - total) - (i == positive ? 1 : 0)) * weight;
    }
}

// Accumulates the gradients of embeddings from those of the normalized ones. A warp handles one sequence.
__device__ __forceinline__ void add_embedding_gradients(const float* units, const float* gradient, const float* norms,
                                               const int* order, float* pooled_gradient, int sequences, int columns, int width) {
    int place = blockIdx.x * warps() + warp();
    if (place >= sequences) return;
    const float* unit = units + (long long)place * width;
    const float* own = gradient + (long long)place * width;
    float* to = pooled_gradient + (long long)order[place] * columns;
    float inner = 0;
    for (int i = lane(); i < width; i += LANES) inner += unit[i] * own[i];
    inner = warp_sum(inner);
    for (int i = lane(); i < width; i += LANES) to[i] += (own[i] - unit[i] * inner) / norms[place];
}

// Computes the gradients of rows from those of the embeddings of their sequences.
template <class T>
__device__ void unpool_sequences(const float* pooled_gradient, const int* sequence_of, const Span* spans, int how, T* out, int rows,
                             int columns, int width) {
    for_each_element_2d<T>(rows, columns, false, [&](int row, int column, auto) {
        int sequence = sequence_of[row];
        Span span = spans[sequence];
        bool counts = how == MEAN || row == (how == CLS ? span.start : span.end - 1);
        float weight = how == MEAN ? 1.0f / (span.end - span.start) : 1;
        from_f32(out[(long long)row * width + column], counts ? pooled_gradient[(long long)sequence * columns + column] * weight : 0);
    });
}

ENTRY(normalize_embeddings, 256,
      (const float* pooled, const int* order, float* units, float* norms, int sequences, int columns, int width),
      normalize(pooled, order, units, norms, sequences, columns, width))
ENTRY(contrastive_rows, THREADS,
      (float* scores, const int* own, float factor, const double* scale, int parts, float* results, int count, int back),
      contrastive_row(scores, own, factor, scale, parts, results, count, back))
ENTRY(embedding_gradients, 256,
      (const float* units, const float* gradient, const float* norms, const int* order, float* pooled_gradient, int sequences,
       int columns, int width),
      add_embedding_gradients(units, gradient, norms, order, pooled_gradient, sequences, columns, width))

#define KERNELS(T, type)                                                                                            \
    ENTRY(pool_sequences_##type, 256,                                                                                   \
          (const T* x, const Span* spans, int how, float* pooled, int columns, int width),                          \
          pool_sequences(x, spans, how, pooled, columns, width))                                                        \
    ENTRY(unpool_sequences_##type, 256,                                                                                 \
          (const float* pooled_gradient, const int* sequence_of, const Span* spans, int how, T* out, int rows, int columns,       \
           int width),                                                                                              \
          unpool_sequences(pooled_gradient, sequence_of, spans, how, out, rows, columns, width))
FOR_EACH_TYPE(KERNELS)
