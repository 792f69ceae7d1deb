#include "engine/text/sentencepiece/sentencepiece_library.h"

#include <dlfcn.h>

#include "absl/base/config.h"
#ifdef ABSL_HAVE_LEAK_SANITIZER  // GCC's and clang's
#include <sanitizer/lsan_interface.h>
#endif

#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;

constexpr char kModule[] = "libannulus_sentencepiece.so";
constexpr size_t kMostBytes = size_t{1} << 30;

void* Allocate(size_t size) {
  void* const memory = std::malloc(size);
#ifdef ABSL_HAVE_LEAK_SANITIZER
  // The leak sanitizer does not look into other namespaces: it takes what only static objects of
  // the library point to for lost.
  if (memory != nullptr) __lsan_ignore_object(memory);
#endif
  return memory;
}

absl::Status Refused(const char* message) {
  return absl::InvalidArgumentError(absl::StrCat("the sentencepiece library says: ", message));
}

absl::StatusOr<fs::path> FindModule(std::span<const fs::path> folders) {
  std::vector<std::string> tried;
  for (const fs::path& folder : folders) {
    const fs::path file = folder / kModule;
    std::error_code ignored;
    if (fs::exists(file, ignored)) return file;
    tried.push_back(folder.string());
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "a tokenizer.model needs ", kModule, ", which is not in ", absl::StrJoin(tried, " or "),
      "; build the target annulus_sentencepiece and put it next to the program"));
}

}  // namespace

absl::StatusOr<SentencePieceLibrary> SentencePieceLibrary::Open(std::span<const fs::path> folders) {
  ANNULUS_ASSIGN_OR_RETURN(const fs::path file, FindModule(folders));
  void* const module = dlmopen(LM_ID_NEWLM, file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot open ", kModule, ": ", dlerror(),
                     "; install the Debian package libsentencepiece0"));
  }
  const auto open = reinterpret_cast<decltype(&AnnulusSentencePieceOpen)>(
      dlsym(module, "AnnulusSentencePieceOpen"));
  if (open == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(file.string(), " is not a module of this program: ", dlerror()));
  }
  return SentencePieceLibrary(open(Allocate, std::free));
}

absl::StatusOr<const SentencePieceLibrary*> SentencePieceLibrary::Get() {
  static std::mutex mutex;
  static std::optional<SentencePieceLibrary> library;  // never closed, so one for the process
  const std::lock_guard lock(mutex);
  if (!library.has_value()) {
    std::error_code error;
    const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
    const fs::path folders[] = {folder, folder.parent_path(),
                                folder.parent_path() / "lib" / "annulus"};
    ANNULUS_ASSIGN_OR_RETURN(library, Open(folders));
  }
  return &*library;
}

absl::StatusOr<std::unique_ptr<SentencePieceLibrary::Processor>> SentencePieceLibrary::Load(
    absl::string_view model) const {
  char message[kAnnulusSentencePieceMessageBytes];
  void* const loaded = functions_->load(model.data(), model.size(), message);
  if (loaded == nullptr) return Refused(message);
  return std::unique_ptr<Processor>(new Processor(functions_, loaded));
}

SentencePieceLibrary::Processor::~Processor() { functions_.free(model_); }

absl::Status SentencePieceLibrary::Processor::Encode(
    absl::string_view text, std::vector<AnnulusSentencePieceToken>* tokens) const {
  ANNULUS_CHECK(text.size() <= kMostBytes);
  char message[kAnnulusSentencePieceMessageBytes];
  tokens->resize(text.size());
  const int64_t count =
      functions_.encode(model_, text.data(), text.size(), tokens->data(), message);
  if (count < 0) return Refused(message);
  tokens->resize(static_cast<size_t>(count));
  return absl::OkStatus();
}

}  // namespace annulus
