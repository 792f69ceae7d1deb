#include "engine/text/pipeline_tokenizer.h"

#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {

absl::StatusOr<std::unique_ptr<Tokenizer>> PipelineTokenizer::Create(PipelineStages stages) {
  std::unique_ptr<PipelineTokenizer> result(new PipelineTokenizer(std::move(stages)));
  ANNULUS_RETURN_IF_ERROR(result->DecodeVocabulary());
  return result;
}

absl::Status PipelineTokenizer::DecodeVocabulary() {
  token_offsets_.push_back(0);
  for (int32_t id = 0; id < vocabulary_size(); ++id) {
    if (HasToken(id)) {
      ANNULUS_ASSIGN_OR_RETURN(const std::string bytes, DecodeToken(id, false));
      token_bytes_.append(bytes);
      if (stages_.decoder.first_token_differs()) {
        ANNULUS_RETURN_IF_ERROR(DecodeToken(id, true).status());
      }
    }
    token_offsets_.push_back(token_bytes_.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> PipelineTokenizer::DecodeToken(int32_t id, bool is_first) const {
  const auto& normalized_forms = stages_.added_tokens.normalized_forms();
  const auto normalized = normalized_forms.find(id);
  return stages_.decoder.DecodeToken(normalized == normalized_forms.end()
                                         ? stages_.vocabulary.Token(id).value()
                                         : absl::string_view(normalized->second),
                                     is_first);
}

class PipelineTokenizer::Stream : public StreamingEncoder {
 public:
  Stream(const PipelineStages& stages, bool add_special, const CancelFlag& cancel)
      : StreamingEncoder(cancel),
        post_processor_(stages.post_processor),
        add_special_(add_special),
        state_(&work()) {
    TextStage* next = Own(stages.model->NewStage(&state_));
    next = ChainStages(stages.pre_tokenizers.filters, &state_, next, &stages_);
    if (auto found = stages.added_tokens.NewNormalizedStage(&state_, next)) {
      next = Own(std::move(found));
    }
    next = ChainStages(stages.normalizer, &state_, next, &stages_);
    if (auto found = stages.added_tokens.NewRawStage(&state_, next)) next = Own(std::move(found));
    first_ = next;
  }

 protected:
  absl::Status Push(absl::string_view text, bool end, std::vector<int32_t>* ids) override {
    state_.ids = ids;
    if (add_special_ && !started_) AppendTo(post_processor_.prefix, ids);
    started_ = true;
    state_.text_bytes += text.size();
    ANNULUS_RETURN_IF_ERROR(first_->Push(text, end));
    if (end && add_special_) AppendTo(post_processor_.suffix, ids);
    return absl::OkStatus();
  }

 private:
  static void AppendTo(const std::vector<int32_t>& from, std::vector<int32_t>* ids) {
    ids->insert(ids->end(), from.begin(), from.end());
  }

  TextStage* Own(std::unique_ptr<TextStage> stage) {
    stages_.push_back(std::move(stage));
    return stages_.back().get();
  }

  const PostProcessor& post_processor_;
  bool add_special_;
  bool started_ = false;
  EncodeState state_;
  std::vector<std::unique_ptr<TextStage>> stages_;
  TextStage* first_ = nullptr;
};

std::unique_ptr<StreamingEncoder> PipelineTokenizer::NewStream(bool add_special,
                                                               const CancelFlag& cancel) const {
  return std::make_unique<Stream>(stages_, add_special, cancel);
}

void PipelineTokenizer::DecodeNext(int32_t id, DecodeState* state, std::string* bytes) const {
  if (!HasToken(id)) return;
  if (state->before_tokens && stages_.decoder.first_token_differs()) {
    const auto first = DecodeToken(id, true);
    ANNULUS_CHECK(first.ok()) << first.status();  // loading has tried
    stages_.decoder.Append(*first, state, bytes);
    return;
  }
  const size_t begin = token_offsets_[static_cast<size_t>(id)];
  const size_t end = token_offsets_[static_cast<size_t>(id) + 1];
  stages_.decoder.Append(absl::string_view(token_bytes_).substr(begin, end - begin), state, bytes);
}

}  // namespace annulus
