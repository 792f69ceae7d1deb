#ifndef ANNULUS_ENGINE_LOADING_LOADED_MODEL_H_
#define ANNULUS_ENGINE_LOADING_LOADED_MODEL_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/api/answer.h"
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
  // SHA-256 of everything but tokens, policy and tenant that keys and values depend on: the bytes
  // of the tensors that were read, config.json, dtypes, kernels, the kind of GPU, the layout of
  // pages. The path does not count: a copy of a model is the same model, and another model at the
  // same path is not.
  std::string identity;
  // SHA-256 of what all processes that serve one model together must have alike: names, dtypes,
  // shapes and bytes of the tensors that were read, config.json, the dtypes computed with, gates,
  // and the bytes of all tokens. Kernels, pages and the program do not count.
  std::string fingerprint;
  std::unique_ptr<Tokenizer> tokenizer;
  TemplateDirectory templates;
  AnswerReading reading;  // how to read answers to conversations: format and reasoning alone
  ModelInfo info;
};

// Loads the model that EngineOptions::model names, with the best kernels that fit. INVALID_ARGUMENT
// names an unknown builtin or what is wrong in a file; FAILED_PRECONDITION says what no kernel
// supports. If ranks are on several devices, weights are read once for each device.
absl::StatusOr<LoadedModel> LoadModel(const EngineOptions& options, Backend& backend,
                                      const KernelRegistry& kernels);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_LOADING_LOADED_MODEL_H_
