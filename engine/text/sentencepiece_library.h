#ifndef ANNULUS_ENGINE_TEXT_SENTENCEPIECE_LIBRARY_H_
#define ANNULUS_ENGINE_TEXT_SENTENCEPIECE_LIBRARY_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/sentencepiece_module.h"

namespace annulus {

// Debian's sentencepiece library, 0.1.97.
//
// It exports a copy of protobuf 3.14, which cannot live in one linker namespace with the
// libprotobuf 3.21 that the server needs. So the module libannulus_sentencepiece.so, which is
// linked with it, is opened in a namespace of its own (dlmopen), once in the life of a process,
// when the first tokenizer.model is loaded. Immutable and thread-safe.
class SentencePieceLibrary {
 public:
  // A model that the library has read. Immutable and thread-safe.
  class Processor {
   public:
    ~Processor();
    Processor(const Processor&) = delete;
    Processor& operator=(const Processor&) = delete;

    // Replaces `tokens` by those of `text`, which is UTF-8 of less than 1 GiB and is encoded as it
    // stands between the ends of a text. INVALID_ARGUMENT with what the library says.
    absl::Status Encode(absl::string_view text,
                        std::vector<AnnulusSentencePieceToken>* tokens) const;

   private:
    friend class SentencePieceLibrary;
    Processor(const AnnulusSentencePieceFunctions* functions, void* model)
        : functions_(*functions), model_(model) {}

    const AnnulusSentencePieceFunctions& functions_;
    void* model_;
  };

  // The one of this process. The module is looked for beside the program, one folder above it and
  // in
  // ../lib/annulus. FAILED_PRECONDITION with what is missing and how it comes there.
  static absl::StatusOr<const SentencePieceLibrary*> Get();

  // Opens the module in the first of `folders` that has it. It stays open for ever; there are about
  // a dozen namespaces for a process.
  static absl::StatusOr<SentencePieceLibrary> Open(std::span<const std::filesystem::path> folders);

  // `model` is a ModelProto of which every field has been checked: the library trusts it. Its
  // normalizer must leave texts as they are. INVALID_ARGUMENT with what the library says.
  absl::StatusOr<std::unique_ptr<Processor>> Load(absl::string_view model) const;

 private:
  explicit SentencePieceLibrary(const AnnulusSentencePieceFunctions* functions)
      : functions_(functions) {}

  const AnnulusSentencePieceFunctions* functions_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_SENTENCEPIECE_LIBRARY_H_
