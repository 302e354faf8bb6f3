// Mixture of experts: routing, dispatch to slots, and the grouped matmuls of the experts. A choice within the
// capacity has a slot; the slots of an expert are adjacent, in row order. The number of slots per expert is
// known only on the device.
#include "attention.cuh"

// Choices that a block sorts.
#define CHOICES 256
// Rows and columns of a tile.
#define SIDE 64

// A routed row holds the weights of the chosen experts, then their indices.
template <class T> __device__ __forceinline__ int expert_index(const T* routed, int index, int chosen) {
    return (int)to_f32(routed[(long long)(index / chosen) * 2 * chosen + chosen + index % chosen]);
}

// Softmax statistics of a row's scores: the maximum, and the sum of exponentials relative to it.
struct Softmax {
    float maximum;
    float sum;
};

template <class T> __device__ __forceinline__ Softmax softmax_of(const T* scores, int experts) {
    float maximum = -infinity(), sum = 0;
    for (int i = 0; i < experts; i++) maximum = max(maximum, to_f32(scores[i]));
    for (int i = 0; i < experts; i++) sum += expf(to_f32(scores[i]) - maximum);
    return {maximum, sum};
}

// Top-k routing. A thread handles one row.
template <class T>
__device__ void route(const T* scores, T* out, int rows, int experts, int chosen, int normalize) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    scores += (long long)row * experts;
    out += (long long)row * 2 * chosen;
    Softmax softmax = softmax_of(scores, experts);
    float sum = 0;
    for (int choice = 0; choice < chosen; choice++) {
        int best = -1;
        for (int i = 0; i < experts; i++) {
            bool taken = false;
            for (int j = 0; j < choice; j++) taken = taken || (int)to_f32(out[chosen + j]) == i;
            if (!taken && (best < 0 || to_f32(scores[i]) > to_f32(scores[best]))) best = i;
        }
        from_f32(out[chosen + choice], best);
        sum += expf(to_f32(scores[best]) - softmax.maximum) / softmax.sum;
    }
    for (int choice = 0; choice < chosen; choice++) {
        int expert = (int)to_f32(out[chosen + choice]);
        float probability = expf(to_f32(scores[expert]) - softmax.maximum) / softmax.sum;
        from_f32(out[choice], normalize ? probability / sum : probability);
    }
}

template <class T>
__device__ void route_backward(const T* scores, const T* routed, const T* gradient, T* to, int add, int rows, int experts,
                           int chosen, int normalize) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    scores += (long long)row * experts;
    to += (long long)row * experts;
    routed += (long long)row * 2 * chosen;
    gradient += (long long)row * 2 * chosen;
    Softmax softmax = softmax_of(scores, experts);
    float sum = 0, inner = 0;
    for (int choice = 0; choice < chosen; choice++) {
        float probability = expf(to_f32(scores[(int)to_f32(routed[chosen + choice])]) - softmax.maximum) / softmax.sum;
        sum += probability;
        inner += to_f32(gradient[choice]) * probability;
    }
    // The gradient with respect to the probability of a choice, including its effect through the
    // normalization.
    auto probability_grad = [&](int choice) {
        float own = to_f32(gradient[choice]);
        return normalize ? own / sum - inner / (sum * sum) : own;
    };
    float all = 0;
    for (int choice = 0; choice < chosen; choice++) {
        all += probability_grad(choice) * expf(to_f32(scores[(int)to_f32(routed[chosen + choice])]) - softmax.maximum) / softmax.sum;
    }
    for (int i = 0; i < experts; i++) {
        float own = 0;
        for (int choice = 0; choice < chosen; choice++) {
            if ((int)to_f32(routed[chosen + choice]) == i) own = probability_grad(choice);
        }
        store_or_accumulate(to[i], expf(to_f32(scores[i]) - softmax.maximum) / softmax.sum * (own - all), add);
    }
}

// Writes the expert of each choice; -1 if the expert is over capacity. Counts the choices of each expert
// within a block.
template <class T>
__device__ void count_choices(const T* routed, const int* first_rows, int capacity, int* expert_of, int* owners, int* counts,
                       int count, int chosen, int experts) {
    __shared__ int own[CHOICES];
    int index = blockIdx.x * CHOICES + threadIdx.x, expert = -1;
    if (index < count) {
        expert = expert_index(routed, index, chosen);
        int before = 0;
        for (int i = first_rows[index / chosen] * chosen; capacity > 0 && i < index; i++) {
            before += expert_index(routed, i, chosen) == expert ? 1 : 0;
        }
        if (capacity > 0 && before >= capacity) expert = -1;
        expert_of[index] = expert;
        owners[index] = -1;
    }
    own[threadIdx.x] = expert;
    sync_block();
    for (int i = threadIdx.x; i < experts; i += CHOICES) {
        int sum = 0;
        for (int j = 0; j < CHOICES; j++) sum += own[j] == i ? 1 : 0;
        counts[(long long)blockIdx.x * experts + i] = sum;
    }
}

// Prefix sums, in one block: computes the first slot of each expert, and replaces the counts by the first
// slot of each block's choices.
__device__ __forceinline__ void compute_offsets(int* counts, int* starts, int blocks, int experts) {
    for (int i = threadIdx.x; i < experts; i += CHOICES) {
        int sum = 0;
        for (int block = 0; block < blocks; block++) sum += counts[(long long)block * experts + i];
        starts[i + 1] = sum;
    }
    sync_block();
    if (threadIdx.x == 0) {
        starts[0] = 0;
        for (int i = 0; i < experts; i++) starts[i + 1] += starts[i];
    }
    sync_block();
    for (int i = threadIdx.x; i < experts; i += CHOICES) {
        int next = starts[i];
        for (int block = 0; block < blocks; block++) {
            int* count = counts + (long long)block * experts + i;
            int own = *count;
            *count = next;
            next += own;
        }
    }
}

// Writes the slot of each choice, -1 if it has none, and the choice of each slot.
__device__ __forceinline__ void assign(const int* expert_of, const int* firsts, int* slot_of, int* owners, int count,
                                              int experts) {
    __shared__ int own[CHOICES];
    int index = blockIdx.x * CHOICES + threadIdx.x, expert = index < count ? expert_of[index] : -1;
    own[threadIdx.x] = expert;
    sync_block();
    if (index >= count) return;
    if (expert < 0) {
        slot_of[index] = -1;
        return;
    }
    int slot = firsts[(long long)blockIdx.x * experts + expert];
    for (int i = 0; i < (int)threadIdx.x; i++) slot += own[i] == expert ? 1 : 0;
    slot_of[index] = slot;
    owners[slot] = index;
}

// Dispatch: copies the row of each slot's choice, times the weight of the choice if `routed` is given; zero
// for unused slots.
template <class T>
__device__ void dispatch(const T* from, const T* routed, const int* owners, T* to, int add, int slots, int columns,
                         int chosen) {
    bool aligned = is_aligned(from, columns) && is_aligned(to, columns);
    for_each_element_2d<T>(slots, columns, aligned, [&](int slot, int column, auto size) {
        constexpr int COUNT = decltype(size)::value;
        float x[COUNT] = {};
        int owner = owners[slot];
        if (owner >= 0) {
            int row = owner / chosen;
            read<COUNT>(x, from + (long long)row * columns + column);
            float weight = routed ? to_f32(routed[(long long)row * 2 * chosen + owner % chosen]) : 1;
#pragma unroll
            for (int i = 0; i < COUNT; i++) x[i] *= weight;
        }
        store_or_accumulate<COUNT>(to + (long long)slot * columns + column, x, add);
    });
}

// Combine: sums the slots of each row, times the weights of the choices if `routed` is given.
template <class T>
__device__ void combine(const T* from, const T* routed, const int* slot_of, T* to, int add, int rows, int columns,
                         int chosen) {
    bool aligned = is_aligned(from, columns) && is_aligned(to, columns);
    for_each_element_2d<T>(rows, columns, aligned, [&](int row, int column, auto size) {
        constexpr int COUNT = decltype(size)::value;
        float sums[COUNT] = {}, x[COUNT];
        for (int choice = 0; choice < chosen; choice++) {
            int slot = slot_of[row * chosen + choice];
            if (slot < 0) continue;
            read<COUNT>(x, from + (long long)slot * columns + column);
            float weight = routed ? to_f32(routed[(long long)row * 2 * chosen + choice]) : 1;
#pragma unroll
            for (int i = 0; i < COUNT; i++) sums[i] += weight * x[i];
        }
        store_or_accumulate<COUNT>(to + (long long)row * columns + column, sums, add);
    });
}

// Computes the gradients of the weights; expert indices have none. A warp handles one choice.
template <class T>
__device__ void combine_weights_backward(const T* slots, const T* gradient, const int* slot_of, T* to, int add, int count, int columns,
                             int chosen) {
    int index = blockIdx.x * warps() + warp();
    if (index >= count) return;
    int slot = slot_of[index], row = index / chosen;
    float sum = 0;
    for (int i = lane(); slot >= 0 && i < columns; i += LANES) {
        sum += to_f32(gradient[(long long)row * columns + i]) * to_f32(slots[(long long)slot * columns + i]);
    }
    sum = warp_sum(sum);
    if (lane() > 0) return;
    T* own = to + (long long)row * 2 * chosen + index % chosen;
    store_or_accumulate(own[0], sum, add);
    if (!add) from_f32(own[chosen], 0);
}

// Slots of one expert.
struct SlotTile {
    int expert;
    int first;
    int count;
};

// Returns run `place` of up to SIDE slots, expert by expert, followed by runs of unused slots; empty past the
// end.
__device__ __forceinline__ SlotTile slot_tile(const int* starts, int experts, int slots, int index) {
    for (int expert = 0; expert <= experts; expert++) {
        int first = starts[expert], end = expert < experts ? starts[expert + 1] : slots;
        int tiles = (end - first + SIDE - 1) / SIDE;
        if (index < tiles) return {expert, first + index * SIDE, min(end - first - index * SIDE, SIDE)};
        index -= tiles;
    }
    return {experts, 0, 0};
}

// Copies a part of a matrix to a tile, transposed and zero-padded.
template <class T>
__device__ __forceinline__ void load_transposed_tile(T* tile, const T* from, int width, int rows, int columns) {
    for (int i = threadIdx.x; i < SIDE * SIDE; i += blockDim.x) {
        int row = i / SIDE, column = i % SIDE;
        T x;
        from_f32(x, 0);
        if (row < rows && column < columns) x = from[(long long)row * width + column];
        tile[column * TileConfig<T, SIDE>::stride + row] = x;
    }
}

// Waits for both tiles, and accumulates their product.
template <class T>
__device__ __forceinline__ void add_tiles(float (&sums)[SIDE / 8][4], const T* a, const T* b) {
    cp_async_commit();
    cp_async_wait<0>();
    sync_block();
    float part[SIDE / 8][4];
    product<SIDE, SIDE>(part, a + warp() * OWN * TileConfig<T, SIDE>::stride, b);
#pragma unroll
    for (int n = 0; n < SIDE / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) sums[n][i] += part[n][i];
    }
    sync_block();
}

// Calls work(row, column, sum) for the elements of a tile that a lane holds.
template <class Work>
__device__ __forceinline__ void for_each_in_tile(const float (&sums)[SIDE / 8][4], int rows, int columns, Work work) {
#pragma unroll
    for (int n = 0; n < SIDE / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = warp() * OWN + lane() / 4 + i / 2 * 8, column = n * 8 + lane() % 4 * 2 + i % 2;
            if (row < rows && column < columns) work(row, column, sums[n][i]);
        }
    }
}

template <class T> __device__ __forceinline__ T* second_tile() {
    return (T*)dynamic_shared_memory() + SIDE * TileConfig<T, SIDE>::stride;
}

// Grouped matmul: multiplies each slot with the matrix of its expert, and adds its bias if there is one; zero
// for unused slots.
template <class T>
__device__ void expert_linear(const T* x, const T* const* weights, const T* const* biases, const int* starts, T* out,
                              int slots, int depth, int columns, int experts) {
    T *a = (T*)dynamic_shared_memory(), *b = second_tile<T>();
    SlotTile tile = slot_tile(starts, experts, slots, blockIdx.y);
    if (tile.count == 0) return;
    int column = blockIdx.x * SIDE, width = min(columns - column, SIDE);
    float sums[SIDE / 8][4] = {};
    bool owned = tile.expert < experts;
    for (int k = 0; owned && k < depth; k += SIDE) {
        int size = min(depth - k, SIDE);
        load_tile<SIDE, SIDE>(a, Heads<T>{x + k, depth, size}, tile.first, tile.count);
        load_tile<SIDE, SIDE>(b, Heads<T>{weights[tile.expert] + k, depth, size}, column, width);
        add_tiles(sums, a, b);
    }
    const T* bias = owned && biases ? biases[tile.expert] : nullptr;
    for_each_in_tile(sums, tile.count, width, [&](int row, int i, float sum) {
        float term = bias ? to_f32(bias[column + i]) : 0;
        from_f32(out[(long long)(tile.first + row) * columns + column + i], sum + term);
    });
}

// Computes the gradients of the slots.
template <class T>
__device__ void expert_linear_backward(const T* gradient, const T* const* weights, const int* starts, T* to, int add, int slots,
                            int depth, int columns, int experts) {
    T *a = (T*)dynamic_shared_memory(), *b = second_tile<T>();
    SlotTile tile = slot_tile(starts, experts, slots, blockIdx.y);
    if (tile.count == 0) return;
    int column = blockIdx.x * SIDE, width = min(depth - column, SIDE);
    float sums[SIDE / 8][4] = {};
    bool owned = tile.expert < experts;
    for (int k = 0; owned && k < columns; k += SIDE) {
        int size = min(columns - k, SIDE);
        load_tile<SIDE, SIDE>(a, Heads<T>{gradient + k, columns, size}, tile.first, tile.count);
        load_transposed_tile(b, weights[tile.expert] + (long long)k * depth + column, depth, size, width);
        add_tiles(sums, a, b);
    }
    for_each_in_tile(sums, tile.count, width, [&](int row, int i, float sum) {
        store_or_accumulate(to[(long long)(tile.first + row) * depth + column + i], sum, add);
    });
}

// Accumulates the gradients of an expert's matrix, if it is trained. blockIdx.z is the expert.
template <class T>
__device__ void expert_linear_weights_backward(const T* x, const T* gradient, float* const* gradients, const int* starts, int depth,
                                    int columns) {
    T *a = (T*)dynamic_shared_memory(), *b = second_tile<T>();
    float* to = gradients[blockIdx.z];
    if (!to) return;
    int first_row = blockIdx.y * SIDE, rows = min(columns - first_row, SIDE);
    int first_column = blockIdx.x * SIDE, width = min(depth - first_column, SIDE);
    float sums[SIDE / 8][4] = {};
    for (int slot = starts[blockIdx.z]; slot < starts[blockIdx.z + 1]; slot += SIDE) {
        int count = min(starts[blockIdx.z + 1] - slot, SIDE);
        load_transposed_tile(a, gradient + (long long)slot * columns + first_row, columns, count, rows);
        load_transposed_tile(b, x + (long long)slot * depth + first_column, depth, count, width);
        add_tiles(sums, a, b);
    }
    for_each_in_tile(sums, rows, width, [&](int row, int i, float sum) {
        to[(long long)(first_row + row) * depth + first_column + i] += sum;
    });
}

// Accumulates the gradients of an expert's bias, if it is trained. A block handles 32 columns of an expert.
template <class T>
__device__ void expert_linear_bias_backward(const T* gradient, float* const* gradients, const int* starts, int columns) {
    __shared__ float sums[8][LANES];
    float* to = gradients[blockIdx.y];
    if (!to) return;
    int column = blockIdx.x * LANES + lane();
    float sum = 0;
    for (int slot = starts[blockIdx.y] + warp(); column < columns && slot < starts[blockIdx.y + 1]; slot += 8) {
        sum += to_f32(gradient[(long long)slot * columns + column]);
    }
    sums[warp()][lane()] = sum;
    sync_block();
    if (warp() > 0 || column >= columns) return;
    for (int i = 1; i < 8; i++) sum += sums[i][lane()];
    to[column] += sum;
}

ENTRY(expert_offsets, CHOICES, (int* counts, int* starts, int blocks, int experts),
      compute_offsets(counts, starts, blocks, experts))
ENTRY(assign_slots, CHOICES,
      (const int* expert_of, const int* firsts, int* slot_of, int* owners, int count, int experts),
      assign(expert_of, firsts, slot_of, owners, count, experts))

#define KERNELS(T, type)                                                                                            \
    ENTRY(route_##type, 256, (const T* scores, T* out, int rows, int experts, int chosen, int normalize),           \
          route(scores, out, rows, experts, chosen, normalize))                                                     \
    ENTRY(route_backward_##type, 256,                                                                                   \
          (const T* scores, const T* routed, const T* gradient, T* to, int add, int rows, int experts, int chosen,  \
           int normalize),                                                                                          \
          route_backward(scores, routed, gradient, to, add, rows, experts, chosen, normalize))                          \
    ENTRY(count_choices_##type, CHOICES,                                                                                   \
          (const T* routed, const int* first_rows, int capacity, int* expert_of, int* owners, int* counts,          \
           int count, int chosen, int experts),                                                                     \
          count_choices(routed, first_rows, capacity, expert_of, owners, counts, count, chosen, experts))                  \
    ENTRY(dispatch_##type, 256,                                                                                     \
          (const T* from, const T* routed, const int* owners, T* to, int add, int slots, int columns, int chosen),  \
          dispatch(from, routed, owners, to, add, slots, columns, chosen))                                          \
    ENTRY(combine_##type, 256,                                                                                     \
          (const T* from, const T* routed, const int* slot_of, T* to, int add, int rows, int columns, int chosen),   \
          combine(from, routed, slot_of, to, add, rows, columns, chosen))                                           \
    ENTRY(combine_weights_backward_##type, 256,                                                                                 \
          (const T* slots, const T* gradient, const int* slot_of, T* to, int add, int count, int columns,            \
           int chosen),                                                                                             \
          combine_weights_backward(slots, gradient, slot_of, to, add, count, columns, chosen))                                   \
    ENTRY(expert_linear_##type, (TileConfig<T, SIDE>::threads),                                                           \
          (const T* x, const T* const* weights, const T* const* biases, const int* starts, T* out, int slots,       \
           int depth, int columns, int experts),                                                                    \
          expert_linear(x, weights, biases, starts, out, slots, depth, columns, experts))                           \
    ENTRY(expert_linear_backward_##type, (TileConfig<T, SIDE>::threads),                                                             \
          (const T* gradient, const T* const* weights, const int* starts, T* to, int add, int slots, int depth,     \
           int columns, int experts),                                                                               \
          expert_linear_backward(gradient, weights, starts, to, add, slots, depth, columns, experts))                          \
    ENTRY(expert_linear_weights_backward_##type, (TileConfig<T, SIDE>::threads),                                                     \
          (const T* x, const T* gradient, float* const* gradients, const int* starts, int depth, int columns),      \
          expert_linear_weights_backward(x, gradient, gradients, starts, depth, columns))                                      \
    ENTRY(expert_linear_bias_backward_##type, 256,                                                                             \
          (const T* gradient, float* const* gradients, const int* starts, int columns),                             \
          expert_linear_bias_backward(gradient, gradients, starts, columns))
FOR_EACH_TYPE(KERNELS)
