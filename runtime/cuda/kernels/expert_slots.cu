// Assigns a slot to every selection of an expert: moe_routing::assign_slots in runtime/backend/. The table has the first
// slot of each expert and the end of the last one's, words that are not used, the slot of each selection, or −1 beyond the
// capacity of its expert, and the row of each slot.
#include "exact.cuh"

#define SLOT_THREADS 256
#define SLOT_CHUNK 1024

// Calls work(selection, is first of a run of rows of a sequence) for each selection of an expert, in order. All threads
// of the block call it; a thread with an expert beyond the last gets none.
template <class Work>
__device__ __forceinline__ void for_each_selection(int* chunk, const float* routed, int stride, int top_k, const int* run_starts, int rows,
                                                   int expert, Work work) {
    for (int begin = 0; begin < rows * top_k; begin += SLOT_CHUNK) {
        int count = min(SLOT_CHUNK, rows * top_k - begin);
        sync_block();
        for (int i = threadIdx.x; i < count; i += SLOT_THREADS) {
            int row = (begin + i) / top_k, choice = (begin + i) % top_k;
            int number = (int)routed[(long long)row * stride + top_k + choice];
            chunk[i] = number | (choice == 0 && run_starts[row] ? 0x40000000 : 0);
        }
        sync_block();
        for (int i = 0; i < count; i++) work(begin + i, (chunk[i] & 0x40000000) != 0, (chunk[i] & 0x3fffffff) == expert);
    }
}

// Runs in one block.
__device__ __forceinline__ void assign(int* chunk, const float* routed, int stride, int experts, int top_k, int capacity,
                                       const int* run_starts, int rows, int* table) {
    int *slots = table + 2 * experts + 1, *owners = slots + rows * top_k;
    for (int group = 0; group < experts; group += SLOT_THREADS) {
        int expert = group + threadIdx.x, kept = 0, taken = 0;
        for_each_selection(chunk, routed, stride, top_k, run_starts, rows, expert, [&](int, bool is_start, bool is_own) {
            if (is_start) taken = 0;
            if (!is_own) return;
            kept += capacity < 0 || taken < capacity;
            taken++;
        });
        if (expert < experts) table[expert + 1] = kept;
    }
    sync_block();
    if (threadIdx.x == 0) {
        table[0] = 0;
        for (int expert = 0; expert < experts; expert++) table[expert + 1] += table[expert];
    }
    for (int group = 0; group < experts; group += SLOT_THREADS) {
        sync_block();
        int expert = group + threadIdx.x, taken = 0, slot = expert < experts ? table[expert] : 0;
        for_each_selection(chunk, routed, stride, top_k, run_starts, rows, expert, [&](int selection, bool is_start, bool is_own) {
            if (is_start) taken = 0;
            if (!is_own) return;
            bool is_kept = capacity < 0 || taken < capacity;
            taken++;
            slots[selection] = is_kept ? slot : -1;
            if (is_kept) owners[slot++] = selection / top_k;
        });
    }
}

// `capacity` limits the rows of a sequence that an expert takes; negative: no limit.
ENTRY(expert_slots, SLOT_THREADS,
      (const float* routed, int stride, int experts, int top_k, int capacity, const int* run_starts, const int* row_count, int* table), {
    __shared__ int chunk[SLOT_CHUNK];
    assign(chunk, routed, stride, experts, top_k, capacity, run_starts, *row_count, table);
})
