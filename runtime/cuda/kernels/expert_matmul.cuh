// Matmuls of a mixture of experts: the slots of each expert are rows, which its matrix multiplies. The arithmetic is that
// of panel_matmul.cuh. A block computes eight panels of one expert, and leaves if no row selected the expert.
#pragma once

#include "panel_matmul.cuh"

#define EXPERT_WARPS 8
// Slots that are multiplied by weights in registers.
#define EXPERT_TILES 2
#define EXPERT_ROWS (8 * EXPERT_TILES)

// The slots of an expert. The slot table begins with the first slot of each expert.
struct ExpertSlots {
    int start, end;
};

__device__ __forceinline__ ExpertSlots slots_of_expert(const int* slots, int expert) {
    return {slots[expert], slots[expert + 1]};
}

template <class P> struct ExpertRows {
    // The activation row of a slot, or a valid one whose products are not used.
    static __device__ __forceinline__ WordPair columns(const QuantizedRows& rows, ExpertSlots slots, int slot, int half_macro) {
        if (slot >= slots.end) return {0, 0};
        return reinterpret_cast<const WordPair*>(rows.row(slot) + half_macro * 8)[lane() % 4];
    }

    // Continues the chains of rows 2g and the next of the panel and of slots 2t and the next.
    static __device__ __forceinline__ void add(float (&sums)[4], const int (&dots)[4], const byte* block, int macro, int sub,
                                               const QuantizedRows& rows, ExpertSlots slots, int slot) {
        int g = lane() / 4, t = lane() % 4, at = macro * 2 + sub * P::SUB / 32;
        SubBlockScale scales[2];
        float row_scale[2], row_sum[2] = {0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            scales[i] = P::scale(P::fields(block, macro % P::MACROS, sub, 2 * g + i));
            int own = min(slot + 2 * t + i, slots.end - 1);
            row_scale[i] = rows.scales(own)[at];
            if constexpr (P::HAS_MINIMUM) {
                if constexpr (P::SUB == 32) row_sum[i] = rows.scaled_sums(own)[macro * 2 + sub];
                else row_sum[i] = row_scale[i] * (float)rows.sums(own)[macro * 4 + sub];
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            sums[i] = fmaf((float)dots[i], scales[i / 2].scale * row_scale[i % 2], sums[i]);
            if constexpr (P::HAS_MINIMUM) sums[i] = fmaf(scales[i / 2].minimum, row_sum[i % 2], sums[i]);
        }
    }

    static __device__ __forceinline__ void run(const MatmulPart* parts, const int* slot_table, const int* input, int macros) {
        const MatmulPart& part = parts[blockIdx.y];
        ExpertSlots slots = slots_of_expert(slot_table, part.first_panel);
        int number = blockIdx.x * EXPERT_WARPS + warp();
        if (slots.start >= slots.end || number * PANEL_ROWS >= part.outputs) return;
        const byte* panel = part.weights + number * panel_bytes<P>(macros);
        QuantizedRows rows(input, macros * MACRO_COLUMNS);
        int g = lane() / 4, t = lane() % 4;
        for (int first = slots.start; first < slots.end; first += EXPERT_ROWS) {
            float chains[P::IS_ROW ? 1 : EXPERT_TILES][4] = {};
            int totals[P::IS_ROW ? EXPERT_TILES : 1][4] = {};
            for (int macro = 0; macro < macros; macro++) {
                const byte *planes = macro_planes<P>(panel, macro), *block = block_of_macro<P>(panel, macro);
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    unsigned a[4];
                    panel_operand<P>(a, load_panel_words<P>(planes, half));
#pragma unroll
                    for (int n = 0; n < EXPERT_TILES; n++) {
                        if (first + 8 * n >= slots.end) break;
                        WordPair whole = columns(rows, slots, first + 8 * n + g, 2 * macro + half);
#pragma unroll
                        for (int i = 0; i < P::SUBS / 2; i++) {
                            int sub = half * (P::SUBS / 2) + i;
                            WordPair b = P::SUB == 16 ? half_of_columns(whole, i) : whole;
                            int dots[4] = {0, 0, 0, 0};
                            mma_bytes(dots, a, b.low, b.high);
                            if constexpr (P::IS_ROW) {
#pragma unroll
                                for (int j = 0; j < 4; j++) {
                                    totals[n][j] += dots[j] * P::factor(block, macro % P::MACROS, sub, 2 * g + j / 2);
                                }
                            } else {
                                add(chains[n], dots, block, macro, sub, rows, slots, first + 8 * n);
                            }
                        }
                    }
                }
            }
#pragma unroll
            for (int n = 0; n < EXPERT_TILES; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int slot = first + 8 * n + 2 * t + i % 2, own_row = 2 * g + i / 2, output = number * PANEL_ROWS + own_row;
                    if (slot >= slots.end || output >= part.outputs) continue;
                    if constexpr (P::IS_ROW) {
                        float scale = P::row_scale(panel + panel_bytes<P>(macros) - P::ROW_SCALES, own_row);
                        store_output(part, slot, output, (float)totals[n][i] * (scale * rows.scales(slot)[0]));
                    } else {
                        store_output(part, slot, output, chains[n][i]);
                    }
                }
            }
        }
    }
};

// The parts are matrices of experts; `first_panel` is the number of the expert.
#define EXPERT_PARAMETERS (const MatmulPart* parts, const int* slots, const int* input, int macros)
#define EXPERT_ROWS_OF(P) ExpertRows<P>::run(parts, slots, input, macros)
