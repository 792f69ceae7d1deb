#ifndef ANNULUS_ENGINE_SPARSE_GATE_FITTING_H_
#define ANNULUS_ENGINE_SPARSE_GATE_FITTING_H_

#include <cstdint>
#include <vector>

namespace annulus {

// What one head of keys and values attended in one document.
struct GateExamples {
  int k_dim = 0;
  int heads = 1;                // query heads of the key head
  std::vector<float> features;  // [pages][3 * k_dim]: mean, least and greatest key of a page
  struct Example {
    int32_t pages = 0;          // that its rows see: the first ones
    int32_t head = 0;           // among `heads`
    std::vector<float> query;   // [k_dim]: mean of a query block's rows
    std::vector<float> target;  // [pages]: the attention that each got, adds up to 1
  };
  std::vector<Example> examples;
};

struct GateFitting {
  int width = 32;
  int passes = 60;     // over all examples
  float rate = 0.01f;  // of Adam (Kingma and Ba 2014), falls to a tenth over the passes
  uint32_t seed = 1;
};

// Gates of one head of keys and values.
struct FittedGate {
  std::vector<float> query;  // [heads][width][k_dim]
  std::vector<float> key;    // [width][3 * k_dim]
  double loss_before = 0;    // mean Kullback-Leibler divergence of the estimates from the targets
  double loss_after = 0;
};

// Distils gates from attention (SeerAttention, arXiv 2410.13276, section 3.2): the softmax of the
// scores of all pages that an example sees is drawn to its target by the divergence between them.
// Begins with random projections of queries and mean keys, for which scores are about q . k / sqrt
// (k_dim). All documents have the same k_dim and heads. Deterministic in its arguments.
FittedGate FitGate(const std::vector<GateExamples>& documents, const GateFitting& options);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SPARSE_GATE_FITTING_H_
