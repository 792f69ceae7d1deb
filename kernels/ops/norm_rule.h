#ifndef ANNULUS_KERNELS_OPS_NORM_RULE_H_
#define ANNULUS_KERNELS_OPS_NORM_RULE_H_

namespace annulus {

// How a model norms; all of its norms have one rule. Everything between a family's row
// (engine/model/families.cc) and the kernels passes it on whole. So another kind of norm takes a
// field here, the rows that set it, and the kernel of each table.
struct NormRule {
  float epsilon = 1e-6f;  // >= 0, added to the mean of squares
  bool centred = false;   // subtracts the mean of a row first: the layer norm of Ba et al. 2016
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_OPS_NORM_RULE_H_
