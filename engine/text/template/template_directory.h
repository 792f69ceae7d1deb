#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_TEMPLATE_DIRECTORY_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_TEMPLATE_DIRECTORY_H_

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/template/chat_template.h"

namespace annulus {

// The chat templates of a model directory, and the special tokens they use. Immutable.
class TemplateDirectory {
 public:
  // Finds templates like Transformers does: chat_template.jinja ("default") and
  // chat_templates/*.jinja (by name); if there are none, the key chat_template of
  // tokenizer_config.json, a string or a list of objects with name and template. Parses all of
  // them. Special tokens are the keys bos_token, eos_token, .. of tokenizer_config.json, or of
  // special_tokens_map.json if the former lacks them.
  //
  // INVALID_ARGUMENT with the file, the line or key, and the reason. A directory without templates
  // is not an error.
  // `config`: the text of tokenizer_config.json, as ReadTokenizerConfig returns it.
  static absl::StatusOr<TemplateDirectory> Load(const std::filesystem::path& model_directory,
                                                absl::string_view config);

  // The same from the text of a tokenizer_config.json alone. `file_name`: for messages.
  static absl::StatusOr<TemplateDirectory> Parse(absl::string_view config,
                                                 const std::string& file_name);

  bool empty() const { return templates_.empty(); }

  // How models with this template write calls and reasoning: AnswerFormat::Recognise of the
  // template for conversations with tools.
  const std::string& answer_family() const { return answer_family_; }

  // The template for a conversation: "tool_use" if there are tools and such a template, otherwise
  // "default". FAILED_PRECONDITION if that is absent.
  absl::StatusOr<const ChatTemplate*> Select(bool with_tools) const;

  // Name ("bos_token") and text of each, in Transformers' order.
  const std::vector<std::pair<std::string, std::string>>& special_tokens() const {
    return special_tokens_;
  }

 private:
  // Parses the sources: [name] file and text. `place`: precedes the file in messages.
  absl::Status Add(const std::map<std::string, std::pair<std::string, std::string>>& sources,
                   const std::string& place);

  std::map<std::string, ChatTemplate> templates_;
  std::string answer_family_;
  std::vector<std::pair<std::string, std::string>> special_tokens_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_TEMPLATE_DIRECTORY_H_
