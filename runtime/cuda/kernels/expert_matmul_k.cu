// Matmuls of experts with weight types that have two levels of scales and blocks of 256 columns.
#include "exact.cuh"
#include "expert_matmul.cuh"

ENTRY(expert_matmul_q4k, 256, EXPERT_PARAMETERS, EXPERT_ROWS_OF(Q4K))
ENTRY(expert_matmul_q5k, 256, EXPERT_PARAMETERS, EXPERT_ROWS_OF(Q5K))
ENTRY(expert_matmul_q6k, 256, EXPERT_PARAMETERS, EXPERT_ROWS_OF(Q6K))
ENTRY(expert_matmul_q3k, 256, EXPERT_PARAMETERS, EXPERT_ROWS_OF(Q3K))
ENTRY(expert_matmul_q2k, 256, EXPERT_PARAMETERS, EXPERT_ROWS_OF(Q2K))
ENTRY(expert_matmul_iq4xs, 256, EXPERT_PARAMETERS, EXPERT_ROWS_OF(IQ4XS))
ENTRY(expert_matmul_ternary, 256, EXPERT_PARAMETERS, EXPERT_ROWS_OF(TERNARY))
