// Backward pass of flash attention. Probabilities are recomputed from each query's log-sum-exp. Queries and
// keys have separate kernels, so that each gradient is accumulated by one block, in a fixed order.
#include "attention.cuh"

// Computes the gradients of queries and, if `diagonals` is given, the sums of the gradients of scores over
// equal distances. Tile t of head h has row t · heads + h of `diagonals`, which has `distance_limit` + tile columns
// and is zero-initialized; distance d is at column d + tile - 1 - (key_first - position of the tile's first
// query).
template <int SIZE, class T>
__device__ void attention_backward_queries(Heads<T> queries, Heads<T> keys, Heads<T> values, Heads<T> gradient,
                                       const float* log_sum_exps, const float* delta, T* to, int add,
                                       const QueryTile* tiles, Scores scores, int kv_heads, float* diagonals) {
    using P = TileConfig<T, SIZE>;
    constexpr int STEP = P::step;
    QueryTile tile = tiles[blockIdx.x];
    if (tile.count == 0) return;
    int head = blockIdx.y, kv_head = head / (scores.heads / kv_heads), size = queries.size;
    int width = queries.width;
    queries.data += head * size;
    gradient.data += head * size;
    keys.data += kv_head * size;
    values.data += kv_head * size;
    T* of_queries = (T*)dynamic_shared_memory();
    T* of_gradient = of_queries + P::tile * P::stride;
    T* of_keys = of_gradient + P::tile * P::stride;
    T* of_values = of_keys + STEP * P::stride;
    float* score_grads = (float*)(of_values + STEP * P::stride);

    Query query[2];
    float log_sum_exp[2], row_delta[2];
    bool there[2];
    for (int r = 0; r < 2; r++) {
        int own = warp() * OWN + lane() / 4 + 8 * r;
        long long row = tile.first + min(own, tile.count - 1);
        there[r] = own < tile.count;
        query[r] = query_of(scores, row, (int)row - tile.query_base);
        log_sum_exp[r] = log_sum_exps[row * scores.heads + head];
        row_delta[r] = delta[row * scores.heads + head];
    }
    float sums[SIZE / 8][4] = {};
    load_tile<SIZE, P::tile>(of_queries, queries, tile.first, tile.count);
    load_tile<SIZE, P::tile>(of_gradient, gradient, tile.first, tile.count);
    for (int first = tile.key_first; first < tile.key_end; first += STEP) {
        load_tile<SIZE, STEP>(of_keys, keys, tile.key_base + first, tile.key_end - first);
        load_tile<SIZE, STEP>(of_values, values, tile.key_base + first, tile.key_end - first);
        cp_async_commit();
        cp_async_wait<0>();
        sync_block();
        float probabilities[STEP / 8][4], score_grad[STEP / 8][4];
        product<SIZE, STEP>(probabilities, of_queries + warp() * OWN * P::stride, of_keys);
        product<SIZE, STEP>(score_grad, of_gradient + warp() * OWN * P::stride, of_values);
#pragma unroll
        for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int r = i / 2, key = first + n * 8 + lane() % 4 * 2 + i % 2;
                float slope = 0, probability = 0;
                if (there[r] && is_visible(scores, query[r], key)) {
                    probability = exponential(score(scores, head, query[r], key, probabilities[n][i], slope) - log_sum_exp[r]);
                }
                float before = probability * (score_grad[n][i] - row_delta[r]);
                if (diagonals) score_grads[(warp() * OWN + lane() / 4 + 8 * r) * (STEP + 1) + key - first] = before;
                score_grad[n][i] = before * slope;
            }
        }
        add_product<SIZE, STEP>(sums, score_grad, of_keys);
        sync_block();
        if (diagonals) {
            float* own = diagonals + ((long long)blockIdx.x * scores.heads + head) * (scores.max_distance + P::tile);
            for (int d = threadIdx.x; d < P::tile + STEP - 1; d += P::threads) {
                float sum = 0;
                for (int row = 0; row < P::tile; row++) {
                    int column = d - (P::tile - 1) + row;
                    if (column >= 0 && column < STEP) sum += score_grads[row * (STEP + 1) + column];
                }
                int place = first - tile.key_first + d;
                if (place < scores.max_distance + P::tile) own[place] += sum;
            }
            sync_block();
        }
    }
    cp_async_wait<0>();
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (!there[r]) continue;
        T* out = to + (long long)(tile.first + warp() * OWN + lane() / 4 + 8 * r) * width + head * size;
#pragma unroll
        for (int n = 0; n < SIZE / 8; n++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int column = n * 8 + lane() % 4 * 2 + i;
                if (column < size) store_or_accumulate(out[column], sums[n][2 * r + i] * scores.scale, add);
            }
        }
    }
}

// The gradients that a kernel for keys computes: both in one kernel if the registers suffice.
enum Which { KEYS = 1, VALUES = 2, BOTH = 3 };

template <int WHICH, int SIZE> struct Sums {
    float keys[WHICH & KEYS ? SIZE / 8 : 1][4];
    float values[WHICH & VALUES ? SIZE / 8 : 1][4];
};

template <int SIZE, class T>
__device__ __forceinline__ void store_rows(T* to, int width, int size, const KeyTile& tile,
                                          const float (&sums)[SIZE / 8][4], float factor, bool add) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int own = warp() * OWN + lane() / 4 + 8 * r;
        if (own >= tile.count) continue;
        T* out = to + (long long)(tile.first + own) * width;
#pragma unroll
        for (int n = 0; n < SIZE / 8; n++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int column = n * 8 + lane() % 4 * 2 + i;
                if (column < size) store_or_accumulate(out[column], sums[n][2 * r + i] * factor, add);
            }
        }
    }
}

// Grid: x is the tile of keys, y the KV head. Here warps own keys: matrix rows are keys, columns are queries.
template <int WHICH, int SIZE, class T>
__device__ void attention_backward_keys(Heads<T> queries, Heads<T> keys, Heads<T> values, Heads<T> gradient,
                                    const float* log_sum_exps, const float* delta, T* to_keys, T* to_values, int add_keys,
                                    int add_values, const KeyTile* tiles, Scores scores, int kv_heads) {
    using P = TileConfig<T, SIZE>;
    constexpr int STEP = P::query_step;
    KeyTile tile = tiles[blockIdx.x];
    if (tile.count == 0) return;
    int kv_head = blockIdx.y, group = scores.heads / kv_heads, size = queries.size;
    int key_width = keys.width, value_width = values.width;
    keys.data += kv_head * size;
    values.data += kv_head * size;
    T* of_keys = (T*)dynamic_shared_memory();
    T* of_values = of_keys + P::tile * P::stride;
    T* of_queries = of_values + P::tile * P::stride;
    T* of_gradient = of_queries + STEP * P::stride;
    Sums<WHICH, SIZE> sums = {};
    load_tile<SIZE, P::tile>(of_keys, keys, tile.first, tile.count);
    load_tile<SIZE, P::tile>(of_values, values, tile.first, tile.count);
    int own = warp() * OWN + lane() / 4;
    for (int head = kv_head * group; head < (kv_head + 1) * group; head++) {
        Heads<T> own_queries = {queries.data + head * size, queries.width, size};
        Heads<T> own_gradient = {gradient.data + head * size, gradient.width, size};
        for (int first = tile.query_first; first < tile.query_end; first += STEP) {
            int rows = min(tile.query_end - first, STEP);
            load_tile<SIZE, STEP>(of_queries, own_queries, tile.query_base + first, rows);
            load_tile<SIZE, STEP>(of_gradient, own_gradient, tile.query_base + first, rows);
            cp_async_commit();
            cp_async_wait<0>();
            sync_block();
            float probabilities[STEP / 8][4], score_grad[STEP / 8][4];
            product<SIZE, STEP>(probabilities, of_keys + warp() * OWN * P::stride, of_queries);
            if (WHICH & KEYS) product<SIZE, STEP>(score_grad, of_values + warp() * OWN * P::stride, of_gradient);
#pragma unroll
            for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    int column = n * 8 + lane() % 4 * 2 + i;
                    long long row = tile.query_base + first + min(column, rows - 1);
                    Query query = query_of(scores, row, (int)row - tile.query_base);
                    float log_sum_exp = log_sum_exps[row * scores.heads + head], row_delta = delta[row * scores.heads + head];
#pragma unroll
                    for (int r = 0; r < 2; r++) {
                        int key = tile.first - tile.key_base + own + 8 * r;
                        float& probability = probabilities[n][2 * r + i];
                        float slope = 0, before = probability;
                        probability = 0;
                        if (column < rows && own + 8 * r < tile.count && is_visible(scores, query, key)) {
                            probability = exponential(score(scores, head, query, key, before, slope) - log_sum_exp);
                        }
                        if (WHICH & KEYS) score_grad[n][2 * r + i] = probability * (score_grad[n][2 * r + i] - row_delta) * slope;
                    }
                }
            }
            if constexpr ((WHICH & VALUES) != 0) add_product<SIZE, STEP>(sums.values, probabilities, of_gradient);
            if constexpr ((WHICH & KEYS) != 0) add_product<SIZE, STEP>(sums.keys, score_grad, of_queries);
            sync_block();
        }
    }
    cp_async_wait<0>();
    if constexpr ((WHICH & KEYS) != 0) {
        if (to_keys) store_rows<SIZE>(to_keys + kv_head * size, key_width, size, tile, sums.keys, scores.scale, add_keys);
    }
    if constexpr ((WHICH & VALUES) != 0) {
        if (to_values) store_rows<SIZE>(to_values + kv_head * size, value_width, size, tile, sums.values, 1, add_values);
    }
}

// Computes the gradients of the bias by distance, from the `diagonals` of attention_backward_queries. A block
// handles one bucket and one head.
__device__ __forceinline__ void bias_backward(const float* diagonals, const QueryTile* tiles, int tile_count, int tile_size,
                                          const int* buckets, int max_distance, int heads, float* to) {
    __shared__ float of_warps[256 / LANES];
    int step = blockIdx.x, head = blockIdx.y, width = max_distance + tile_size;
    float sum = 0;
    for (int t = 0; t < tile_count; t++) {
        QueryTile tile = tiles[t];
        if (tile.count == 0) continue;
        int nearest = tile.key_first - (tile.first - tile.query_base) - (tile_size - 1);
        for (int i = threadIdx.x; i < width; i += blockDim.x) {
            int distance = nearest + i;
            if (distance <= -max_distance || distance >= max_distance || buckets[distance + max_distance - 1] != step) continue;
            sum += diagonals[((long long)t * heads + head) * width + i];
        }
    }
    sum = block_sum(sum, of_warps);
    if (threadIdx.x == 0) to[step * heads + head] += sum;
}

// Computes the gradients of the attention sinks. A block handles one head.
__device__ __forceinline__ void sinks_backward(const float* sinks, const float* log_sum_exps, const float* delta, int rows,
                                           int heads, float* to) {
    __shared__ float of_warps[256 / LANES];
    int head = blockIdx.x;
    float sum = 0;
    for (long long row = threadIdx.x; row < rows; row += blockDim.x) {
        sum -= exponential(sinks[head] - log_sum_exps[row * heads + head]) * delta[row * heads + head];
    }
    sum = block_sum(sum, of_warps);
    if (threadIdx.x == 0) to[head] += sum;
}

#define INPUTS(T)                                                                                                    \
    const T *queries, const T *keys, const T *values, const T *gradient, int query_width, int key_width,             \
        int value_width, int gradient_width, int size, const float *log_sum_exps, const float *delta
#define INPUT_ARGUMENTS(T)                                                                                              \
    Heads<T>{queries, query_width, size}, Heads<T>{keys, key_width, size}, Heads<T>{values, value_width, size},      \
        Heads<T>{gradient, gradient_width, size}, log_sum_exps, delta
#define QUERIES(T, type, SIZE)                                                                                       \
    ENTRY(attention_backward_queries_##type##_##SIZE, (TileConfig<T, SIZE>::threads),                                          \
          (INPUTS(T), T* to, int add, const QueryTile* tiles, SCORES, int kv_heads, float* diagonals),               \
          attention_backward_queries<SIZE>(INPUT_ARGUMENTS(T), to, add, tiles, SCORE_ARGUMENTS, kv_heads, diagonals))
#define KEY(T, type, SIZE, name, WHICH)                                                                              \
    ENTRY(attention_backward_##name##_##type##_##SIZE, (TileConfig<T, SIZE>::threads),                                         \
          (INPUTS(T), T* to_keys, T* to_values, int add_keys, int add_values, const KeyTile* tiles, SCORES,          \
           int kv_heads),                                                                                            \
          (attention_backward_keys<WHICH, SIZE>(INPUT_ARGUMENTS(T), to_keys, to_values, add_keys, add_values, tiles,        \
                                            SCORE_ARGUMENTS, kv_heads)))
#define KERNELS(T, type)                                                                                             \
    FOR_EACH_SIZE(QUERIES, T, type)                                                                                  \
    KEY(T, type, 64, both, BOTH)                                                                                     \
    KEY(T, type, 128, both, BOTH)                                                                                    \
    KEY(T, type, 256, keys, KEYS)                                                                                    \
    KEY(T, type, 256, values, VALUES)
FOR_EACH_TYPE(KERNELS)

ENTRY(attention_backward_bias, 256,
      (const float* diagonals, const QueryTile* tiles, int tile_count, int tile_size, const int* buckets, int max_distance,
       int heads, float* to),
      bias_backward(diagonals, tiles, tile_count, tile_size, buckets, max_distance, heads, to))
ENTRY(attention_backward_sinks, 256,
      (const float* sinks, const float* log_sum_exps, const float* delta, int rows, int heads, float* to),
      sinks_backward(sinks, log_sum_exps, delta, rows, heads, to))
