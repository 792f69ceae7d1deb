#include "engine/text/pipeline_tokenizer.h"

#include <algorithm>
#include <utility>

#include "engine/text/utf8.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {

absl::StatusOr<std::unique_ptr<Tokenizer>> PipelineTokenizer::Create(PipelineStages stages) {
  std::unique_ptr<PipelineTokenizer> result(new PipelineTokenizer(std::move(stages)));
  ANNULUS_RETURN_IF_ERROR(result->DecodeVocabulary());
  result->FindPlainForms();
  return result;
}

// A model that knows the text of a control token itself could produce its id regardless of the
// added tokens: Unigram and sentencepiece do, and BPE if its merges lead there.
void PipelineTokenizer::FindPlainForms() {
  std::vector<int32_t> controls = stages_.added_tokens.model_controls();
  controls.insert(controls.end(), stages_.control_pieces.begin(), stages_.control_pieces.end());
  for (const int32_t id : controls) {
    if (id != stages_.model->unknown()) plain_forms_[id];
  }
  const auto is_control = [this](int32_t id) { return plain_forms_.contains(id); };
  for (auto& [id, form] : plain_forms_) {
    const absl::string_view text = stages_.vocabulary.Token(id).value();
    std::vector<absl::string_view> characters;
    for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
      NextCodePoint(text, &end);
      characters.push_back(text.substr(begin, end - begin));
    }
    form = EncodeParts({characters.front(), text.substr(characters.front().size())});
    if (std::none_of(form.begin(), form.end(), is_control)) continue;
    form = EncodeParts(characters);
    form.erase(std::remove_if(form.begin(), form.end(), is_control), form.end());
  }
}

// The ids that the model makes of each part; none if it has no tokens for them.
std::vector<int32_t> PipelineTokenizer::EncodeParts(
    const std::vector<absl::string_view>& parts) const {
  WorkMeter work("the tokenizer file", kTokenizerFileSteps, CancelFlag::Never());
  EncodeState state(&work);
  std::vector<int32_t> ids;
  state.ids = &ids;
  const std::unique_ptr<TextStage> stage = stages_.model->NewStage(&state);
  for (const absl::string_view part : parts) {
    if (!stage->Push(part, true).ok()) return {};
  }
  return ids;
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
  // `plain_forms`: null where the text may hold control tokens.
  Stream(const PipelineStages& stages, bool add_special, const PlainForms* plain_forms,
         const CancelFlag& cancel)
      : StreamingEncoder(cancel),
        post_processor_(stages.post_processor),
        add_special_(add_special),
        plain_forms_(plain_forms),
        state_(&work()) {
    const bool plain = plain_forms != nullptr;
    TextStage* next = Own(stages.model->NewStage(&state_));
    next = ChainStages(stages.pre_tokenizers.filters, &state_, next, &stages_);
    if (auto found = stages.added_tokens.NewNormalizedStage(&state_, next, plain)) {
      next = Own(std::move(found));
    }
    next = ChainStages(stages.normalizer, &state_, next, &stages_);
    if (auto found = stages.added_tokens.NewRawStage(&state_, next, plain)) {
      next = Own(std::move(found));
    }
    first_ = next;
  }

 protected:
  absl::Status Push(absl::string_view text, bool end, std::vector<int32_t>* ids) override {
    state_.ids = ids;
    if (add_special_ && !started_) AppendTo(post_processor_.prefix, ids);
    started_ = true;
    state_.text_bytes += text.size();
    const size_t begin = ids->size();
    ANNULUS_RETURN_IF_ERROR(first_->Push(text, end));
    if (plain_forms_ != nullptr && !plain_forms_->empty()) ReplaceControls(begin, ids);
    if (end && add_special_) AppendTo(post_processor_.suffix, ids);
    return absl::OkStatus();
  }

 private:
  static void AppendTo(const std::vector<int32_t>& from, std::vector<int32_t>* ids) {
    ids->insert(ids->end(), from.begin(), from.end());
  }

  void ReplaceControls(size_t begin, std::vector<int32_t>* ids) const {
    const auto is_control = [this](int32_t id) { return plain_forms_->contains(id); };
    const auto first = ids->begin() + static_cast<std::ptrdiff_t>(begin);
    const auto found = std::find_if(first, ids->end(), is_control);
    if (found == ids->end()) return;
    const std::vector<int32_t> rest(found, ids->end());
    ids->erase(found, ids->end());
    for (const int32_t id : rest) {
      const auto form = plain_forms_->find(id);
      if (form == plain_forms_->end()) {
        ids->push_back(id);
      } else {
        AppendTo(form->second, ids);
      }
    }
  }

  TextStage* Own(std::unique_ptr<TextStage> stage) {
    stages_.push_back(std::move(stage));
    return stages_.back().get();
  }

  const PostProcessor& post_processor_;
  bool add_special_;
  const PlainForms* plain_forms_;
  bool started_ = false;
  EncodeState state_;
  std::vector<std::unique_ptr<TextStage>> stages_;
  TextStage* first_ = nullptr;
};

std::unique_ptr<StreamingEncoder> PipelineTokenizer::NewStream(bool add_special,
                                                               const CancelFlag& cancel) const {
  return std::make_unique<Stream>(stages_, add_special, nullptr, cancel);
}

std::unique_ptr<StreamingEncoder> PipelineTokenizer::NewPlainStream(
    const CancelFlag& cancel) const {
  return std::make_unique<Stream>(stages_, /*add_special=*/false, &plain_forms_, cancel);
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
