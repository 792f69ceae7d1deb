#include "engine/text/pipeline_tokenizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace annulus {

absl::StatusOr<std::unique_ptr<Tokenizer>> PipelineTokenizer::Create(PipelineStages stages) {
  std::unique_ptr<PipelineTokenizer> result(new PipelineTokenizer(std::move(stages)));
  ANNULUS_RETURN_IF_ERROR(result->DecodeVocabulary());
  return result;
}

absl::Status PipelineTokenizer::DecodeVocabulary() {
  const auto& normalized_forms = stages_.added_tokens.normalized_forms();
  token_offsets_.push_back(0);
  for (int32_t id = 0; id < vocabulary_size(); ++id) {
    const std::optional<absl::string_view> token = stages_.vocabulary.Token(id);
    if (token.has_value()) {
      const auto normalized = normalized_forms.find(id);
      ANNULUS_ASSIGN_OR_RETURN(
          const std::string bytes,
          stages_.decoder.DecodeToken(normalized == normalized_forms.end() ? *token
                                                                           : normalized->second));
      token_bytes_.append(bytes);
    }
    token_offsets_.push_back(token_bytes_.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> PipelineTokenizer::Encode(absl::string_view text,
                                                               bool add_special) const {
  if (const auto bad = FirstInvalidUtf8(text); bad.has_value()) return InvalidUtf8Error(*bad);
  if (text.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the text has ", text.size(), " bytes; at most ", kMaxTextBytes));
  }
  std::vector<int32_t> ids;
  BpeModel::Workspace workspace;
  if (add_special) ids = stages_.post_processor.prefix;
  ANNULUS_RETURN_IF_ERROR(stages_.added_tokens.SplitRaw(
      text, [&](absl::string_view stretch, int32_t id) -> absl::Status {
        if (id < 0) return EncodeStretch(stretch, &workspace, &ids);
        ids.push_back(id);
        return absl::OkStatus();
      }));
  if (add_special) {
    const std::vector<int32_t>& suffix = stages_.post_processor.suffix;
    ids.insert(ids.end(), suffix.begin(), suffix.end());
  }
  return ids;
}

absl::Status PipelineTokenizer::EncodeStretch(absl::string_view text,
                                              BpeModel::Workspace* workspace,
                                              std::vector<int32_t>* ids) const {
  std::string normalized;
  if (stages_.normalizer != nullptr) {
    normalized.assign(text.data(), text.size());
    ANNULUS_RETURN_IF_ERROR(
        stages_.normalizer->Apply(MaxNormalizedBytes(text.size()), &normalized));
    text = normalized;
  }
  return stages_.added_tokens.SplitNormalized(
      text, [&](absl::string_view stretch, int32_t id) -> absl::Status {
        if (id < 0) return EncodeNormalized(stretch, workspace, ids);
        ids->push_back(id);
        return absl::OkStatus();
      });
}

absl::Status PipelineTokenizer::EncodeNormalized(absl::string_view text,
                                                 BpeModel::Workspace* workspace,
                                                 std::vector<int32_t>* ids) const {
  const auto encode = [&](absl::string_view piece) {
    stages_.model.Encode(piece, workspace, ids);
    return absl::OkStatus();
  };
  const PreTokenizer* splitter = stages_.pre_tokenizers.splitter.get();
  return splitter == nullptr ? encode(text) : splitter->Split(text, encode);
}

void PipelineTokenizer::DecodeNext(int32_t id, DecodeState* state, std::string* bytes) const {
  if (id < 0 || id >= vocabulary_size()) return;
  const size_t begin = token_offsets_[static_cast<size_t>(id)];
  const size_t end = token_offsets_[static_cast<size_t>(id) + 1];
  stages_.decoder.Append(absl::string_view(token_bytes_).substr(begin, end - begin), state, bytes);
}

const char* PipelineTokenizer::kind() const {
  return stages_.model.byte_level() ? "byte-level BPE" : "BPE";
}

}  // namespace annulus
