// Backward pass of flash attention. Probabilities are recomputed from each query's log-sum-exp. Queries and
// keys have separate kernels, so that each gradient is accumulated by one block, in a fixed order.
#include "attention.cuh"

// Computes the gradients of queries and, if `diagonals` is given, the sums of the gradients of scores over
// equal distances. Tile t of head h has row t · heads + h of `diagonals`, which has `reach` + tile columns
// and is zero-initialized; distance d is at column d + tile - 1 - (key_first - position of the tile's first
// query).
template <int SIZE, class T>
__device__ void attention_back_queries(Heads<T> queries, Heads<T> keys, Heads<T> values, Heads<T> gradient,
                                       const float* totals, const float* along, T* to, int add,
                                       const QueryTile* tiles, Scores scores, int kv_heads, float* diagonals) {
    using P = Plan<T, SIZE>;
    constexpr int STEP = P::step;
    QueryTile tile = tiles[blockIdx.x];
    if (tile.count == 0) return;
    int head = blockIdx.y, kv_head = head / (scores.heads / kv_heads), size = queries.size;
    int width = queries.width;
    queries.numbers += head * size;
    gradient.numbers += head * size;
    keys.numbers += kv_head * size;
    values.numbers += kv_head * size;
    T* of_queries = (T*)shared_bytes();
    T* of_gradient = of_queries + P::tile * P::stride;
    T* of_keys = of_gradient + P::tile * P::stride;
    T* of_values = of_keys + STEP * P::stride;
    float* steeps = (float*)(of_values + STEP * P::stride);

    Query query[2];
    float total[2], common[2];
    bool there[2];
    for (int r = 0; r < 2; r++) {
        int own = warp() * OWN + lane() / 4 + 8 * r;
        long long row = tile.first + min(own, tile.count - 1);
        there[r] = own < tile.count;
        query[r] = query_of(scores, row, (int)row - tile.query_base);
        total[r] = totals[row * scores.heads + head];
        common[r] = along[row * scores.heads + head];
    }
    float sums[SIZE / 8][4] = {};
    begin_tile<SIZE, P::tile>(of_queries, queries, tile.first, tile.count);
    begin_tile<SIZE, P::tile>(of_gradient, gradient, tile.first, tile.count);
    for (int first = tile.key_first; first < tile.key_end; first += STEP) {
        begin_tile<SIZE, STEP>(of_keys, keys, tile.key_base + first, tile.key_end - first);
        begin_tile<SIZE, STEP>(of_values, values, tile.key_base + first, tile.key_end - first);
        close_copies();
        wait_for_copies<0>();
        meet();
        float shares[STEP / 8][4], steep[STEP / 8][4];
        product<SIZE, STEP>(shares, of_queries + warp() * OWN * P::stride, of_keys);
        product<SIZE, STEP>(steep, of_gradient + warp() * OWN * P::stride, of_values);
#pragma unroll
        for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int r = i / 2, key = first + n * 8 + lane() % 4 * 2 + i % 2;
                float slope = 0, share = 0;
                if (there[r] && sees(scores, query[r], key)) {
                    share = exponential(score(scores, head, query[r], key, shares[n][i], slope) - total[r]);
                }
                float before = share * (steep[n][i] - common[r]);
                if (diagonals) steeps[(warp() * OWN + lane() / 4 + 8 * r) * (STEP + 1) + key - first] = before;
                steep[n][i] = before * slope;
            }
        }
        add_product<SIZE, STEP>(sums, steep, of_keys);
        meet();
        if (diagonals) {
            float* own = diagonals + ((long long)blockIdx.x * scores.heads + head) * (scores.reach + P::tile);
            for (int d = threadIdx.x; d < P::tile + STEP - 1; d += P::threads) {
                float sum = 0;
                for (int row = 0; row < P::tile; row++) {
                    int column = d - (P::tile - 1) + row;
                    if (column >= 0 && column < STEP) sum += steeps[row * (STEP + 1) + column];
                }
                int place = first - tile.key_first + d;
                if (place < scores.reach + P::tile) own[place] += sum;
            }
            meet();
        }
    }
    wait_for_copies<0>();
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (!there[r]) continue;
        T* out = to + (long long)(tile.first + warp() * OWN + lane() / 4 + 8 * r) * width + head * size;
#pragma unroll
        for (int n = 0; n < SIZE / 8; n++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int column = n * 8 + lane() % 4 * 2 + i;
                if (column < size) give(out[column], sums[n][2 * r + i] * scores.scale, add);
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
__device__ __forceinline__ void give_rows(T* to, int width, int size, const KeyTile& tile,
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
                if (column < size) give(out[column], sums[n][2 * r + i] * factor, add);
            }
        }
    }
}

// Grid: x is the tile of keys, y the KV head. Here warps own keys: matrix rows are keys, columns are queries.
template <int WHICH, int SIZE, class T>
__device__ void attention_back_keys(Heads<T> queries, Heads<T> keys, Heads<T> values, Heads<T> gradient,
                                    const float* totals, const float* along, T* to_keys, T* to_values, int add_keys,
                                    int add_values, const KeyTile* tiles, Scores scores, int kv_heads) {
    using P = Plan<T, SIZE>;
    constexpr int STEP = P::step_of_queries;
    KeyTile tile = tiles[blockIdx.x];
    if (tile.count == 0) return;
    int kv_head = blockIdx.y, group = scores.heads / kv_heads, size = queries.size;
    int key_width = keys.width, value_width = values.width;
    keys.numbers += kv_head * size;
    values.numbers += kv_head * size;
    T* of_keys = (T*)shared_bytes();
    T* of_values = of_keys + P::tile * P::stride;
    T* of_queries = of_values + P::tile * P::stride;
    T* of_gradient = of_queries + STEP * P::stride;
    Sums<WHICH, SIZE> sums = {};
    begin_tile<SIZE, P::tile>(of_keys, keys, tile.first, tile.count);
    begin_tile<SIZE, P::tile>(of_values, values, tile.first, tile.count);
    int own = warp() * OWN + lane() / 4;
    for (int head = kv_head * group; head < (kv_head + 1) * group; head++) {
        Heads<T> own_queries = {queries.numbers + head * size, queries.width, size};
        Heads<T> own_gradient = {gradient.numbers + head * size, gradient.width, size};
        for (int first = tile.query_first; first < tile.query_end; first += STEP) {
            int rows = min(tile.query_end - first, STEP);
            begin_tile<SIZE, STEP>(of_queries, own_queries, tile.query_base + first, rows);
            begin_tile<SIZE, STEP>(of_gradient, own_gradient, tile.query_base + first, rows);
            close_copies();
            wait_for_copies<0>();
            meet();
            float shares[STEP / 8][4], steep[STEP / 8][4];
            product<SIZE, STEP>(shares, of_keys + warp() * OWN * P::stride, of_queries);
            if (WHICH & KEYS) product<SIZE, STEP>(steep, of_values + warp() * OWN * P::stride, of_gradient);
#pragma unroll
            for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    int column = n * 8 + lane() % 4 * 2 + i;
                    long long row = tile.query_base + first + min(column, rows - 1);
                    Query query = query_of(scores, row, (int)row - tile.query_base);
                    float total = totals[row * scores.heads + head], common = along[row * scores.heads + head];
#pragma unroll
                    for (int r = 0; r < 2; r++) {
                        int key = tile.first - tile.key_base + own + 8 * r;
                        float& share = shares[n][2 * r + i];
                        float slope = 0, before = share;
                        share = 0;
                        if (column < rows && own + 8 * r < tile.count && sees(scores, query, key)) {
                            share = exponential(score(scores, head, query, key, before, slope) - total);
                        }
                        if (WHICH & KEYS) steep[n][2 * r + i] = share * (steep[n][2 * r + i] - common) * slope;
                    }
                }
            }
            if constexpr ((WHICH & VALUES) != 0) add_product<SIZE, STEP>(sums.values, shares, of_gradient);
            if constexpr ((WHICH & KEYS) != 0) add_product<SIZE, STEP>(sums.keys, steep, of_queries);
            meet();
        }
    }
    wait_for_copies<0>();
    if constexpr ((WHICH & KEYS) != 0) {
        if (to_keys) give_rows<SIZE>(to_keys + kv_head * size, key_width, size, tile, sums.keys, scores.scale, add_keys);
    }
    if constexpr ((WHICH & VALUES) != 0) {
        if (to_values) give_rows<SIZE>(to_values + kv_head * size, value_width, size, tile, sums.values, 1, add_values);
    }
}

// Computes the gradients of the bias by distance, from the `diagonals` of attention_back_queries. A block
// handles one bucket and one head.
__device__ __forceinline__ void bias_back(const float* diagonals, const QueryTile* tiles, int tile_count, int tile_size,
                                          const int* steps, int reach, int heads, float* to) {
    __shared__ float of_warps[256 / LANES];
    int step = blockIdx.x, head = blockIdx.y, width = reach + tile_size;
    float sum = 0;
    for (int t = 0; t < tile_count; t++) {
        QueryTile tile = tiles[t];
        if (tile.count == 0) continue;
        int nearest = tile.key_first - (tile.first - tile.query_base) - (tile_size - 1);
        for (int i = threadIdx.x; i < width; i += blockDim.x) {
            int distance = nearest + i;
            if (distance <= -reach || distance >= reach || steps[distance + reach - 1] != step) continue;
            sum += diagonals[((long long)t * heads + head) * width + i];
        }
    }
    sum = sum_of_block(sum, of_warps);
    if (threadIdx.x == 0) to[step * heads + head] += sum;
}

// Computes the gradients of the attention sinks. A block handles one head.
__device__ __forceinline__ void sinks_back(const float* sinks, const float* totals, const float* along, int rows,
                                           int heads, float* to) {
    __shared__ float of_warps[256 / LANES];
    int head = blockIdx.x;
    float sum = 0;
    for (long long row = threadIdx.x; row < rows; row += blockDim.x) {
        sum -= exponential(sinks[head] - totals[row * heads + head]) * along[row * heads + head];
    }
    sum = sum_of_block(sum, of_warps);
    if (threadIdx.x == 0) to[head] += sum;
}

#define TABLES(T)                                                                                                    \
    const T *queries, const T *keys, const T *values, const T *gradient, int query_width, int key_width,             \
        int value_width, int gradient_width, int size, const float *totals, const float *along
#define TABLES_GIVEN(T)                                                                                              \
    Heads<T>{queries, query_width, size}, Heads<T>{keys, key_width, size}, Heads<T>{values, value_width, size},      \
        Heads<T>{gradient, gradient_width, size}, totals, along
#define QUERIES(T, type, SIZE)                                                                                       \
    ENTRY(attention_back_queries_##type##_##SIZE, (Plan<T, SIZE>::threads),                                          \
          (TABLES(T), T* to, int add, const QueryTile* tiles, SCORES, int kv_heads, float* diagonals),               \
          attention_back_queries<SIZE>(TABLES_GIVEN(T), to, add, tiles, SCORES_GIVEN, kv_heads, diagonals))
#define KEY(T, type, SIZE, name, WHICH)                                                                              \
    ENTRY(attention_back_##name##_##type##_##SIZE, (Plan<T, SIZE>::threads),                                         \
          (TABLES(T), T* to_keys, T* to_values, int add_keys, int add_values, const KeyTile* tiles, SCORES,          \
           int kv_heads),                                                                                            \
          (attention_back_keys<WHICH, SIZE>(TABLES_GIVEN(T), to_keys, to_values, add_keys, add_values, tiles,        \
                                            SCORES_GIVEN, kv_heads)))
#define KERNELS(T, type)                                                                                             \
    FOR_EACH_SIZE(QUERIES, T, type)                                                                                  \
    KEY(T, type, 64, both, BOTH)                                                                                     \
    KEY(T, type, 128, both, BOTH)                                                                                    \
    KEY(T, type, 256, keys, KEYS)                                                                                    \
    KEY(T, type, 256, values, VALUES)
FOR_EACH_TYPE(KERNELS)

ENTRY(attention_back_bias, 256,
      (const float* diagonals, const QueryTile* tiles, int tile_count, int tile_size, const int* steps, int reach,
       int heads, float* to),
      bias_back(diagonals, tiles, tile_count, tile_size, steps, reach, heads, to))
ENTRY(attention_back_sinks, 256,
      (const float* sinks, const float* totals, const float* along, int rows, int heads, float* to),
      sinks_back(sinks, totals, along, rows, heads, to))
