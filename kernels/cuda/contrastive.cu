// Pooling of sequences to embeddings, and the contrastive loss (InfoNCE, arXiv:1807.03748): the cross-entropy
// of each anchor's similarities to all sequences that are not anchors. Embeddings are f32, whatever the
// element type of the rows.
#include "common.cuh"

#define THREADS 512

// How a sequence is pooled to an embedding.
enum Pooling { MEAN, FIRST, LAST };

// The rows of a sequence.
struct Span {
    int start;
    int end;
};

// Computes an embedding for each sequence; blockIdx.y is the sequence. Rows of x have stride `width`.
template <class T>
__device__ void pool_texts(const T* x, const Span* spans, int how, float* pooled, int columns, int width) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    Span span = spans[blockIdx.y];
    int first = how == LAST ? span.end - 1 : span.start, end = how == FIRST ? span.start + 1 : span.end;
    float sum = 0;
    for (int row = first; row < end; row++) sum += number(x[(long long)row * width + column]);
    pooled[(long long)blockIdx.y * columns + column] = sum / (end - first);
}

// Normalizes the first `width` columns of the embeddings, in the given order, to L2 norm 1. A warp handles
// one sequence.
__device__ __forceinline__ void make_units(const float* pooled, const int* order, float* units, float* lengths,
                                               int texts, int columns, int width) {
    int place = blockIdx.x * warps() + warp();
    if (place >= texts) return;
    const float* x = pooled + (long long)order[place] * columns;
    float sum = 0;
    for (int i = lane(); i < width; i += LANES) sum += x[i] * x[i];
    float length = max(sqrtf(sum_of_warp(sum)), 1e-12f);
    for (int i = lane(); i < width; i += LANES) units[(long long)place * width + i] = x[i] / length;
    if (lane() == 0) lengths[place] = length;
}

// A block handles the scores of an anchor and replaces them by their gradient. `own` has the index of its
// match. Row n of `results` receives the loss, 1, and whether the match has the highest score.
__device__ __forceinline__ void tell_apart(float* scores, const int* own, float factor, const double* scale,
                                           int parts, float* results, int count, int back) {
    __shared__ float of_warps[THREADS / LANES];
    float* x = scores + (long long)blockIdx.x * count;
    int match = own[blockIdx.x];
    float most = -infinity();
    for (int i = threadIdx.x; i < count; i += THREADS) most = max(most, x[i] * factor);
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2) most = max(most, across(most, mask));
    if (lane() == 0) of_warps[warp()] = most;
    meet();
    for (int i = 0; i < THREADS / LANES; i++) most = max(most, of_warps[i]);
    meet();
    float sum = 0;
    for (int i = threadIdx.x; i < count; i += THREADS) sum += expf(x[i] * factor - most);
    float total = most + logf(sum_of_block(sum, of_warps)), of_match = x[match] * factor;
    meet();
    if (threadIdx.x == 0) {
        float* result = results + 3 * blockIdx.x;
        result[0] = total - of_match;
        result[1] = 1;
        result[2] = of_match >= most ? 1 : 0;
    }
    if (!back) return;
    float share = (float)(*scale / parts) * factor;
    for (int i = threadIdx.x; i < count; i += THREADS) {
        x[i] = (expf(x[i] * factor - total) - (i == match ? 1 : 0)) * share;
    }
}

// Accumulates the gradients of embeddings from those of the normalized ones. A warp handles one sequence.
__device__ __forceinline__ void add_steep(const float* units, const float* gradient, const float* lengths,
                                               const int* order, float* steep, int texts, int columns, int width) {
    int place = blockIdx.x * warps() + warp();
    if (place >= texts) return;
    const float* unit = units + (long long)place * width;
    const float* own = gradient + (long long)place * width;
    float* to = steep + (long long)order[place] * columns;
    float along = 0;
    for (int i = lane(); i < width; i += LANES) along += unit[i] * own[i];
    along = sum_of_warp(along);
    for (int i = lane(); i < width; i += LANES) to[i] += (own[i] - unit[i] * along) / lengths[place];
}

// Computes the gradients of rows from those of the embeddings of their sequences.
template <class T>
__device__ void unpool_texts(const float* steep, const int* text_of, const Span* spans, int how, T* out, int rows,
                             int columns, int width) {
    for_each_cell<T>(rows, columns, false, [&](int row, int column, auto) {
        int text = text_of[row];
        Span span = spans[text];
        bool counts = how == MEAN || row == (how == FIRST ? span.start : span.end - 1);
        float share = how == MEAN ? 1.0f / (span.end - span.start) : 1;
        set(out[(long long)row * width + column], counts ? steep[(long long)text * columns + column] * share : 0);
    });
}

ENTRY(units_of_texts, 256,
      (const float* pooled, const int* order, float* units, float* lengths, int texts, int columns, int width),
      make_units(pooled, order, units, lengths, texts, columns, width))
ENTRY(contrastive_rows, THREADS,
      (float* scores, const int* own, float factor, const double* scale, int parts, float* results, int count, int back),
      tell_apart(scores, own, factor, scale, parts, results, count, back))
ENTRY(steep_of_texts, 256,
      (const float* units, const float* gradient, const float* lengths, const int* order, float* steep, int texts,
       int columns, int width),
      add_steep(units, gradient, lengths, order, steep, texts, columns, width))

#define KERNELS(T, type)                                                                                            \
    ENTRY(pool_texts_##type, 256,                                                                                   \
          (const T* x, const Span* spans, int how, float* pooled, int columns, int width),                          \
          pool_texts(x, spans, how, pooled, columns, width))                                                        \
    ENTRY(unpool_texts_##type, 256,                                                                                 \
          (const float* steep, const int* text_of, const Span* spans, int how, T* out, int rows, int columns,       \
           int width),                                                                                              \
          unpool_texts(steep, text_of, spans, how, out, rows, columns, width))
FOR_EACH_TYPE(KERNELS)
