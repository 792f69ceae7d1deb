#include "kernels/ops/checks.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/quantize.h"

namespace annulus {
namespace {

void CheckView(const ConstMatrixView& view, int64_t rows, int64_t cols, const char* what) {
  ANNULUS_CHECK(view.rows == rows && view.cols == cols)
      << what << " is [" << view.rows << ", " << view.cols << "], not [" << rows << ", " << cols
      << "]";
  ANNULUS_CHECK(view.stride >= cols) << what << " has stride " << view.stride << " for " << cols;
}

// Any number of rows for a product with `weight`.
void CheckInputs(const ConstMatrixView& input, const PackedMatrix& weight,
                 Activations activations) {
  CheckView(input, input.rows, weight.in_features, "linear input");
  ANNULUS_CHECK(ActivationsOf(activations, weight.dtype) == activations)
      << ActivationsName(activations) << " activations for weights in " << DTypeName(weight.dtype);
  ANNULUS_CHECK(activations != Activations::kInt8 || weight.in_features <= kMostInt8Inputs)
      << weight.in_features << " int8 activations";
}

// For `rows` rows whose streams have `hidden` columns each.
void CheckStreams(const StreamFactors& factors, int active, const ConstMatrixView& streams,
                  int64_t rows, int64_t hidden) {
  const int64_t count = factors.logits.cols;
  ANNULUS_CHECK(count >= 1 && count <= kMostStreams) << count << " streams";
  ANNULUS_CHECK(active >= 0 && active < count) << "stream " << active << " of " << count;
  CheckView(factors.logits, rows, count, "logits of streams");
  CheckView(streams, rows, count * hidden, "streams");
  ANNULUS_CHECK(factors.weights != nullptr);
}

void CheckBlockLists(const BlockLists& blocks, int64_t rows, int kv_heads) {
  if (blocks.full) return;
  ANNULUS_CHECK(blocks.head_groups > 0 && kv_heads % blocks.head_groups == 0)
      << blocks.head_groups << " head groups for " << kv_heads << " kv heads";
  ANNULUS_CHECK(!blocks.query_block_rows.empty() && blocks.query_block_rows.front() == 0 &&
                blocks.query_block_rows.back() == rows);
  ANNULUS_CHECK(std::is_sorted(blocks.query_block_rows.begin(), blocks.query_block_rows.end()));
  ANNULUS_CHECK(blocks.offsets.size() ==
                blocks.head_groups * (blocks.query_block_rows.size() - 1) + 1);
}

// Runs have room for pages [0, count).
void CheckRuns(const SummaryRuns& runs, int64_t count) {
  ANNULUS_CHECK(count == 0 || (runs.pages > 0 && count <= runs.pages * std::ssize(runs.runs)))
      << "summaries of " << count << " pages in " << runs.runs.size() << " runs of " << runs.pages;
}

// Each run has a row or more of `rows`.
void CheckRowRuns(std::span<const int32_t> ends, int64_t rows) {
  int32_t begin = 0;
  for (const int32_t end : ends) {
    ANNULUS_CHECK(end > begin && end <= rows)
        << "a run of rows from " << begin << " to " << end << " of " << rows;
    begin = end;
  }
}

// Of SampleRow::seen and allowed.
void CheckTokenBits(std::span<const uint32_t> words, int64_t vocabulary) {
  if (words.empty()) return;
  ANNULUS_CHECK(std::ssize(words) == SeenWords(vocabulary))
      << words.size() << " words of bits for " << vocabulary << " tokens";
  if (vocabulary % 32 == 0) return;
  ANNULUS_CHECK(words.back() >> vocabulary % 32 == 0) << "a bit of no token, of " << vocabulary;
}

void CheckLogitEdits(const SampleRow& row, int64_t vocabulary) {
  ANNULUS_CHECK(row.penalties.repetition > 0) << row.penalties.repetition;
  const auto seen = [&](int64_t token) { return (row.seen[token / 32] >> token % 32 & 1) != 0; };
  CheckTokenBits(row.seen, vocabulary);
  CheckTokenBits(row.allowed, vocabulary);
  int64_t last = -1;
  for (const LogitEdit& edit : row.edits) {
    ANNULUS_CHECK(edit.token > last && edit.token < vocabulary)
        << "an edit of token " << edit.token << " behind token " << last << " of " << vocabulary;
    ANNULUS_CHECK(edit.count >= -1 && edit.bias < std::numeric_limits<float>::infinity())
        << "count " << edit.count << ", bias " << edit.bias;
    ANNULUS_CHECK(row.seen.empty() || !seen(edit.token)) << "token " << edit.token << " twice";
    last = edit.token;
  }
}

}  // namespace

void CheckLinear(const LinearParams& params) {
  ANNULUS_CHECK(params.weight != nullptr);
  CheckInputs(params.input, *params.weight, params.activations);
  CheckView(params.output, params.input.rows, params.weight->out_features, "linear output");
}

void CheckLinears(std::span<const LinearParams> parts) {
  ANNULUS_CHECK(!parts.empty());
  for (const LinearParams& part : parts) {
    CheckLinear(part);
    const ConstMatrixView& input = parts[0].input;
    ANNULUS_CHECK(part.input.data == input.data && part.input.stride == input.stride &&
                  part.input.cols == input.cols)
        << "products of different inputs";
  }
}

void CheckEmbed(const EmbedParams& params) {
  ANNULUS_CHECK(params.table != nullptr);
  CheckView(params.output, params.ids.size(), params.table->in_features, "embed output");
  for (const int32_t id : params.ids) {
    ANNULUS_CHECK(id >= 0 && id < params.table->out_features) << "token id " << id;
  }
}

void CheckNorm(const NormParams& params) {
  CheckView(params.input, params.output.rows, params.output.cols, "norm input");
  ANNULUS_CHECK(params.weight != nullptr);
  ANNULUS_CHECK(params.weight_rows >= 1);
  ANNULUS_CHECK(!params.accumulate || params.input.data != params.output.data);
}

void CheckGatedMul(const GatedMulParams& params) {
  CheckView(params.gate, params.output.rows, params.output.cols, "gated_mul gate");
  CheckView(params.up, params.output.rows, params.output.cols, "gated_mul up");
  ANNULUS_CHECK(params.activation != Activation::kClampedSwiglu || params.limit > 0);
}

void CheckGatedBlock(const GatedBlockParams& params) {
  CheckLinears(params.products);
  ANNULUS_CHECK(params.products.size() <= 2) << params.products.size() << " products";
  for (const LinearParams& product : params.products) ANNULUS_CHECK(!product.accumulate);
  const GatedMulParams activated = params.gated_mul();
  CheckGatedMul(activated);
  CheckLinear(params.down);
  const ConstMatrixView& input = params.down.input;
  CheckView(input, activated.output.rows, activated.output.cols, "input of a gated block's down");
  ANNULUS_CHECK(input.data == activated.output.data && input.stride == activated.output.stride)
      << "down reads another matrix than the first product's output";
}

void CheckSoftCap(const SoftCapParams& params) { ANNULUS_CHECK(params.cap > 0); }

void CheckRopeTable(const RopeTableParams& params) {
  const int64_t rows = params.positions.size();
  const int64_t pairs = params.inverse_frequencies.size();
  CheckView(params.cosine, rows, pairs, "rope_table cosine");
  CheckView(params.sine, rows, pairs, "rope_table sine");
}

void CheckRope(const RopeParams& params) {
  CheckView(params.values, params.cosine.rows, int64_t{params.heads} * params.head_dim,
            "rope values");
  CheckView(params.sine, params.cosine.rows, params.cosine.cols, "rope sine");
  ANNULUS_CHECK(2 * params.cosine.cols <= params.head_dim)
      << params.cosine.cols << " pairs in head_dim " << params.head_dim;
}

void CheckPageShape(const KvPageShape& shape) {
  ANNULUS_CHECK(shape.page_tokens > 0 && shape.page_tokens % 16 == 0)
      << "page_tokens " << shape.page_tokens;
  ANNULUS_CHECK(shape.kv_heads > 0) << "kv_heads " << shape.kv_heads;
  for (const int dim : {shape.k_dim, shape.v_dim}) {
    ANNULUS_CHECK(dim > 0 && dim <= kMaxHeadDim) << "head_dim " << dim;
  }
  ANNULUS_CHECK(!IsQuantized(shape.dtype) || QuantizedGroup(shape.dtype) == 0)
      << "kv dtype " << DTypeName(shape.dtype);
}

void CheckKvAppend(const KvAppendParams& params) {
  CheckPageShape(params.shape);
  const int64_t rows = params.pages.size();
  CheckView(params.k, rows, int64_t{params.shape.kv_heads} * params.shape.k_dim, "kv_append k");
  CheckView(params.v, rows, int64_t{params.shape.kv_heads} * params.shape.v_dim, "kv_append v");
  ANNULUS_CHECK(params.slots.size() == params.pages.size());
  for (const int32_t slot : params.slots) {
    ANNULUS_CHECK(slot >= 0 && slot < params.shape.page_tokens) << "slot " << slot;
  }
}

void CheckKvRead(const KvReadParams& params) {
  CheckPageShape(params.shape);
  ANNULUS_CHECK(params.tokens >= 0 && params.tokens <= params.shape.page_tokens);
  CheckView(params.k, params.tokens, int64_t{params.shape.kv_heads} * params.shape.k_dim,
            "kv_read k");
  CheckView(params.v, params.tokens, int64_t{params.shape.kv_heads} * params.shape.v_dim,
            "kv_read v");
}

void CheckAttention(const AttentionParams& params) {
  CheckPageShape(params.shape);
  ANNULUS_CHECK(params.heads > 0 && params.heads % params.shape.kv_heads == 0)
      << params.heads << " heads over " << params.shape.kv_heads << " kv heads";
  ANNULUS_CHECK(params.window >= 0);
  ANNULUS_CHECK(params.soft_cap >= 0) << "soft_cap " << params.soft_cap;
  ANNULUS_CHECK(params.shards >= 1 && params.shards <= kMostVirtualShards &&
                std::has_single_bit(static_cast<uint32_t>(params.shards)))
      << params.shards << " shards";
  for (const AttentionItem& item : params.items) {
    const int64_t rows = item.positions.size();
    CheckView(item.query, rows, int64_t{params.heads} * params.shape.k_dim, "attention query");
    ANNULUS_CHECK(item.state.rows == rows && item.state.heads == params.heads &&
                  item.state.v_dim == params.shape.v_dim);
    ANNULUS_CHECK(std::is_sorted(item.positions.begin(), item.positions.end()));
    CheckBlockLists(item.blocks, rows, params.shape.kv_heads);
    ANNULUS_CHECK(item.first_leaf >= 0 && item.leaves >= 0 &&
                  item.first_leaf + item.leaves <= params.shards)
        << "leaves [" << item.first_leaf << ", " << item.first_leaf + item.leaves << ") of "
        << params.shards;
    for (const DilatedBranch& branch : item.branches) {
      ANNULUS_CHECK(branch.rate >= 1 && branch.segment > 0 && branch.segment % branch.rate == 0 &&
                    branch.segment % params.shape.page_tokens == 0)
          << "segments of " << branch.segment << " with rate " << branch.rate;
      ANNULUS_CHECK(item.blocks.full && params.window == 0) << "branches have no other mask";
    }
  }
}

void CheckBlockScores(const BlockScoresParams& params) {
  CheckPageShape(params.shape);
  ANNULUS_CHECK(params.heads > 0 && params.heads % params.shape.kv_heads == 0)
      << params.heads << " heads over " << params.shape.kv_heads << " kv heads";
  ANNULUS_CHECK(params.stride == 1 || params.stride == 8 || params.stride == 16)
      << "stride " << params.stride;
  ANNULUS_CHECK(params.block_tokens > 0 && params.block_tokens % params.shape.page_tokens == 0)
      << "block of " << params.block_tokens;
  ANNULUS_CHECK(params.soft_cap >= 0) << "soft_cap " << params.soft_cap;
  for (const BlockScoresItem& item : params.items) {
    CheckView(item.query, item.positions.size(), int64_t{params.heads} * params.shape.k_dim,
              "block_scores query");
    ANNULUS_CHECK(std::is_sorted(item.positions.begin(), item.positions.end()));
    ANNULUS_CHECK(item.branches.empty() || params.stride == 1) << "branches of tiles";
  }
}

void CheckScoreSums(const ScoreSumsParams& params) {
  CheckView(params.scores, params.scores.rows, params.scores.cols, "score_sums scores");
  ANNULUS_CHECK(params.scores.rows == 0 || params.sums != nullptr);
}

void CheckBlockMasses(const BlockMassesParams& params) {
  ANNULUS_CHECK(params.kv_heads > 0 && params.heads > 0 && params.heads % params.kv_heads == 0)
      << params.heads << " heads over " << params.kv_heads << " kv heads";
  ANNULUS_CHECK(params.scores.rows % params.heads == 0)
      << params.scores.rows << " lists of " << params.heads << " heads";
  CheckRowRuns(params.ends, params.scores.rows / params.heads);
  CheckView(params.masses, std::ssize(params.ends) * params.kv_heads, params.scores.cols,
            "block_masses masses");
  ANNULUS_CHECK(params.ends.empty() || params.sums != nullptr);
}

void CheckKeySummary(const KeySummaryParams& params) {
  CheckPageShape(params.shape);
  const int page_tokens = params.shape.page_tokens;
  ANNULUS_CHECK(params.parts > 0 && page_tokens % (16 * params.parts) == 0)
      << params.parts << " parts of a page of " << page_tokens;
  const int fewest = params.parts == 1 ? 1 : page_tokens;
  for (const KvPageView& page : params.pages) {
    ANNULUS_CHECK(page.tokens >= fewest && page.tokens <= page_tokens) << page.tokens;
  }
  ANNULUS_CHECK(params.first >= 0) << params.first;
  CheckRuns(params.to, params.first + std::ssize(params.pages));
}

void CheckSummaryScores(const SummaryScoresParams& params) {
  ANNULUS_CHECK(params.kv_heads > 0 && params.heads % params.kv_heads == 0)
      << params.heads << " heads over " << params.kv_heads << " kv heads";
  CheckView(params.query, params.query.rows, int64_t{params.heads} * params.k_dim,
            "summary_scores query");
  ANNULUS_CHECK(std::has_single_bit(static_cast<unsigned>(params.parts)) &&
                params.parts <= kMostParts)
      << params.parts << " parts of a page";
  ANNULUS_CHECK(params.least >= 0 && params.greatest >= 0) << "a plane that is not there";
  CheckRuns(params.from, params.pages);
}

void CheckRowMeans(const RowMeansParams& params) {
  CheckView(params.output, static_cast<int64_t>(params.ends.size()), params.input.cols,
            "row_means output");
  CheckRowRuns(params.ends, params.input.rows);
}

void CheckMergeState(const MergeStateParams& params) {
  ANNULUS_CHECK(params.into.rows == params.from.rows && params.into.heads == params.from.heads &&
                params.into.v_dim == params.from.v_dim);
}

void CheckMergeSink(const MergeSinkParams& params) {
  ANNULUS_CHECK(params.sink != nullptr);
  ANNULUS_CHECK(params.state.v_dim <= kMaxHeadDim);
}

void CheckRoute(const RouteParams& params) {
  const RoutingRule& rule = params.rule;
  const int64_t experts = params.logits.cols;
  ANNULUS_CHECK(rule.chosen >= 1 && rule.chosen <= experts && experts <= kMostExperts)
      << rule.chosen << " of " << experts << " experts";
  ANNULUS_CHECK(params.logits.rows == 0 ||
                (params.experts != nullptr && params.weights != nullptr));
  if (rule.scores == RoutingRule::Scores::kSoftmax) {
    ANNULUS_CHECK(rule.groups == 1 && params.bias == nullptr) << "softmax scores";
  }
  ANNULUS_CHECK(rule.groups >= 1 && rule.chosen_groups >= 1 && rule.chosen_groups <= rule.groups &&
                experts % rule.groups == 0)
      << rule.chosen_groups << " of " << rule.groups << " groups of " << experts << " experts";
  const int64_t in_group = experts / rule.groups;
  ANNULUS_CHECK(rule.groups == 1 || in_group >= 2) << in_group << " experts in a group";
  ANNULUS_CHECK(rule.chosen <= rule.chosen_groups * in_group)
      << rule.chosen << " experts of " << rule.chosen_groups << " groups of " << in_group;
}

void CheckExpertLinear(const ExpertLinearParams& params) {
  ANNULUS_CHECK(params.weights != nullptr && !params.weights->matrices.empty());
  const auto experts = static_cast<int64_t>(params.weights->matrices.size());
  const int64_t choices = params.output.rows;
  ANNULUS_CHECK(params.chosen >= 1 && params.chosen <= experts && choices % params.chosen == 0)
      << choices << " choices, " << params.chosen << " of " << experts << " experts each";
  const int64_t rows = choices / params.chosen;
  ANNULUS_CHECK(rows <= kMostChoosingRows) << rows << " rows choose";
  ANNULUS_CHECK(params.input.rows == rows || params.input.rows == choices)
      << params.input.rows << " inputs for " << rows << " rows and " << choices << " choices";
  ANNULUS_CHECK(rows == 0 || params.experts != nullptr);
  const PackedMatrix& weight = *params.weights->matrices.front();
  CheckView(params.output, choices, weight.out_features, "expert_linear output");
  CheckInputs(params.input, weight, params.activations);
}

void CheckAddChoices(const AddChoicesParams& params) {
  ANNULUS_CHECK(params.chosen >= 1) << params.chosen << " choices of each row";
  CheckView(params.input, params.output.rows * params.chosen, params.output.cols,
            "add_choices input");
  ANNULUS_CHECK(params.output.rows == 0 || params.weights != nullptr);
}

void CheckGatherRows(const GatherRowsParams& params) {
  CheckView(params.output, params.rows.size(), params.input.cols, "gather_rows output");
  for (const int32_t row : params.rows) {
    ANNULUS_CHECK(row >= 0 && row < params.input.rows) << "row " << row;
  }
}

void CheckScatterAdd(const ScatterAddParams& params) {
  CheckView(params.input, params.rows.size(), params.output.cols, "scatter_add input");
  ANNULUS_CHECK(params.weights.size() == params.rows.size());
  for (const int32_t row : params.rows) {
    ANNULUS_CHECK(row >= 0 && row < params.output.rows) << "row " << row;
  }
}

void CheckPredictStreams(const PredictStreamsParams& params) {
  CheckStreams(params.factors, params.active, params.streams, params.output.rows,
               params.output.cols);
}

void CheckCorrectStreams(const CorrectStreamsParams& params) {
  CheckStreams(params.factors, params.active, params.streams, params.output.rows,
               params.output.cols);
  CheckView(params.computed, params.output.rows, params.output.cols, "computed stream");
}

void CheckMatchMagnitude(const MatchMagnitudeParams& params) {
  CheckView(params.input, params.output.rows, params.output.cols, "match_magnitude input");
  CheckView(params.like, params.output.rows, params.output.cols, "match_magnitude like");
  ANNULUS_CHECK(params.floor > 0) << params.floor;
  ANNULUS_CHECK(!params.accumulate || params.input.data != params.output.data);
}

void CheckCutOff(const CutOffParams& params) {
  ANNULUS_CHECK(params.values.cols >= 1) << params.values.cols << " columns";
}

void CheckSample(const SampleParams& params) {
  const int64_t vocabulary = params.logits.cols;
  CheckView(params.logits, params.rows.size(), vocabulary, "sample logits");
  ANNULUS_CHECK(vocabulary > 0 && params.tokens != nullptr);
  for (const SampleRow& row : params.rows) {
    CheckLogitEdits(row, vocabulary);
    ANNULUS_CHECK(row.temperature >= 0 && row.top_p > 0 && row.min_p >= 0 && row.min_p <= 1);
    ANNULUS_CHECK(row.uniform >= 0 && row.uniform < 1) << row.uniform;
  }
}

absl::Status CheckMatrixShape(int64_t rows, int64_t cols) {
  constexpr int64_t kMost = int64_t{1} << 60;
  constexpr int64_t kPadding = 64;  // to which a table may round up either dimension
  int64_t elements = 0;
  if (rows < 1 || cols < 1 || rows > kMost || cols > kMost ||
      __builtin_mul_overflow(rows + kPadding, cols + kPadding, &elements) || elements > kMost) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a weight matrix of [", rows, ", ", cols,
        "] is impossible: both dimensions must be at least 1 and the bytes must fit in memory"));
  }
  return absl::OkStatus();
}

void CheckPackRows(const PackedMatrix& matrix, int64_t first_row, const HostTensorView& source) {
  const int64_t end = first_row + source.rows;
  ANNULUS_CHECK(source.cols == matrix.in_features && first_row >= 0 && source.rows >= 1 &&
                end <= matrix.out_features)
      << "rows " << first_row << " to " << end << " of " << source.cols << " columns for ["
      << matrix.out_features << ", " << matrix.in_features << "]";
  ANNULUS_CHECK(first_row % kPackRows == 0 && (end % kPackRows == 0 || end == matrix.out_features))
      << "rows " << first_row << " to " << end << " are not packed together";
  ANNULUS_CHECK(!IsQuantized(source.dtype) || source.scales != nullptr);
}

}  // namespace annulus
