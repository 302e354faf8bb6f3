// Appends keys and values to the KV cache: kernels/src/ops/attention/store/. row_ops.cu stores floats that are not projected.
#include "exact.cuh"
#include "kv_cache.cuh"

#define STORE_THREADS 128
#define MAX_INTEGER_COLUMNS 512

// Splits an integer up to 8127 into digits from −64 to 63: 128 · high + low.
__device__ __forceinline__ void split_digits(int number, int& high, int& low) {
    high = (number + 64) >> 7;
    low = number - high * 128;
}

__device__ __forceinline__ int rounded(float x, float inverse) { return inverse == 0.0f ? 0 : (int)round_even(x * inverse); }

// Stores a key and a value of one head, whose columns are returned by functions.
template <KvType TYPE, class Key, class Value>
__device__ __forceinline__ void store_pair(const KvLayer& layer, int block, int head, int slot, int head_size, Key key, Value value) {
    int columns = padded_columns(head_size);
    unsigned* key_words = kv_keys(layer, block, head);
    unsigned* value_words = key_words + layer.head_words;
    if constexpr (TYPE == KvType::F32 || TYPE == KvType::F16) {
        for (int i = threadIdx.x; i < head_size; i += STORE_THREADS) {
            int key_at = key_element(TYPE, columns, slot, i), value_at = value_element(TYPE, columns, slot, i);
            if constexpr (TYPE == KvType::F16) {
                from_f32(reinterpret_cast<f16*>(key_words)[key_at], key(i));
                from_f32(reinterpret_cast<f16*>(value_words)[value_at], value(i));
            } else {
                reinterpret_cast<float*>(key_words)[key_at] = key(i);
                reinterpret_cast<float*>(value_words)[value_at] = value(i);
            }
        }
    } else {
        __shared__ float row_values[MAX_INTEGER_COLUMNS];
        // Of an int14 cache, the low digits follow the high ones.
        int plane = KV_BLOCK * columns;
        for (int i = threadIdx.x; i < columns; i += STORE_THREADS) row_values[i] = i < head_size ? key(i) : 0.0f;
        if constexpr (TYPE == KvType::Int14) rotate_in_shared(row_values, columns, rotation_width(columns));
        sync_block();
        auto store = [&](unsigned* words, bool is_key, IntegerScale scale, int count) {
            for (int i = threadIdx.x; i < count; i += STORE_THREADS) {
                int number = rounded(row_values[i], scale.inverse);
                int at = is_key ? key_element(TYPE, columns, slot, i) : value_element(TYPE, columns, slot, i);
                signed char* bytes = reinterpret_cast<signed char*>(words);
                if constexpr (TYPE == KvType::Int14) {
                    int high, low;
                    split_digits(number, high, low);
                    bytes[at] = (signed char)high;
                    bytes[plane + at] = (signed char)low;
                } else {
                    bytes[at] = (signed char)number;
                }
            }
            if (threadIdx.x == 0) words[layer.head_words - KV_BLOCK + slot] = __float_as_uint(scale.scale);
        };
        IntegerScale scale = TYPE == KvType::Int14 ? rotated_integer_scale(row_values, columns)
                                                   : row_integer_scale(row_values, head_size, 127.0f);
        store(key_words, true, scale, columns);
        sync_block();
        for (int i = threadIdx.x; i < head_size; i += STORE_THREADS) row_values[i] = value(i);
        sync_block();
        scale = row_integer_scale(row_values, head_size, TYPE == KvType::Int14 ? 8127.0f : 127.0f);
        store(value_words, false, scale, head_size);
    }
}

// A row is not stored if its block is negative.
template <KvType TYPE>
__device__ __forceinline__ void store_kv(const KvLayer& layer, const float* keys, const float* values, int key_stride,
                                         int value_stride, int head_size, const int* blocks, const int* positions, int row_count) {
    int row = blockIdx.x, head = blockIdx.y;
    if (row >= row_count || blocks[row] < 0) return;
    const float* key = keys + (long long)row * key_stride + head * head_size;
    const float* value = values + (long long)row * value_stride + head * head_size;
    store_pair<TYPE>(layer, blocks[row], head, positions[row] % KV_BLOCK, head_size, [&](int i) { return key[i]; },
                     [&](int i) { return value[i]; });
}

#define STORE_PARAMETERS \
    (unsigned* pool, long long block_words, int offset, int head_words, const float* keys, const float* values, int key_stride, \
     int value_stride, int head_size, const int* blocks, const int* positions, const int* row_count)
#define STORE(TYPE) \
    store_kv<TYPE>(KvLayer{pool, block_words, offset, head_words}, keys, values, key_stride, value_stride, head_size, blocks, positions, *row_count)

ENTRY(kv_store_int8, STORE_THREADS, STORE_PARAMETERS, STORE(KvType::Int8))
ENTRY(kv_store_int14, STORE_THREADS, STORE_PARAMETERS, STORE(KvType::Int14))

// Rows of keys and values, and the positions of a sequence that they are projected from.
struct ProjectedPairs {
    const float *keys, *values;
    int key_stride, value_stride, head_size;
    // Weights of `positions` positions for each projected one.
    const float *key_weights, *value_weights;
    int positions;
    // By sequence: the index of its first row in `rows`; then the end of the last one's.
    const int *starts, *rows;
};

// Linformer: stores sums over the positions of a sequence, each times a weight. A block for each sequence, head and
// projected position.
template <KvType TYPE>
__device__ __forceinline__ void store_projected(const KvLayer& layer, const ProjectedPairs& pairs, const int* sequence_count,
                                                const int* list_starts, const int* block_lists) {
    int sequence = blockIdx.x, head = blockIdx.y, position = blockIdx.z;
    if (sequence >= *sequence_count) return;
    int begin = pairs.starts[sequence], count = min(pairs.starts[sequence + 1] - begin, pairs.positions);
    auto mix = [&](const float* weights, const float* rows, int stride, int column) {
        const float* own = weights + (long long)position * pairs.positions;
        float sum = 0.0f;
        for (int i = 0; i < count; i++) {
            sum = sum + own[i] * rows[(long long)pairs.rows[begin + i] * stride + head * pairs.head_size + column];
        }
        return sum;
    };
    int block = block_lists[list_starts[pairs.rows[begin]] + position / KV_BLOCK];
    store_pair<TYPE>(layer, block, head, position % KV_BLOCK, pairs.head_size,
                     [&](int i) { return mix(pairs.key_weights, pairs.keys, pairs.key_stride, i); },
                     [&](int i) { return mix(pairs.value_weights, pairs.values, pairs.value_stride, i); });
}

#define PROJECTED_PARAMETERS \
    (unsigned* pool, long long block_words, int offset, int head_words, const float* keys, const float* values, int key_stride, \
     int value_stride, int head_size, const float* key_weights, const float* value_weights, int positions, const int* starts, \
     const int* rows, const int* sequence_count, const int* list_starts, const int* block_lists)
#define PROJECTED(TYPE) \
    store_projected<TYPE>(KvLayer{pool, block_words, offset, head_words}, \
                          ProjectedPairs{keys, values, key_stride, value_stride, head_size, key_weights, value_weights, positions, starts, rows}, \
                          sequence_count, list_starts, block_lists)

ENTRY(kv_store_projected_f32, STORE_THREADS, PROJECTED_PARAMETERS, PROJECTED(KvType::F32))
ENTRY(kv_store_projected_f16, STORE_THREADS, PROJECTED_PARAMETERS, PROJECTED(KvType::F16))
ENTRY(kv_store_projected_int8, STORE_THREADS, PROJECTED_PARAMETERS, PROJECTED(KvType::Int8))
ENTRY(kv_store_projected_int14, STORE_THREADS, PROJECTED_PARAMETERS, PROJECTED(KvType::Int14))

// Copies a block of the KV cache to another.
ENTRY(kv_copy_block, 256, (unsigned* pool, long long block_words, int from, int to), {
    for (long long i = blockIdx.x * 256 + threadIdx.x; i < block_words; i += gridDim.x * 256) {
        pool[to * block_words + i] = pool[from * block_words + i];
    }
})
