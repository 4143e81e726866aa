// Adds a batch's loss to the sums over batches and counts the batches before the first whose loss is not finite: one thread.
#include "device.cuh"
#include "loss_sum_structs.h"  // molgcn/ops/loss_sum.py

extern "C" __global__ void add_loss(const __grid_constant__ Parameters p) {
    const double total = p.sums[0] + p.batch[0];
    p.sums[0] = total, p.sums[1] += p.batch[1];
    if (total <= 1.7976931348623157e308) *p.finite += 1;  // neither infinite nor NaN, which it then stays
}
