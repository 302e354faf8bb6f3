// Appends keys and values to a KV cache of integers: kernels/src/ops/attention/store/. row_ops.cu stores floats.
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

template <KvType TYPE>
__device__ __forceinline__ void store_kv(const KvLayer& layer, const float* keys, const float* values, int key_stride,
                                         int value_stride, int head_size, const int* blocks, const int* positions, int row_count) {
    int row = blockIdx.x, head = blockIdx.y;
    if (row >= row_count) return;
    int columns = padded_columns(head_size), slot = positions[row] % KV_BLOCK;
    unsigned* key_words = kv_keys(layer, blocks[row], head);
    unsigned* value_words = key_words + layer.head_words;
    const float* key = keys + (long long)row * key_stride + head * head_size;
    const float* value = values + (long long)row * value_stride + head * head_size;
    __shared__ float row_values[MAX_INTEGER_COLUMNS];
    // Of an int14 cache, the low digits follow the high ones.
    int plane = KV_BLOCK * columns;
    for (int i = threadIdx.x; i < columns; i += STORE_THREADS) row_values[i] = i < head_size ? key[i] : 0.0f;
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
    for (int i = threadIdx.x; i < head_size; i += STORE_THREADS) row_values[i] = value[i];
    sync_block();
    scale = row_integer_scale(row_values, head_size, TYPE == KvType::Int14 ? 8127.0f : 127.0f);
    store(value_words, false, scale, head_size);
}

#define STORE_PARAMETERS \
    (unsigned* pool, long long block_words, int offset, int head_words, const float* keys, const float* values, int key_stride, \
     int value_stride, int head_size, const int* blocks, const int* positions, const int* row_count)
#define STORE(TYPE) \
    store_kv<TYPE>(KvLayer{pool, block_words, offset, head_words}, keys, values, key_stride, value_stride, head_size, blocks, positions, *row_count)

ENTRY(kv_store_int8, STORE_THREADS, STORE_PARAMETERS, STORE(KvType::Int8))
ENTRY(kv_store_int14, STORE_THREADS, STORE_PARAMETERS, STORE(KvType::Int14))

// Copies a block of the KV cache to another.
ENTRY(kv_copy_block, 256, (unsigned* pool, long long block_words, int from, int to), {
    for (long long i = blockIdx.x * 256 + threadIdx.x; i < block_words; i += gridDim.x * 256) {
        pool[to * block_words + i] = pool[from * block_words + i];
    }
})
