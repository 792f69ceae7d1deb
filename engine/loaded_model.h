#ifndef ANNULUS_ENGINE_LOADED_MODEL_H_
#define ANNULUS_ENGINE_LOADED_MODEL_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/api/load.h"
#include "engine/api/options.h"
#include "engine/runner/rank_model.h"
#include "engine/text/template/template_directory.h"
#include "engine/text/tokenizer.h"
#include "kernels/registry.h"

namespace annulus {

// Everything that is read from a model directory or computed for a builtin model.
struct LoadedModel {
  RankModel ranks;
  // What keys and values follow from beside tokens, policy and tenant, as a SHA-256: the bytes of
  // the tensors that were read, config.json, dtypes, kernels, the layout of pages. Not the path: a
  // copy of a model is the same model, and another one in its place is not.
  std::string identity;
  std::unique_ptr<Tokenizer> tokenizer;
  TemplateDirectory templates;
  ModelInfo info;
};

// Loads what EngineOptions::model names with the best kernels that fit. INVALID_ARGUMENT names an
// unknown builtin or what a file got wrong; FAILED_PRECONDITION says what no kernel supports. Where
// ranks are on several devices, weights are read once for each.
absl::StatusOr<LoadedModel> LoadModel(const EngineOptions& options, Backend& backend,
                                      const KernelRegistry& kernels);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_LOADED_MODEL_H_
