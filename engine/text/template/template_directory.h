#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_TEMPLATE_DIRECTORY_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_TEMPLATE_DIRECTORY_H_

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/text/template/chat_template.h"

namespace annulus {

// The chat templates of a model directory, and what else its templates see. Immutable.
class TemplateDirectory {
 public:
  // Finds templates as Transformers does: chat_template.jinja ("default") and
  // chat_templates/*.jinja (by their names); only where there is none of these, the key
  // chat_template of tokenizer_config.json, a string or a list of objects with name and template.
  // All are parsed. Special tokens are the keys bos_token, eos_token and so on of
  // tokenizer_config.json, or of special_tokens_map.json where the former does not name them.
  //
  // INVALID_ARGUMENT with the file, the line or key, and what is wrong; a directory without
  // templates is no error.
  static absl::StatusOr<TemplateDirectory> Load(const std::filesystem::path& model_directory);

  // The same from the text of a tokenizer_config.json alone; `file_name` is for messages.
  static absl::StatusOr<TemplateDirectory> Parse(absl::string_view config,
                                                 const std::string& file_name);

  bool empty() const { return templates_.empty(); }

  // The template for a conversation: "tool_use" where tools are given and there is one, else
  // "default". FAILED_PRECONDITION where there is no such template.
  absl::StatusOr<const ChatTemplate*> Select(bool with_tools) const;

  // Name ("bos_token") and text, in the order in which Transformers knows them.
  const std::vector<std::pair<std::string, std::string>>& special_tokens() const {
    return special_tokens_;
  }

 private:
  // Parses sources, a name's file and text each; `place` comes before the file in messages.
  absl::Status Add(const std::map<std::string, std::pair<std::string, std::string>>& sources,
                   const std::string& place);

  std::map<std::string, ChatTemplate> templates_;
  std::vector<std::pair<std::string, std::string>> special_tokens_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_TEMPLATE_DIRECTORY_H_
