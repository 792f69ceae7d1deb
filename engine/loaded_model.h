#ifndef ANNULUS_ENGINE_LOADED_MODEL_H_
#define ANNULUS_ENGINE_LOADED_MODEL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "engine/api.h"
#include "engine/runner/rank_model.h"
#include "engine/text/template/template_directory.h"
#include "engine/text/tokenizer.h"
#include "kernels/registry.h"

namespace annulus {

// Everything that is read from a model directory or computed for a builtin model.
struct LoadedModel {
  RankModel ranks;
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
