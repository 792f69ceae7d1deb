#include "bench/heads/find_heads.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>

#include "bench/demo/document.h"
#include "bench/model/lone_reader.h"
#include "engine/request/evidence_heads.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

constexpr int32_t kBlock = 64;

// A text with one fact asked for behind it.
struct AskedFact {
  std::vector<int32_t> tokens;
  RowRange planted;  // tokens of the answer in the text
  RowRange rows;     // that predict the tokens of the answer behind it
};

absl::StatusOr<AskedFact> Ask(const DemoDocument& document, const DemoFact& fact,
                              const Tokenizer& tokenizer) {
  AskedFact asked;
  // In pieces, so that places are known in tokens.
  const auto add = [&](absl::string_view text) -> absl::StatusOr<RowRange> {
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenizer.EncodePlain(text));
    const auto begin = static_cast<int32_t>(asked.tokens.size());
    asked.tokens.insert(asked.tokens.end(), ids.begin(), ids.end());
    return RowRange{begin, static_cast<int32_t>(asked.tokens.size())};
  };
  const absl::string_view text = document.text;
  const auto answer = static_cast<size_t>(fact.offset) + fact.cue.size();
  ANNULUS_RETURN_IF_ERROR(add(text.substr(0, answer)).status());
  ANNULUS_ASSIGN_OR_RETURN(asked.planted, add(fact.answer));
  ANNULUS_RETURN_IF_ERROR(add(text.substr(answer + fact.answer.size())).status());
  ANNULUS_RETURN_IF_ERROR(add(fact.cue).status());
  ANNULUS_ASSIGN_OR_RETURN(const RowRange repeated, add(fact.answer));
  asked.rows = {repeated.begin - 1, repeated.end - 1};
  return asked;
}

// Adds up what heads attend in the rows of a fact.
class FactObserver : public AttentionObserver {
 public:
  void Begin(const AskedFact& fact) { fact_ = &fact; }

  absl::Status Observe(const Observation& seen) override {
    const auto is_asked = [&](int32_t position) {
      return position >= fact_->rows.begin && position < fact_->rows.end;
    };
    const auto begin = std::find_if(seen.positions.begin(), seen.positions.end(), is_asked);
    const auto end = std::find_if_not(begin, seen.positions.end(), is_asked);
    const int64_t first = begin - seen.positions.begin();
    const int64_t count = end - begin;
    if (count == 0) return absl::OkStatus();
    const int32_t page = seen.config.shape.page_tokens;
    const int32_t block = (kBlock + page - 1) / page * page;
    const int64_t blocks = CountBlocks(seen.pages, block);
    const int heads = seen.config.heads;
    std::vector<float> scores(static_cast<size_t>(count * heads * blocks));
    BlockScoresItem item;
    item.query = seen.query.row_range(first, count);
    item.positions = seen.positions.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
    item.pages = seen.pages;
    item.scores = scores.data();
    BlockScoresParams params;
    params.shape = seen.config.shape;
    params.heads = heads;
    params.scale = seen.config.scale;
    params.soft_cap = seen.config.soft_cap;
    params.block_tokens = block;
    params.items = {&item, 1};
    ANNULUS_RETURN_IF_ERROR(seen.ops.block_scores(seen.stream, params));
    ANNULUS_RETURN_IF_ERROR(seen.stream.Synchronize());
    for (int64_t row = 0; row < count; ++row) {
      for (int head = 0; head < heads; ++head) {
        const std::span<const float> masses = std::span(scores).subspan(
            static_cast<size_t>((row * heads + head) * blocks), static_cast<size_t>(blocks));
        Mean& mean = means_[{seen.layer, head}];
        mean.sum +=
            ShareOf(masses, fact_->planted.begin / block, (fact_->planted.end - 1) / block + 1);
        mean.count += 1;
      }
    }
    return absl::OkStatus();
  }

  std::vector<HeadScore> Scores() const {
    std::vector<HeadScore> scores;
    for (const auto& [head, mean] : means_) scores.push_back({head, mean.sum / mean.count});
    std::stable_sort(scores.begin(), scores.end(),
                     [](const HeadScore& a, const HeadScore& b) { return a.score > b.score; });
    return scores;
  }

 private:
  struct Mean {
    double sum = 0;
    double count = 0;
  };

  // Of blocks [begin, end), by the log masses of all blocks.
  static double ShareOf(std::span<const float> masses, int32_t begin, int32_t end) {
    const float most = *std::max_element(masses.begin(), masses.end());
    double all = 0, inside = 0;
    for (int32_t block = 0; block < std::ssize(masses); ++block) {
      const double mass = std::exp(double{masses[block]} - most);
      all += mass;
      if (block >= begin && block < end) inside += mass;
    }
    return inside / all;
  }

  const AskedFact* fact_ = nullptr;
  std::map<LayerHead, Mean> means_;
};

absl::Status Read(LoneReader& reader, std::span<const int32_t> tokens) {
  ANNULUS_RETURN_IF_ERROR(reader.Begin(std::ssize(tokens)));
  while (!tokens.empty()) {
    const size_t rows = std::min<size_t>(tokens.size(), LoneReader::kMostRows);
    // The logits of all rows, so that no layer leaves any out.
    ANNULUS_RETURN_IF_ERROR(reader.Read(tokens.first(rows), /*logits=*/true).status());
    tokens = tokens.subspan(rows);
  }
  return absl::OkStatus();
}

absl::Status CheckModel(const RankModel& model) {
  for (int layer = 1; layer < model.layers(); ++layer) {
    if (model.attention(layer) == model.attention(0)) continue;
    return absl::InvalidArgumentError(
        "the model's layers differ in the shape of their attention, which this command does not "
        "measure; annulusd chooses heads by depth");
  }
  if (model.ops->block_scores != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError("the kernels cannot score blocks of keys");
}

}  // namespace

absl::StatusOr<std::vector<HeadScore>> FindHeads(const RankModel& model, const Tokenizer& tokenizer,
                                                 Backend& backend,
                                                 const FindHeadsOptions& options) {
  ANNULUS_RETURN_IF_ERROR(CheckModel(model));
  DemoOptions demo{.bytes = options.bytes, .seed = options.seed, .depths = {}};
  for (int i = 0; i < options.facts; ++i) demo.depths.push_back((i + 0.5) / options.facts);
  ANNULUS_ASSIGN_OR_RETURN(const DemoDocument document, MakeDemoDocument(demo));
  std::vector<AskedFact> facts;
  int64_t longest = 0;
  for (const DemoFact& fact : document.facts) {
    ANNULUS_ASSIGN_OR_RETURN(facts.emplace_back(), Ask(document, fact, tokenizer));
    longest = std::max<int64_t>(longest, std::ssize(facts.back().tokens));
  }
  FactObserver observer;
  LoneReader::Options reading;
  reading.threads = options.threads;
  reading.longest = longest;
  reading.observer = &observer;
  ANNULUS_ASSIGN_OR_RETURN(const std::unique_ptr<LoneReader> reader,
                           LoneReader::Create(model, backend, reading));
  for (const AskedFact& fact : facts) {
    observer.Begin(fact);
    ANNULUS_RETURN_IF_ERROR(Read(*reader, fact.tokens));
  }
  return observer.Scores();
}

std::vector<HeadScore> ChooseHeads(const std::vector<HeadScore>& scores, int layers) {
  const auto most_layers = static_cast<size_t>(MostEvidenceLayers(layers));
  std::vector<HeadScore> chosen;
  std::set<int32_t> used;
  for (const HeadScore& each : scores) {
    if (each.score < kLeastHeadScore || chosen.size() == kMostHeads) break;
    if (!used.contains(each.head.layer) && used.size() == most_layers) continue;
    used.insert(each.head.layer);
    chosen.push_back(each);
  }
  return chosen;
}

std::string ProfileJson(const std::vector<HeadScore>& chosen, const FindHeadsOptions& options) {
  nlohmann::ordered_json heads = nlohmann::ordered_json::array();
  for (const HeadScore& each : chosen) {
    heads.push_back({{"layer", each.head.layer}, {"head", each.head.head}, {"score", each.score}});
  }
  nlohmann::ordered_json profile;
  profile["evidence"] = {{"bytes", options.bytes}, {"facts", options.facts}, {"heads", heads}};
  return profile.dump(2) + "\n";
}

}  // namespace annulus::bench
