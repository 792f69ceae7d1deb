#ifndef ANNULUS_ENGINE_TEXT_SENTENCEPIECE_SENTENCEPIECE_LIBRARY_H_
#define ANNULUS_ENGINE_TEXT_SENTENCEPIECE_SENTENCEPIECE_LIBRARY_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/sentencepiece/sentencepiece_module.h"

namespace annulus {

// Debian's sentencepiece library, 0.1.97.
//
// It exports a copy of protobuf 3.14, which cannot share a linker namespace with the
// libprotobuf 3.21 that the server needs. So the module libannulus_sentencepiece.so, which is
// linked with the library, is opened in its own namespace (dlmopen), once per process, when the
// first tokenizer.model is loaded. Immutable and thread-safe.
class SentencePieceLibrary {
 public:
  // A model loaded by the library. Immutable and thread-safe.
  class Processor {
   public:
    ~Processor();
    Processor(const Processor&) = delete;
    Processor& operator=(const Processor&) = delete;

    // Replaces the contents of `tokens` by the tokens of `text`: UTF-8 of less than 1 GiB, encoded
    // as it is, as a whole text. INVALID_ARGUMENT with the library's message.
    absl::Status Encode(absl::string_view text,
                        std::vector<AnnulusSentencePieceToken>* tokens) const;

   private:
    friend class SentencePieceLibrary;
    Processor(const AnnulusSentencePieceFunctions* functions, void* model)
        : functions_(*functions), model_(model) {}

    const AnnulusSentencePieceFunctions& functions_;
    void* model_;
  };

  // Returns this process's instance. Searches the module next to the program, one folder above it
  // and in ../lib/annulus. FAILED_PRECONDITION says what is missing and how to install it.
  static absl::StatusOr<const SentencePieceLibrary*> Get();

  // Opens the module from the first of `folders` that has it. It stays open forever; a process has
  // only about a dozen linker namespaces.
  static absl::StatusOr<SentencePieceLibrary> Open(std::span<const std::filesystem::path> folders);

  // Loads `model`, a ModelProto with a normalizer that leaves texts unchanged. Every field must
  // have been checked, since the library trusts it. INVALID_ARGUMENT with the library's message.
  absl::StatusOr<std::unique_ptr<Processor>> Load(absl::string_view model) const;

 private:
  explicit SentencePieceLibrary(const AnnulusSentencePieceFunctions* functions)
      : functions_(functions) {}

  const AnnulusSentencePieceFunctions* functions_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_SENTENCEPIECE_SENTENCEPIECE_LIBRARY_H_
