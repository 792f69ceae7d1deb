#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_CHAT_TEMPLATE_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_CHAT_TEMPLATE_H_

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/memory_grant.h"
#include "engine/base/work_meter.h"

namespace annulus {

namespace jinja {
struct Ast;
}

// What one rendering may use. A template that passes one of these fails; nothing is cut short.
struct RenderLimits {
  int64_t steps = 20'000'000;  // nodes evaluated, and work on long values by its size
  int depth = 240;             // expressions, statements and macro calls inside each other
  size_t output_bytes = size_t{16} << 20;
  size_t value_bytes = size_t{64} << 20;  // everything that it computes, the output included
  int64_t range_length = 100'000;

  // The defaults, with room for values of `bytes` bytes to be copied a few times.
  static RenderLimits ForInput(size_t bytes);
};

inline constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

// A chat template: the part of the Jinja language that templates of models use, with the meaning
// that Transformers gives it (jinja2's ImmutableSandboxedEnvironment with trim_blocks,
// lstrip_blocks and loop controls; see README.md for the parts).
//
// Rendering is a computation on plain data. There is no way from a template to a file, a variable
// of the process or an attribute of this program's objects; steps, memory, output and stack (less
// than 256 KiB) are bounded. Immutable and thread-safe.
class ChatTemplate {
 public:
  // INVALID_ARGUMENT "<file>:<line>: ..." for what is no template, or longer than
  // kMaxTemplateBytes, or has a part that is not supported.
  static absl::StatusOr<ChatTemplate> Parse(absl::string_view source, absl::string_view file_name);

  // The texts that the source has between its tags and in its string constants, in its order.
  // Errors of Parse that concern the source's tokens.
  static absl::StatusOr<std::vector<std::string>> Literals(absl::string_view source,
                                                           absl::string_view file_name);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Whether the source has the word "documents": else it has no use for that variable.
  bool mentions_documents() const { return mentions_documents_; }

  // The text for `variables`, a JSON object: its members are the template's variables, the members
  // of objects keep their order. `now` is what strftime_now() formats.
  //
  // INVALID_ARGUMENT "<file>:<line>: ..." when the template refuses the values with
  // raise_exception, cannot compute with them, or passes a limit; CANCELLED soon after `cancel` is
  // set. `memory` is asked before the heap grows, the text included; its error is passed on.
  absl::StatusOr<std::string> Render(absl::string_view variables, const std::tm& now,
                                     const RenderLimits& limits,
                                     const CancelFlag& cancel = CancelFlag::Never(),
                                     MemoryGrant& memory = MemoryGrant::Unlimited()) const;

 private:
  explicit ChatTemplate(std::unique_ptr<const jinja::Ast> ast, absl::string_view file_name);

  std::unique_ptr<const jinja::Ast> ast_;
  std::string file_name_;
  bool mentions_documents_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_CHAT_TEMPLATE_H_
