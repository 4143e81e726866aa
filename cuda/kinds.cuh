// The numbers of norms and poolings, in the order of NORMS and POOLS in molgcn/ops/layer_network/program.py.
#pragma once

#define NORM_NONE 0
#define NORM_LAYER 1
#define NORM_BATCH 2  // with running statistics: an affine map of each column
#define POOL_MEAN 0
#define POOL_SUM 1
#define POOL_MAX 2
