// RoPE: rotates pairs of columns, half a head apart, by the angles of a row's position. The last columns of a
// head may have no angle.
#include "common.cuh"

// Row `cos_sin_rows[row]` of `cos_sin` has a cosine for each pair, then a sine. `back` rotates in the opposite
// direction.
template <class T>
__device__ void rope(const T* x, const float* cos_sin, const int* cos_sin_rows, T* out, int back, int add, int rows,
                     int columns, int head_size, int pairs) {
    for_each_element_2d<T>(rows, columns, false, [&](int row, int column, auto) {
        int place = column % head_size;
        long long at = (long long)row * columns + column;
        if (place >= pairs) {
            if (place >= 2 * pairs) store_or_accumulate(out[at], to_f32(x[at]), add);
            return;
        }
        const float* table = cos_sin + (long long)cos_sin_rows[row] * 2 * pairs;
        float cosine = table[place], sine = back ? -table[pairs + place] : table[pairs + place];
        float a = to_f32(x[at]), b = to_f32(x[at + pairs]);
        store_or_accumulate(out[at], a * cosine - b * sine, add);
        store_or_accumulate(out[at + pairs], b * cosine + a * sine, add);
    });
}

#define KERNELS(T, type)                                                                                      \
    ENTRY(rope_##type, 256,                                                                                   \
          (const T* x, const float* cos_sin, const int* cos_sin_rows, T* out, int back, int add, int rows,    \
           int columns, int head_size, int pairs),                                                            \
          rope(x, cos_sin, cos_sin_rows, out, back, add, rows, columns, head_size, pairs))
FOR_EACH_TYPE(KERNELS)
