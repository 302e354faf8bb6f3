// Matmuls with row types: one scale per row, and one exact integer sum per output.
#include "exact.cuh"
#include "panel_matmul.cuh"

ENTRY_WITH_BLOCKS(matmul_one_w8r, 256, 3, MATMUL_PARAMETERS, MATMUL_ONE(W8R))
ENTRY_WITH_BLOCKS(matmul_few_w8r, 256, 2, MATMUL_PARAMETERS, MATMUL_FEW(W8R))
ENTRY_WITH_BLOCKS(matmul_many_w8r, 256, 2, MATMUL_PARAMETERS, MATMUL_MANY(W8R))
ENTRY_WITH_BLOCKS(matmul_one_w4i, 256, 3, MATMUL_PARAMETERS, MATMUL_ONE(W4I))
ENTRY_WITH_BLOCKS(matmul_few_w4i, 256, 2, MATMUL_PARAMETERS, MATMUL_FEW(W4I))
ENTRY_WITH_BLOCKS(matmul_many_w4i, 256, 2, MATMUL_PARAMETERS, MATMUL_MANY(W4I))
