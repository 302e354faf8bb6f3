// Backward pass of dense attention, as in attention_backward.cu.
#include "attention_dense.cuh"

// Stores rows of a tile, or accumulates.
template <int SIZE, class T>
__device__ __forceinline__ void store_pairs(T* to, int width, int size, int count, const float (&sums)[SIZE / 8][4],
                                           float factor, bool add) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int own = warp() * OWN + lane() / 4 + 8 * r;
        if (own >= count) continue;
#pragma unroll
        for (int n = 0; n < SIZE / 8; n++) {
            int column = n * 8 + lane() % 4 * 2;
            float both[2] = {sums[n][2 * r] * factor, sums[n][2 * r + 1] * factor};
            if (column < size) store_or_accumulate<2>(to + (long long)own * width + column, both, add);
        }
    }
}

// Grid: x is the tile of queries, y the head.
template <int SIZE, class T>
__device__ void backward_dense_queries(Heads<T> queries, Heads<T> keys, Heads<T> values, Heads<T> gradient,
                                   const float* log_sum_exps, const float* delta, T* to, int add, const QueryTile* tiles,
                                   const int* key_ranges, int heads, float scale, int kv_heads) {
    using P = TileConfig<T, SIZE>;
    constexpr int STEP = dense_step<SIZE>(), AREA = STEP * P::stride;
    QueryTile tile = tiles[blockIdx.x];
    if (tile.count == 0) return;
    int head = blockIdx.y, kv_head = head / (heads / kv_heads), size = queries.size;
    queries.data += head * size;
    gradient.data += head * size;
    keys.data += kv_head * size;
    values.data += kv_head * size;
    T* of_queries = (T*)dynamic_shared_memory();
    T* of_gradient = of_queries + P::tile * P::stride;
    T* of_keys = of_gradient + P::tile * P::stride;
    T* of_values = of_keys + 2 * AREA;
    auto begin = [&](int first, int place) {
        load_rows<SIZE, STEP>(of_keys + place * AREA, keys, tile.key_base + first, tile.key_end - first);
        load_rows<SIZE, STEP>(of_values + place * AREA, values, tile.key_base + first, tile.key_end - first);
        cp_async_commit();
    };
    load_rows<SIZE, P::tile>(of_queries, queries, tile.first, tile.count);
    load_rows<SIZE, P::tile>(of_gradient, gradient, tile.first, tile.count);
    begin(tile.key_first, 0);

    // The two rows of this lane; rows beyond the tile repeat its last row and are not written.
    int range_first[2], range_end[2];
    float log_sum_exp[2], row_delta[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        long long row = tile.first + min(warp() * OWN + lane() / 4 + 8 * r, tile.count - 1);
        range_first[r] = key_ranges[2 * row];
        range_end[r] = key_ranges[2 * row + 1];
        log_sum_exp[r] = to_base_two(log_sum_exps[row * heads + head]);
        row_delta[r] = delta[row * heads + head];
    }
    VisibleRange visible = merge_ranges(visible_range(range_first[0], range_end[0]), visible_range(range_first[1], range_end[1]));
    visible = warp_range(visible);
    float factor = scale * LOG2_E;
    float sums[SIZE / 8][4] = {};

    int place = 0;
    for (int first = tile.key_first; first < tile.key_end; first += STEP) {
        cp_async_wait<0>();
        sync_block();
        if (first + STEP < tile.key_end) begin(first + STEP, place ^ 1);
        if (any_visible(visible, first, first + STEP)) {
            float probabilities[STEP / 8][4], score_grad[STEP / 8][4];
            product<SIZE, STEP>(probabilities, of_queries + warp() * OWN * P::stride, of_keys + place * AREA);
            product<SIZE, STEP>(score_grad, of_gradient + warp() * OWN * P::stride, of_values + place * AREA);
            if (!all_visible(visible, first, first + STEP)) mask_keys<STEP>(probabilities, first, range_first, range_end);
#pragma unroll
            for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    score_grad[n][i] = exp2_approx(probabilities[n][i] * factor - log_sum_exp[i / 2]) * (score_grad[n][i] - row_delta[i / 2]);
                }
            }
            add_product<SIZE, STEP>(sums, score_grad, of_keys + place * AREA);
        }
        place ^= 1;
    }
    cp_async_wait<0>();
    T* out = to + (long long)tile.first * queries.width + head * size;
    store_pairs<SIZE>(out, queries.width, size, tile.count, sums, scale, add);
}

// Per-query data of the kernel for keys: log-sum-exp, delta and key range.
struct QueryData {
    float log_sum_exp;
    float row_delta;
    int first;
    int end;
};

// Grid: x is the tile of keys, y the KV head. Here warps own keys: matrix rows are keys, columns are queries,
// head by head.
template <int SIZE, class T>
__device__ void backward_dense_both(Heads<T> queries, Heads<T> keys, Heads<T> values, Heads<T> gradient,
                                const float* log_sum_exps, const float* delta, T* to_keys, T* to_values, int add_keys,
                                int add_values, const KeyTile* tiles, const int* key_ranges, int heads, float scale,
                                int kv_heads) {
    using P = TileConfig<T, SIZE>;
    constexpr int STEP = dense_step<SIZE>(), AREA = STEP * P::stride;
    // For two queries each: log-sum-exp and delta; the first key and one past the last.
    __shared__ Pack<float, 4> numbers[2][STEP / 2];
    __shared__ Pack<int, 4> ranges[2][STEP / 2];
    __shared__ VisibleRange visible_ranges[2][STEP / LANES];
    KeyTile tile = tiles[blockIdx.x];
    if (tile.count == 0) return;
    int kv_head = blockIdx.y, group = heads / kv_heads, size = queries.size;
    keys.data += kv_head * size;
    values.data += kv_head * size;
    T* of_keys = (T*)dynamic_shared_memory();
    T* of_values = of_keys + P::tile * P::stride;
    T* of_queries = of_values + P::tile * P::stride;
    T* of_gradient = of_queries + 2 * AREA;
    auto begin = [&](int head, int first, int place) {
        Heads<T> own_queries = {queries.data + head * size, queries.width, size};
        Heads<T> own_gradient = {gradient.data + head * size, gradient.width, size};
        long long row = tile.query_base + first;
        load_rows<SIZE, STEP>(of_queries + place * AREA, own_queries, row, tile.query_end - first);
        load_rows<SIZE, STEP>(of_gradient + place * AREA, own_gradient, row, tile.query_end - first);
        cp_async_commit();
    };
    // The first warps load the per-query data of a step, one query per lane, for all others; queries past the
    // end attend to no key.
    bool loads_query_data = threadIdx.x < STEP;
    auto load_query_data = [&](int head, int first) {
        QueryData query_data = {};
        int query = first + threadIdx.x;
        if (loads_query_data && query < tile.query_end) {
            long long row = tile.query_base + query;
            query_data = {log_sum_exps[row * heads + head], delta[row * heads + head], key_ranges[2 * row], key_ranges[2 * row + 1]};
        }
        return query_data;
    };
    auto store_query_data = [&](const QueryData& query_data, int place) {
        if (!loads_query_data) return;
        int pair_of = threadIdx.x / 2, which = threadIdx.x % 2 * 2;
        numbers[place][pair_of].data[which] = to_base_two(query_data.log_sum_exp);
        numbers[place][pair_of].data[which + 1] = query_data.row_delta;
        ranges[place][pair_of].data[which] = query_data.first;
        ranges[place][pair_of].data[which + 1] = query_data.end;
        VisibleRange visible = warp_range(visible_range(query_data.first, query_data.end));
        if (lane() == 0) visible_ranges[place][warp()] = visible;
    };
    load_rows<SIZE, P::tile>(of_keys, keys, tile.first, tile.count);
    load_rows<SIZE, P::tile>(of_values, values, tile.first, tile.count);
    int head = kv_head * group, last_head = head + group, first = tile.query_first;
    begin(head, first, 0);
    store_query_data(load_query_data(head, first), 0);

    float factor = scale * LOG2_E;
    float key_sums[SIZE / 8][4] = {}, value_sums[SIZE / 8][4] = {};
    int own_key = tile.first - tile.key_base + warp() * OWN;
    bool more = first < tile.query_end;
    for (int place = 0; more; place ^= 1) {
        cp_async_wait<0>();
        sync_block();
        first += STEP;
        if (first >= tile.query_end) {
            first = tile.query_first;
            head++;
        }
        more = head < last_head;
        QueryData query_data = {};
        if (more) {
            begin(head, first, place ^ 1);
            query_data = load_query_data(head, first);
        }
        VisibleRange visible = visible_ranges[place][0];
        if (STEP > LANES) visible = merge_ranges(visible, visible_ranges[place][STEP / LANES - 1]);
        if (any_visible(visible, own_key, own_key + OWN)) {
            float probabilities[STEP / 8][4], score_grad[STEP / 8][4];
            product<SIZE, STEP>(probabilities, of_keys + warp() * OWN * P::stride, of_queries + place * AREA);
            product<SIZE, STEP>(score_grad, of_values + warp() * OWN * P::stride, of_gradient + place * AREA);
            if (!all_visible(visible, own_key, own_key + OWN)) {
#pragma unroll
                for (int n = 0; n < STEP / 8; n++) {
                    Pack<int, 4> range = ranges[place][n * 4 + lane() % 4];
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        int key = own_key + lane() / 4 + i / 2 * 8, column = i % 2 * 2;
                        if (key < range.data[column] || key >= range.data[column + 1]) probabilities[n][i] = -infinity();
                    }
                }
            }
#pragma unroll
            for (int n = 0; n < STEP / 8; n++) {
                Pack<float, 4> own = numbers[place][n * 4 + lane() % 4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int column = i % 2 * 2;
                    probabilities[n][i] = exp2_approx(probabilities[n][i] * factor - own.data[column]);
                    score_grad[n][i] = probabilities[n][i] * (score_grad[n][i] - own.data[column + 1]);
                }
            }
            add_product<SIZE, STEP>(value_sums, probabilities, of_gradient + place * AREA);
            add_product<SIZE, STEP>(key_sums, score_grad, of_queries + place * AREA);
        }
        if (more) store_query_data(query_data, place ^ 1);
    }
    cp_async_wait<0>();
    if (to_keys) {
        T* out = to_keys + (long long)tile.first * keys.width + kv_head * size;
        store_pairs<SIZE>(out, keys.width, size, tile.count, key_sums, scale, add_keys);
    }
    if (to_values) {
        T* out = to_values + (long long)tile.first * values.width + kv_head * size;
        store_pairs<SIZE>(out, values.width, size, tile.count, value_sums, 1, add_values);
    }
}

#define INPUTS(T)                                                                                             \
    const T *queries, const T *keys, const T *values, const T *gradient, int query_width, int key_width,            \
        int value_width, int gradient_width, int size, const float *log_sum_exps, const float *delta
#define INPUT_ARGUMENTS(T)                                                                                       \
    Heads<T>{queries, query_width, size}, Heads<T>{keys, key_width, size}, Heads<T>{values, value_width, size},     \
        Heads<T>{gradient, gradient_width, size}, log_sum_exps, delta
#define KERNEL(T, type, SIZE)                                                                                       \
    ENTRY_WITH_BLOCKS(attention_backward_dense_queries_##type##_##SIZE, (TileConfig<T, SIZE>::threads), DENSE_BLOCKS,             \
          (INPUTS(T), T* to, int add, const QueryTile* tiles, const int* key_ranges, int heads, float scale,        \
           int kv_heads),                                                                                           \
          backward_dense_queries<SIZE>(INPUT_ARGUMENTS(T), to, add, tiles, key_ranges, heads, scale, kv_heads))            \
    ENTRY_WITH_BLOCKS(attention_backward_dense_both_##type##_##SIZE, (TileConfig<T, SIZE>::threads), (SIZE > 64 ? 2 : DENSE_BLOCKS), \
          (INPUTS(T), T* to_keys, T* to_values, int add_keys, int add_values, const KeyTile* tiles,           \
           const int* key_ranges, int heads, float scale, int kv_heads),                                                  \
          backward_dense_both<SIZE>(INPUT_ARGUMENTS(T), to_keys, to_values, add_keys, add_values, tiles, key_ranges,       \
                                heads, scale, kv_heads))
#define KERNELS(T, type) KERNEL(T, type, 64) KERNEL(T, type, 128)
KERNELS(bf16, bf16)
KERNELS(f16, f16)
