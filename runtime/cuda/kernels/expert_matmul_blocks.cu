// Matmuls of experts with weight types that have a scale per 32 or 16 columns and blocks of 64 columns.
#include "exact.cuh"
#include "expert_matmul.cuh"

ENTRY(expert_matmul_q8, 256, EXPERT_PARAMETERS, EXPERT_ROWS_OF(Q8))
ENTRY(expert_matmul_q8s16, 256, EXPERT_PARAMETERS, EXPERT_ROWS_OF(Q8S16))
ENTRY(expert_matmul_q4, 256, EXPERT_PARAMETERS, EXPERT_ROWS_OF(Q4))
ENTRY(expert_matmul_q4m, 256, EXPERT_PARAMETERS, EXPERT_ROWS_OF(Q4M))
ENTRY(expert_matmul_q4nl, 256, EXPERT_PARAMETERS, EXPERT_ROWS_OF(Q4NL))
ENTRY(expert_matmul_mxfp4, 256, EXPERT_PARAMETERS, EXPERT_ROWS_OF(MXFP4))
ENTRY(expert_matmul_q5, 256, EXPERT_PARAMETERS, EXPERT_ROWS_OF(Q5))
ENTRY(expert_matmul_q5m, 256, EXPERT_PARAMETERS, EXPERT_ROWS_OF(Q5M))
ENTRY(expert_matmul_w8r, 256, EXPERT_PARAMETERS, EXPERT_ROWS_OF(W8R))
ENTRY(expert_matmul_w4i, 256, EXPERT_PARAMETERS, EXPERT_ROWS_OF(W4I))
