// Attention of queries over the keys and values in the blocks of the KV cache; kernels/src/ops/attention/mod.rs has the
// contract. A block computes the queries of some rows of one sequence and of some heads that share a KV head: scores by
// position, softmax weights by query, then columns. With split keys (flash-decoding), each block takes one chunk of the
// keys, and merge_attention combines the parts in order.
#include "exact.cuh"
#include "kv_cache.cuh"

#define ATTENTION_THREADS 256
#define ATTENTION_WARPS (ATTENTION_THREADS / LANES)
// Ranges of positions that a query attends to.
#define RUNS 3

// The keys that a row attends to: the first and the last position of each range. A range that ends before it begins is
// empty, as are those after it.
struct QueryRanges {
    int first[RUNS], last[RUNS];
};

struct AttentionCall {
    KvLayer layer;
    const float* queries;
    float* out;
    int query_stride, out_stride;
    int head_size, heads, kv_heads;
    float scale, softcap;
    // By head: ALiBi slopes, sinks; null: none.
    const float *slopes, *sinks;
    // Relative position bias: by head, a value for each distance from 1 − reach to reach − 1; null: none.
    const float* bias;
    int bias_reach;
    // Bias by position: of a row from position 0 on, the first of `key_bias` and their number; it applies to ranges of keys
    // that end before. Null: none.
    const float* key_bias;
    const int* key_bias_ranges;
    // By row.
    const int* positions;
    const QueryRanges* ranges;
    // Where the block list of the row's sequence begins.
    const int* list_starts;
    const int* block_lists;
    // Rows that are computed together: the first and the number of each tile; null: each row alone.
    const int* tiles;
    const int* tile_count;
    // With split keys: parts of padded_columns + 2 floats by row, head and chunk.
    float* parts;
    int chunks;
};

// Queries in shared memory, and what a block knows of them.
template <int QUERIES> struct QueryStates {
    int row[QUERIES], head[QUERIES], first[QUERIES], last[QUERIES];
    float slope[QUERIES], query_scale[QUERIES];
    // The running maximum and sum; whether a chunk was merged; factors of the state and of the chunk.
    float maximum[QUERIES], sum[QUERIES];
    float old_factor[QUERIES], new_factor[QUERIES];
    // The scale of integer weights.
    float weight_scale[QUERIES];
    int begun[QUERIES], seen[QUERIES];
};

// Words of a query of `columns`: floats, or integers as bytes in one plane or two.
__device__ __forceinline__ int query_words(KvType type, int columns) {
    return type == KvType::Int8 ? columns / 4 : type == KvType::Int14 ? columns / 2 : columns;
}

__device__ __forceinline__ int dot_bytes(const unsigned* a, const unsigned* b, int stride, int count) {
    int sum = 0;
#pragma unroll 4
    for (int i = 0; i < count; i++) sum = dot4((int)a[i * stride], (int)b[i], sum);
    return sum;
}

// Reads the queries of a block to shared memory; for integer caches quantizes them.
template <KvType TYPE, int QUERIES>
__device__ __forceinline__ void load_queries(const AttentionCall& call, QueryStates<QUERIES>& states, unsigned* queries, float* row, int count) {
    int columns = padded_columns(call.head_size), words = query_words(TYPE, columns);
    for (int q = 0; q < count; q++) {
        const float* from = call.queries + (long long)states.row[q] * call.query_stride + states.head[q] * call.head_size;
        if constexpr (TYPE == KvType::F32 || TYPE == KvType::F16) {
            for (int i = threadIdx.x; i < call.head_size; i += ATTENTION_THREADS) {
                reinterpret_cast<float*>(queries)[i * QUERIES + q] = from[i];
            }
        } else {
            sync_block();
            for (int i = threadIdx.x; i < columns; i += ATTENTION_THREADS) row[i] = i < call.head_size ? from[i] : 0.0f;
            int width = rotation_width(columns);
            if constexpr (TYPE == KvType::Int14) rotate_in_shared(row, columns, width);
            sync_block();
            IntegerScale scale = TYPE == KvType::Int14 ? rotated_integer_scale(row, columns) : row_integer_scale(row, columns, 127.0f);
            if (threadIdx.x == 0) states.query_scale[q] = TYPE == KvType::Int14 ? scale.scale / (float)width : scale.scale;
            for (int i = threadIdx.x; i < columns / 4; i += ATTENTION_THREADS) {
                unsigned high = 0, low = 0;
                for (int j = 0; j < 4; j++) {
                    int number = scale.inverse == 0.0f ? 0 : (int)round_even(row[4 * i + j] * scale.inverse);
                    int coarse = TYPE == KvType::Int14 ? (number + 64) >> 7 : number;
                    high |= (coarse & 255u) << 8 * j;
                    low |= ((number - coarse * 128) & 255u) << 8 * j;
                }
                queries[q * words + i] = high;
                if constexpr (TYPE == KvType::Int14) queries[q * words + columns / 4 + i] = low;
            }
        }
    }
    sync_block();
}

// Computes the score of one position for all queries.
template <KvType TYPE, int QUERIES>
__device__ __forceinline__ void score_position(const AttentionCall& call, const QueryStates<QUERIES>& states, const unsigned* queries,
                                               float* scores, int count, int position, int kv_head, const int* blocks) {
    int columns = padded_columns(call.head_size), slot = position % KV_BLOCK;
    const unsigned* keys = kv_keys(call.layer, blocks[position / KV_BLOCK], kv_head);
    float dots[QUERIES];
    if constexpr (TYPE == KvType::F32 || TYPE == KvType::F16) {
#pragma unroll
        for (int q = 0; q < QUERIES; q++) dots[q] = 0.0f;
        int start = key_element(TYPE, columns, slot, 0);
#pragma unroll(QUERIES > 4 ? 16 : 32)
        for (int e = 0; e < call.head_size; e++) {
            float key;
            if constexpr (TYPE == KvType::F32) key = reinterpret_cast<const float*>(keys)[start + e * KV_PANEL];
            else key = to_f32(reinterpret_cast<const f16*>(keys)[start + e * KV_PANEL]);
            const float* row = reinterpret_cast<const float*>(queries) + e * QUERIES;
#pragma unroll
            for (int q = 0; q < QUERIES; q++) dots[q] = fmaf(row[q], key, dots[q]);
        }
    } else {
        int words = query_words(TYPE, columns), plane = KV_BLOCK * columns / 4;
        const unsigned* own = keys + key_element(TYPE, columns, slot, 0) / 4;
        float key_scale = __uint_as_float(keys[call.layer.head_words - KV_BLOCK + slot]);
#pragma unroll
        for (int q = 0; q < QUERIES; q++) {
            if (q >= count) break;
            const unsigned* row = queries + q * words;
            unsigned sum = (unsigned)dot_bytes(own, row, KV_PANEL, columns / 4);
            if constexpr (TYPE == KvType::Int14) {
                unsigned middle = (unsigned)dot_bytes(own + plane, row, KV_PANEL, columns / 4) +
                                  (unsigned)dot_bytes(own, row + columns / 4, KV_PANEL, columns / 4);
                sum = sum * 16384 + middle * 128 + (unsigned)dot_bytes(own + plane, row + columns / 4, KV_PANEL, columns / 4);
            }
            dots[q] = (float)(int)sum * (key_scale * states.query_scale[q]);
        }
    }
#pragma unroll
    for (int q = 0; q < QUERIES; q++) {
        if (q >= count) break;
        int own = call.positions[states.row[q]];
        float score = dots[q] * call.scale;
        if (call.softcap != 0.0f) score = softcap_exact(score, call.softcap);
        float slope = states.slope[q];
        if (slope != 0.0f) score = fmaf(slope, (float)position - (float)own, score);
        if (call.bias) {
            score = score + call.bias[(long long)states.head[q] * (2 * call.bias_reach - 1) + call.bias_reach - 1 - own + position];
        }
        if (call.key_bias) {
            const int* range = call.key_bias_ranges + 2 * states.row[q];
            if (position <= states.last[q] && states.last[q] < range[1]) score = score + call.key_bias[range[0] + position];
        }
        scores[q * KV_CHUNK + position % KV_CHUNK] = score;
    }
}

// Turns the scores of a chunk into weights, and updates the states. A warp takes one query at a time.
template <KvType TYPE, int QUERIES>
__device__ __forceinline__ void softmax_chunk(const AttentionCall& call, QueryStates<QUERIES>& states, float* scores, unsigned* digits,
                                              int count, int chunk, int kv_head, const int* blocks) {
    for (int q = warp(); q < count; q += ATTENTION_WARPS) {
        int first = max(states.first[q], chunk * KV_CHUNK), last = min(states.last[q], chunk * KV_CHUNK + KV_CHUNK - 1);
        if (lane() == 0) states.seen[q] = first <= last;
        if (first > last) continue;
        float* own = scores + q * KV_CHUNK;
        auto is_seen = [&](int i) { return chunk * KV_CHUNK + i >= first && chunk * KV_CHUNK + i <= last; };
        float maximum = -infinity();
        for (int i = lane(); i < KV_CHUNK; i += LANES) {
            // A NaN is never larger.
            if (is_seen(i) && own[i] > maximum) maximum = own[i];
        }
        maximum = warp_larger(maximum);
        for (int i = lane(); i < KV_CHUNK; i += LANES) own[i] = is_seen(i) ? exp_exact(own[i] - maximum) : 0.0f;
        sync_warp();
        float sum = 0.0f;
#pragma unroll 4
        for (int i = lane() % 16; i < KV_CHUNK; i += 16) sum = sum + own[i];
        sum = tree_sum(sum);
        if constexpr (TYPE == KvType::Int8 || TYPE == KvType::Int14) {
            // The weights times the scales of the values, as integers of two digits.
            float largest = 0.0f, poison = 0.0f;
            sync_warp();
            for (int i = lane(); i < KV_CHUNK; i += LANES) {
                if (!is_seen(i)) continue;
                int position = chunk * KV_CHUNK + i;
                const unsigned* values = kv_keys(call.layer, blocks[position / KV_BLOCK], kv_head) + call.layer.head_words;
                float weight = own[i] * __uint_as_float(values[call.layer.head_words - KV_BLOCK + position % KV_BLOCK]);
                own[i] = weight;
                largest = weight > largest ? weight : largest;
                poison = fmaf(weight, 0.0f, poison);
            }
            sync_warp();
            largest = warp_larger(largest);
#pragma unroll
            for (int mask = LANES / 2; mask > 0; mask /= 2) poison += shuffle_xor(poison, mask);
            float total = 0.0f;
            for (int i = lane() % 16; i < KV_CHUNK; i += 16) total = total + own[i];
            total = tree_sum(total);
            IntegerScale scale = TYPE == KvType::Int8 ? integer_scale(largest, 16383.0f)
                                                      : larger_scale(integer_scale(largest, 16319.0f), integer_scale(total, 260000.0f));
            // Word i of a plane has the digits of positions 4i to 4i + 3.
            for (int i = lane(); i < KV_CHUNK / 4; i += LANES) {
                unsigned high = 0, low = 0;
                for (int j = 0; j < 4; j++) {
                    int whole = (int)round_even(own[4 * i + j] * scale.inverse);
                    high |= (unsigned)(whole >> 7 & 255) << 8 * j;
                    low |= (unsigned)(whole & 127) << 8 * j;
                }
                digits[q * (KV_CHUNK / 2) + i] = high;
                digits[q * (KV_CHUNK / 2) + KV_CHUNK / 4 + i] = low;
            }
            if (lane() == 0) states.weight_scale[q] = scale.scale + poison;
        }
        if (lane() == 0) {
            if (states.begun[q]) {
                float larger_maximum = maximum > states.maximum[q] ? maximum : states.maximum[q];
                float a = exp_exact(states.maximum[q] - larger_maximum), b = exp_exact(maximum - larger_maximum);
                states.sum[q] = fmaf(states.sum[q], a, sum * b);
                states.maximum[q] = larger_maximum;
                states.old_factor[q] = a;
                states.new_factor[q] = b;
            } else {
                states.maximum[q] = maximum;
                states.sum[q] = sum;
            }
        }
    }
}

// Returns a chunk's weighted sum of a column of the values.
template <KvType TYPE, int QUERIES>
__device__ __forceinline__ float weigh_column(const AttentionCall& call, const QueryStates<QUERIES>& states, const float* scores,
                                              const unsigned* digits, int q, int column, int chunk, int kv_head, const int* blocks) {
    int columns = padded_columns(call.head_size), start = chunk * KV_CHUNK;
    int first = max(states.first[q], start), last = min(states.last[q], start + KV_CHUNK - 1);
    if constexpr (TYPE == KvType::F32 || TYPE == KvType::F16) {
        float sum = 0.0f;
        for (int block = first / KV_BLOCK; block <= last / KV_BLOCK; block++) {
            const unsigned* values = kv_keys(call.layer, blocks[block], kv_head) + call.layer.head_words;
            int from = max(first, block * KV_BLOCK), end = min(last + 1, block * KV_BLOCK + KV_BLOCK);
#pragma unroll(QUERIES > 4 ? 16 : 32)
            for (int position = from; position < end; position++) {
                float value;
                int at = position % KV_BLOCK * columns + column;
                if constexpr (TYPE == KvType::F32) value = reinterpret_cast<const float*>(values)[at];
                else value = to_f32(reinterpret_cast<const f16*>(values)[at]);
                sum = fmaf(scores[q * KV_CHUNK + position - start], value, sum);
            }
        }
        return sum;
    } else {
        int plane = KV_BLOCK * columns / 4;
        unsigned sums[4] = {0, 0, 0, 0};
        const unsigned *high = digits + q * (KV_CHUNK / 2), *low = high + KV_CHUNK / 4;
        for (int block = first / KV_BLOCK; block <= last / KV_BLOCK; block++) {
            const unsigned* values = kv_keys(call.layer, blocks[block], kv_head) + call.layer.head_words;
            const unsigned* own = values + value_element(TYPE, columns, 0, column) / 4;
            int word = (block * KV_BLOCK - start) / 4;
            // Weights of masked positions are zero.
#pragma unroll 4
            for (int i = 0; i < KV_BLOCK / 4; i++) {
                sums[0] = (unsigned)dot4((int)own[16 * i], (int)high[word + i], (int)sums[0]);
                sums[1] = (unsigned)dot4((int)own[16 * i], (int)low[word + i], (int)sums[1]);
                if constexpr (TYPE == KvType::Int14) {
                    sums[2] = (unsigned)dot4((int)own[plane + 16 * i], (int)high[word + i], (int)sums[2]);
                    sums[3] = (unsigned)dot4((int)own[plane + 16 * i], (int)low[word + i], (int)sums[3]);
                }
            }
        }
        float scale = states.weight_scale[q];
        if constexpr (TYPE == KvType::Int8) return fmaf((float)(int)sums[0], 128.0f, (float)(int)sums[1]) * scale;
        return (float)(int)(sums[0] * 16384 + (sums[1] + sums[2]) * 128 + sums[3]) * scale;
    }
}

// The weighted sums of a column for four adjacent queries, which share the loads of the values. For float caches.
template <KvType TYPE, int QUERIES>
__device__ __forceinline__ void weigh_column_4(float (&sums)[4], const AttentionCall& call, const QueryStates<QUERIES>& states,
                                               const float* scores, const int (&queries)[4], int column, int chunk, int kv_head,
                                               const int* blocks) {
    int columns = padded_columns(call.head_size), start = chunk * KV_CHUNK;
    int first[4], last[4], begin = start + KV_CHUNK, end = start, common_begin = start, common_end = start + KV_CHUNK;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        first[j] = max(states.first[queries[j]], start);
        last[j] = min(states.last[queries[j]], start + KV_CHUNK - 1);
        if (first[j] > last[j]) continue;
        begin = min(begin, first[j]);
        end = max(end, last[j] + 1);
        common_begin = max(common_begin, first[j]);
        common_end = min(common_end, last[j] + 1);
        sums[j] = 0.0f;
    }
    // Positions that all queries see have no tests; those before and after them do.
    auto segment = [&](int from, int to, auto is_common) {
        for (int position = from; position < to;) {
            const unsigned* values = kv_keys(call.layer, blocks[position / KV_BLOCK], kv_head) + call.layer.head_words;
            int block_end = min(to, (position / KV_BLOCK + 1) * KV_BLOCK);
#pragma unroll 8
            for (; position < block_end; position++) {
                float value;
                int at = position % KV_BLOCK * columns + column;
                if constexpr (TYPE == KvType::F32) value = reinterpret_cast<const float*>(values)[at];
                else value = to_f32(reinterpret_cast<const f16*>(values)[at]);
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    if (is_common.value || (position >= first[j] && position <= last[j])) {
                        sums[j] = fmaf(scores[queries[j] * KV_CHUNK + position - start], value, sums[j]);
                    }
                }
            }
        }
    };
    bool all = true;
#pragma unroll
    for (int j = 0; j < 4; j++) all = all && first[j] <= last[j];
    if (!all || common_end <= common_begin) {
        segment(begin, end, IntConstant<0>());
        return;
    }
    segment(begin, common_begin, IntConstant<0>());
    segment(common_begin, common_end, IntConstant<1>());
    segment(common_end, end, IntConstant<0>());
}

template <KvType TYPE, int QUERIES> __device__ __forceinline__ void attend(const AttentionCall& call) {
    __shared__ QueryStates<QUERIES> states;
    int group = call.heads / call.kv_heads, heads_here = min(group, QUERIES), rows_here = QUERIES / heads_here;
    int head_blocks = (group + heads_here - 1) / heads_here;
    if ((int)blockIdx.x >= *call.tile_count) return;
    int first_row = call.tiles ? call.tiles[2 * blockIdx.x] : blockIdx.x, tile_rows = call.tiles ? call.tiles[2 * blockIdx.x + 1] : 1;
    int kv_head = blockIdx.y / head_blocks, first_head = blockIdx.y % head_blocks * heads_here;
    int head_count = min(heads_here, group - first_head), count = min(rows_here, tile_rows) * head_count;
    int columns = padded_columns(call.head_size);
    float* scores = reinterpret_cast<float*>(dynamic_shared_memory());
    float* state = scores + QUERIES * KV_CHUNK;
    float* row = state + QUERIES * columns;
    unsigned* queries = reinterpret_cast<unsigned*>(row + columns);
    unsigned* digits = queries + QUERIES * columns;
    const int* blocks = call.block_lists + call.list_starts[first_row];
    if ((int)threadIdx.x < count) {
        int q = threadIdx.x;
        states.row[q] = first_row + q / head_count;
        states.head[q] = kv_head * group + first_head + q % head_count;
        states.slope[q] = call.slopes ? call.slopes[states.head[q]] : 0.0f;
        states.begun[q] = 0;
        states.seen[q] = 0;
    }
    sync_block();
    load_queries<TYPE, QUERIES>(call, states, queries, row, count);
    bool split = call.chunks > 0;
    for (int run = 0; run < (split ? 1 : RUNS); run++) {
        int begin = 0x7fffffff, end = -1;
        for (int r = 0; r < count / head_count; r++) {
            const QueryRanges& ranges = call.ranges[first_row + r];
            if (ranges.last[run] < ranges.first[run]) continue;
            begin = min(begin, ranges.first[run] / KV_CHUNK);
            end = max(end, ranges.last[run] / KV_CHUNK);
        }
        if (end < begin) break;
        if (split) {
            // Chunks of a row are counted from its own first; tiles of split keys have one row.
            begin += blockIdx.z;
            if (begin > end) return;
            end = begin;
        }
        sync_block();
        if ((int)threadIdx.x < count) {
            states.first[threadIdx.x] = call.ranges[states.row[threadIdx.x]].first[run];
            states.last[threadIdx.x] = call.ranges[states.row[threadIdx.x]].last[run];
        }
        sync_block();
        for (int chunk = begin; chunk <= end; chunk++) {
            int position = chunk * KV_CHUNK + threadIdx.x, needed = 0;
            for (int q = 0; q < count; q++) needed |= position >= states.first[q] && position <= states.last[q];
            if (needed) score_position<TYPE, QUERIES>(call, states, queries, scores, count, position, kv_head, blocks);
            sync_block();
            softmax_chunk<TYPE, QUERIES>(call, states, scores, digits, count, chunk, kv_head, blocks);
            sync_block();
            auto update = [&](int q, int column, float sum) {
                float* place = state + q * columns + column;
                *place = states.begun[q] ? fmaf(*place, states.old_factor[q], sum * states.new_factor[q]) : sum;
            };
            if constexpr (QUERIES >= 16 && (TYPE == KvType::F32 || TYPE == KvType::F16)) {
                for (int i = threadIdx.x; i < (count + 3) / 4 * call.head_size; i += ATTENTION_THREADS) {
                    int first_query = i / call.head_size * 4, column = i % call.head_size, own[4];
                    float sums[4];
#pragma unroll
                    for (int j = 0; j < 4; j++) own[j] = min(first_query + j, count - 1);
                    weigh_column_4<TYPE, QUERIES>(sums, call, states, scores, own, column, chunk, kv_head, blocks);
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        if (first_query + j < count && states.seen[own[j]]) update(own[j], column, sums[j]);
                    }
                }
            } else {
                for (int i = threadIdx.x; i < count * call.head_size; i += ATTENTION_THREADS) {
                    int q = i / call.head_size, column = i % call.head_size;
                    if (!states.seen[q]) continue;
                    update(q, column, weigh_column<TYPE, QUERIES>(call, states, scores, digits, q, column, chunk, kv_head, blocks));
                }
            }
            sync_block();
            if ((int)threadIdx.x < count && states.seen[threadIdx.x]) states.begun[threadIdx.x] = 1;
            sync_block();
        }
    }
    for (int i = threadIdx.x; i < count * call.head_size; i += ATTENTION_THREADS) {
        int q = i / call.head_size, column = i % call.head_size;
        if (split) {
            float* part = call.parts + (((long long)states.row[q] * call.heads + states.head[q]) * call.chunks + blockIdx.z) * (columns + 2);
            part[column] = state[q * columns + column];
            if (column == 0) {
                part[columns] = states.maximum[q];
                part[columns + 1] = states.sum[q];
            }
            continue;
        }
        float value = state[q * columns + column], sum = states.sum[q];
        if (call.sinks) {
            float sink = call.sinks[states.head[q]], maximum = states.maximum[q];
            float larger_maximum = sink > maximum ? sink : maximum;
            float a = exp_exact(maximum - larger_maximum), b = exp_exact(sink - larger_maximum);
            sum = fmaf(sum, a, b);
            value = fmaf(value, a, 0.0f * b);
        }
        call.out[(long long)states.row[q] * call.out_stride + states.head[q] * call.head_size + column] = value / sum;
    }
}

#define ATTENTION_PARAMETERS \
    (unsigned* pool, long long block_words, int offset, int head_words, const float* queries, float* out, int query_stride, \
     int out_stride, int head_size, int heads, int kv_heads, float scale, float softcap, const float* slopes, const float* sinks, \
     const float* bias, int bias_reach, const float* key_bias, const int* key_bias_ranges, const int* positions, const QueryRanges* ranges, const int* list_starts, \
     const int* block_lists, const int* tiles, const int* tile_count, float* parts, int chunks)
#define ATTENTION_CALL \
    AttentionCall{KvLayer{pool, block_words, offset, head_words}, queries, out, query_stride, out_stride, head_size, heads, \
                  kv_heads, scale, softcap, slopes, sinks, bias, bias_reach, key_bias, key_bias_ranges, positions, ranges, list_starts, block_lists, tiles, \
                  tile_count, parts, chunks}
#define PAGED_ATTENTION(name, TYPE) \
    ENTRY(paged_attention_##name##_1, ATTENTION_THREADS, ATTENTION_PARAMETERS, (attend<TYPE, 1>(ATTENTION_CALL))) \
    ENTRY(paged_attention_##name##_4, ATTENTION_THREADS, ATTENTION_PARAMETERS, (attend<TYPE, 4>(ATTENTION_CALL))) \
    ENTRY(paged_attention_##name##_16, ATTENTION_THREADS, ATTENTION_PARAMETERS, (attend<TYPE, 16>(ATTENTION_CALL)))

PAGED_ATTENTION(f32, KvType::F32)
PAGED_ATTENTION(f16, KvType::F16)
PAGED_ATTENTION(int8, KvType::Int8)
PAGED_ATTENTION(int14, KvType::Int14)

// Merges the parts of split keys in order, and divides by the sum: a block for each row and head, a thread for each column.
__device__ __forceinline__ void merge_parts(const float* parts, int chunks, const QueryRanges* ranges, const float* sinks, float* out,
                                            int out_stride, int head_size, int heads, int row_count) {
    int row = blockIdx.x, head = blockIdx.y, columns = padded_columns(head_size);
    if (row >= row_count) return;
    int count = ranges[row].last[0] / KV_CHUNK - ranges[row].first[0] / KV_CHUNK + 1;
    const float* own = parts + ((long long)row * heads + head) * chunks * (columns + 2);
    for (int column = threadIdx.x; column < head_size; column += blockDim.x) {
        float value = own[column], maximum = own[columns], sum = own[columns + 1];
        auto merge = [&](float part_value, float part_maximum, float part_sum) {
            float larger_maximum = part_maximum > maximum ? part_maximum : maximum;
            float a = exp_exact(maximum - larger_maximum), b = exp_exact(part_maximum - larger_maximum);
            sum = fmaf(sum, a, part_sum * b);
            value = fmaf(value, a, part_value * b);
            maximum = larger_maximum;
        };
        for (int chunk = 1; chunk < count; chunk++) {
            const float* part = own + chunk * (columns + 2);
            merge(part[column], part[columns], part[columns + 1]);
        }
        if (sinks) merge(0.0f, sinks[head], 1.0f);
        out[(long long)row * out_stride + head * head_size + column] = value / sum;
    }
}

ENTRY(merge_attention, 256,
      (const float* parts, int chunks, const QueryRanges* ranges, const float* sinks, float* out, int out_stride, int head_size,
       int heads, const int* row_count),
      merge_parts(parts, chunks, ranges, sinks, out, out_stride, head_size, heads, *row_count))
