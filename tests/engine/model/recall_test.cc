#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "bench/demo/document.h"
#include "engine/model/made/recall_codes.h"
#include "engine/model/made/recall_model.h"
#include "engine/model/weights/weights.h"
#include "kernels/base/sanitizers.h"
#include "tests/engine/model/packing_backend.h"
#include "tests/engine/model/plain_forward.h"

namespace annulus {
namespace {

using testing::PackingBackend;
using testing::PlainForward;

static_assert(bench::kDemoContextBytes == kRecallContext);

template <typename Code>
int Product(const Code& a, const Code& b) {
  int sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

TEST(RecallCodesTest, EqualContextsScoreTwoOthersAtMostOne) {
  const std::vector<ContextCode> codes = ContextCodes();
  ASSERT_EQ(codes.size(), size_t{kRecallVocabulary});
  for (size_t a = 0; a < codes.size(); ++a) {
    for (size_t b = 0; b < codes.size(); ++b) {
      if (a == b) {
        EXPECT_EQ(Product(codes[a], codes[b]), 2) << a;
      } else {
        EXPECT_LE(Product(codes[a], codes[b]), 1) << a << " " << b;
      }
    }
  }
}

TEST(RecallCodesTest, TextAndCapitalsUseDifferentChannels) {
  const std::vector<ContextCode> codes = ContextCodes();
  for (const unsigned char text : std::string("etaoin shrdlu.,\n")) {
    for (const unsigned char mark : std::string("0123456789ABCXYZ-':")) {
      EXPECT_EQ(Product(codes[text], codes[mark]), 0) << text << mark;
    }
  }
}

TEST(RecallCodesTest, AnswersAreFarApart) {
  const std::vector<AnswerCode> codes = AnswerCodes();
  ASSERT_EQ(codes.size(), size_t{kRecallVocabulary});
  for (size_t a = 0; a < codes.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      EXPECT_LE(Product(codes[a], codes[b]), a == kRecallEndOfText ? 8 : 4) << a << " " << b;
    }
  }
}

TEST(RecallModelTest, TensorsAreThoseOfTheConfiguration) {
  for (const int layers : {2, 3}) {
    const std::unique_ptr<TensorSource> source = MakeRecallTensors(layers);
    PackingBackend backend;
    const absl::StatusOr<ModelWeights> weights =
        LoadWeights(RecallConfig(layers), *source, backend, PackingBackend::Ops(), std::nullopt);
    ASSERT_TRUE(weights.ok()) << weights.status();
    EXPECT_EQ(weights->layers.size(), static_cast<size_t>(layers));
    EXPECT_EQ(weights->dtype, DType::kF32);
    EXPECT_EQ(source->Names().size(), 3u + 9u * static_cast<size_t>(layers));
    EXPECT_TRUE(std::ranges::is_sorted(source->Names()));
  }
  const std::unique_ptr<TensorSource> source = MakeRecallTensors(2);
  EXPECT_FALSE(source->Has("model.layers.2.self_attn.q_proj.weight"));
  EXPECT_EQ(source->Describe("nothing").status().code(), absl::StatusCode::kNotFound);
}

// FNV-1a over the bits of all tensors, by name: a change of compiler or machine must not show.
TEST(RecallModelTest, WeightsAreTheSameEverywhereAndExactInBf16) {
  const std::unique_ptr<TensorSource> source = MakeRecallTensors(3);
  uint64_t hash = 0xcbf29ce484222325u;
  for (const std::string& name : source->Names()) {
    const std::vector<float> values = ReadAsFloat(*source, name).value();
    for (const float value : values) {
      ASSERT_EQ(ToFloat(ToBFloat16(value)), value) << name;
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof(bits));
      hash = (hash ^ bits) * 0x100000001b3u;
    }
  }
  EXPECT_EQ(hash, 14476604080956431653u);
}

// A head's query or key before rope, for a residual stream that `norm` multiplies: [head_dim].
std::vector<double> Project(const TensorSource& source, const std::string& name, int head,
                            const std::vector<double>& x) {
  const ModelConfig config = RecallConfig(2);
  const std::vector<float> weight = ReadAsFloat(source, name).value();
  const int32_t dim = WidestAttention(config).k_dim;
  std::vector<double> result(static_cast<size_t>(dim));
  for (size_t d = 0; d < result.size(); ++d) {
    const size_t row = (static_cast<size_t>(head * dim) + d) * x.size();
    for (size_t i = 0; i < x.size(); ++i) result[d] += x[i] * weight[row + i];
  }
  return result;
}

// The logit of a query `distance` tokens after a key, both before rope.
double Logit(const std::vector<double>& query, const std::vector<double>& key, double distance) {
  const std::vector<float> frequencies = InverseFrequencies(RecallConfig(2).ropes[0]);
  const size_t pairs = frequencies.size();
  double sum = 0;
  for (size_t i = 0; i < pairs; ++i) {
    const double c = std::cos(distance * frequencies[i]), s = std::sin(distance * frequencies[i]);
    sum += c * (query[i] * key[i] + query[i + pairs] * key[i + pairs]);
    sum += s * (query[i] * key[i + pairs] - query[i + pairs] * key[i]);
  }
  return sum / std::sqrt(static_cast<double>(query.size()));
}

TEST(RecallModelTest, LagHeadsAttendExactlyTheirLag) {
  const std::unique_ptr<TensorSource> source = MakeRecallTensors(2);
  std::vector<double> x(128, 0);
  x[12] = 2 * 4;  // the constant channel after the norm
  const std::vector<double> key = Project(*source, "model.layers.0.self_attn.k_proj.weight", 0, x);
  for (int lag = 1; lag <= kRecallContext; ++lag) {
    const std::vector<double> query =
        Project(*source, "model.layers.0.self_attn.q_proj.weight", lag - 1, x);
    for (int distance = 0; distance < RecallConfig(2).layers[0].window; ++distance) {
      if (distance == lag) continue;
      EXPECT_GT(Logit(query, key, lag) - Logit(query, key, distance), 40) << lag << " " << distance;
    }
  }
}

// Residual stream after layer 0, normed, of a token whose last bytes are `bytes` (own byte last).
std::vector<double> StreamAfterLayerZero(const std::string& bytes) {
  const std::vector<ContextCode> codes = ContextCodes();
  std::vector<double> x(128, 0);
  const double norm = std::sqrt(128.0 / 24);
  for (int lag = 0; lag <= kRecallContext; ++lag) {
    const ContextCode& code = codes[static_cast<uint8_t>(bytes[bytes.size() - 1 - lag])];
    const size_t first = lag == 0 ? 0 : 16 + 12 * static_cast<size_t>(lag - 1);
    for (size_t c = 0; c < code.size(); ++c) x[first + c] = norm * code[c];
  }
  return x;
}

TEST(RecallModelTest, OneWrongByteLosesByFortyLogitsAtAnyDistance) {
  const std::unique_ptr<TensorSource> source = MakeRecallTensors(2);
  const std::string query_name = "model.layers.1.self_attn.q_proj.weight";
  const std::string key_name = "model.layers.1.self_attn.k_proj.weight";
  const std::string context = "pened at";
  const std::vector<double> exact =
      Project(*source, key_name, 0, StreamAfterLayerZero(context + "?"));
  for (int head = 0; head < WidestAttention(RecallConfig(2)).heads; ++head) {
    const std::vector<double> query =
        Project(*source, query_name, head, StreamAfterLayerZero("h" + context));
    for (size_t i = 0; i < context.size(); ++i) {
      std::string wrong = context;
      wrong[i] = wrong[i] == 'e' ? 't' : 'e';
      const std::vector<double> inexact =
          Project(*source, key_name, 0, StreamAfterLayerZero(wrong + "?"));
      for (const double distance : {0.0, 1.0, 1e3, 1e6, 1e7, 16777215.0}) {
        EXPECT_GT(Logit(query, exact, distance) - Logit(query, inexact, distance), 40)
            << head << " " << i << " " << distance;
      }
    }
  }
}

struct Prediction {
  int32_t id;
  double gap;  // to the second best, in logits
};

std::vector<Prediction> Predict(int layers, const std::vector<int32_t>& ids) {
  const ModelConfig config = RecallConfig(layers);
  const std::unique_ptr<TensorSource> source = MakeRecallTensors(layers);
  const std::vector<float> logits = PlainForward(config, *source).Logits(ids);
  std::vector<Prediction> predictions;
  for (auto row = logits.begin(); row != logits.end(); row += config.vocabulary) {
    const auto end = row + config.vocabulary;
    EXPECT_TRUE(std::all_of(row, end, [](float logit) { return std::isfinite(logit); }));
    const auto best = std::max_element(row, end);
    const float second = std::max(row == best ? -1e9f : *std::max_element(row, best),
                                  best + 1 == end ? -1e9f : *std::max_element(best + 1, end));
    predictions.push_back({static_cast<int32_t>(best - row), *best - second});
  }
  return predictions;
}

std::vector<int32_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()),
          reinterpret_cast<const uint8_t*>(text.data()) + text.size()};
}

// For every row the byte that always followed its context earlier in the text, or -1 where there
// was none or more than one.
std::vector<int32_t> Recalled(const std::string& text) {
  const size_t context = kRecallContext;
  std::map<std::string, std::set<int32_t>> followers;
  std::vector<int32_t> recalled(text.size(), -1);
  for (size_t row = 0; row < text.size(); ++row) {
    if (row >= context) {
      followers[text.substr(row - context, context)].insert(static_cast<uint8_t>(text[row]));
    }
    if (row + 1 < context) continue;
    const auto found = followers.find(text.substr(row + 1 - context, context));
    if (found != followers.end() && found->second.size() == 1) {
      recalled[row] = *found->second.begin();
    }
  }
  return recalled;
}

// A document with facts, and after it every cue with its answer.
struct Conversation {
  std::string text;
  size_t questions = 0;         // offset of the first cue
  std::vector<size_t> answers;  // offsets of answer bytes, line ends included
};

Conversation Converse(int64_t bytes, const std::vector<double>& depths) {
  const bench::DemoDocument document =
      bench::MakeDemoDocument({.bytes = bytes, .seed = 3, .depths = depths}).value();
  Conversation conversation{document.text, document.text.size(), {}};
  for (const bench::DemoFact& fact : document.facts) {
    conversation.text += fact.cue;
    for (const char byte : fact.answer + "\n") {
      conversation.answers.push_back(conversation.text.size());
      conversation.text += byte;
    }
  }
  return conversation;
}

TEST(RecallModelTest, AnswersFromADocument) {
  const int bytes = kSanitized ? 800 : 1600;
  const Conversation conversation = Converse(bytes, {0, 0.3, 0.6, 0.95});
  const std::vector<Prediction> predictions = Predict(2, Bytes(conversation.text));
  ASSERT_EQ(conversation.answers.size() / 4, 12u);
  for (const size_t answer : conversation.answers) {
    EXPECT_EQ(predictions[answer - 1].id, conversation.text[answer]) << answer;
    EXPECT_GT(predictions[answer - 1].gap, 20) << answer;
  }
  const std::vector<int32_t> recalled = Recalled(conversation.text);
  int rows = 0;
  for (size_t row = 0; row < recalled.size(); ++row) {
    if (recalled[row] < 0) continue;
    ++rows;
    EXPECT_EQ(predictions[row].id, recalled[row]) << row;
    EXPECT_GT(predictions[row].gap, 20) << row;
  }
  EXPECT_GT(rows, bytes / 6);
}

TEST(RecallModelTest, ThirdLayerChangesNothing) {
  const Conversation conversation = Converse(kSanitized ? 300 : 500, {0.2});
  const std::vector<Prediction> two = Predict(2, Bytes(conversation.text));
  const std::vector<Prediction> three = Predict(3, Bytes(conversation.text));
  for (size_t row = 0; row < two.size(); ++row) {
    EXPECT_EQ(two[row].id, three[row].id) << row;
    EXPECT_EQ(two[row].gap, three[row].gap) << row;
  }
}

TEST(RecallModelTest, ShortPromptsAreHarmless) {
  EXPECT_EQ(Predict(2, Bytes("a")).back().id, 'a');
  for (const std::string text : {"ab", "abcdefg", "abcdefgh", "abcdefghi", "\xff\x80\x01"}) {
    EXPECT_EQ(Predict(2, Bytes(text)).size(), text.size());
  }
}

TEST(RecallModelTest, EveryTokenCanBeRecalled) {
  for (const int32_t id : {0, 10, 127, 128, 255, kRecallEndOfText}) {
    std::vector<int32_t> ids = Bytes("Ask me anything else. Here it ends!");
    ids.push_back(id);
    for (const int32_t byte : Bytes("Now for the rest. Here it ends!")) ids.push_back(byte);
    const Prediction prediction = Predict(2, ids).back();
    EXPECT_EQ(prediction.id, id);
    EXPECT_GT(prediction.gap, 20) << id;
  }
}

}  // namespace
}  // namespace annulus
