#include "engine/text/sentencepiece/sentencepiece_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/text/models/unigram_model.h"
#include "engine/text/sentencepiece/sentencepiece_file.h"
#include "engine/text/sentencepiece/sentencepiece_library.h"
#include "tests/support/temp_directory.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using ::testing::HasSubstr;
using Kind = SentencePieceFile::Kind;
using Type = SentencePieceFile::Type;
using Scores = std::vector<std::pair<std::string, float>>;

// <unk>, then the pieces.
SentencePieceFile File(Kind kind, const Scores& pieces) {
  SentencePieceFile file;
  file.kind = kind;
  file.pieces.push_back({"<unk>", 0, Type::kUnknown});
  for (const auto& [text, score] : pieces) file.pieces.push_back({text, score, Type::kNormal});
  return file;
}

std::unique_ptr<Model> MakeModel(const SentencePieceFile& file) {
  const auto library = SentencePieceLibrary::Get();
  EXPECT_TRUE(library.ok()) << library.status();
  if (!library.ok()) return nullptr;
  auto model = file.kind == Kind::kUnigram ? UnigramModel::Create(file)
                                           : SentencePieceModel::Create(file, **library);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

// In parts of `part` bytes, ASCII only.
std::vector<int32_t> Encode(const Model& model, absl::string_view text, size_t part) {
  std::vector<int32_t> ids;
  WorkMeter work("the text", 1 << 30, CancelFlag::Never());
  EncodeState state(&work);
  state.ids = &ids;
  const auto stage = model.NewStage(&state);
  for (; text.size() > part; text.remove_prefix(part)) {
    EXPECT_TRUE(stage->Push(text.substr(0, part), false).ok());
  }
  EXPECT_TRUE(stage->Push(text, true).ok());
  return ids;
}

// Merges the best pair, the leftmost of equals, until there is none. ASCII only.
std::vector<int32_t> ReferenceBpe(const Scores& pieces, const std::string& text) {
  std::map<std::string, std::pair<float, int32_t>> known;
  for (const auto& [piece, score] : pieces) {
    const auto id = static_cast<int32_t>(known.size()) + 1;
    known[piece] = {score, id};
  }
  std::map<size_t, std::string> symbols;  // by their place in the text
  for (size_t i = 0; i < text.size(); ++i) symbols[i] = text.substr(i, 1);
  std::set<std::tuple<float, size_t, std::string>> pairs;
  const auto change = [&](std::map<size_t, std::string>::iterator left, bool add) {
    const auto right = std::next(left);
    if (right == symbols.end()) return;
    const auto found = known.find(left->second + right->second);
    if (found == known.end()) return;
    const auto pair = std::make_tuple(-found->second.first, left->first, found->first);
    if (add) {
      pairs.insert(pair);
    } else {
      pairs.erase(pair);
    }
  };
  for (auto it = symbols.begin(); it != symbols.end(); ++it) change(it, true);
  while (!pairs.empty()) {
    const auto left = symbols.find(std::get<1>(*pairs.begin()));
    const auto right = std::next(left);
    const bool first = left == symbols.begin();
    if (!first) change(std::prev(left), false);
    change(left, false);
    change(right, false);
    left->second += right->second;
    symbols.erase(right);
    if (!first) change(std::prev(left), true);
    change(left, true);
  }
  std::vector<int32_t> ids;
  for (const auto& [place, symbol] : symbols) ids.push_back(known.at(symbol).second);
  return ids;
}

Scores RandomPieces(std::mt19937* random, float step) {
  std::set<std::string> texts = {"a", "b", "c"};
  while (texts.size() < 24) {
    std::string text;
    const size_t size = 2 + (*random)() % 5;
    while (text.size() < size) text += "abc"[(*random)() % 3];
    texts.insert(text);
  }
  Scores pieces;
  for (const std::string& text : texts) {
    pieces.emplace_back(text, -step * static_cast<float>(1 + (*random)() % 400));
  }
  return pieces;
}

// Stretches without any place that no piece bridges, and stretches that repeat themselves.
std::string RandomText(std::mt19937* random, size_t size) {
  std::string text;
  while (text.size() < size) {
    if ((*random)() % 3000 == 0) {
      text += std::string(20'000, "abc"[(*random)() % 3]);
    } else {
      text += "abc"[(*random)() % 3];
    }
  }
  return text;
}

TEST(SentencePieceModel, WindowsDoNotShowInBpe) {
  for (const uint32_t seed : testing::ThinnedIfSanitized(testing::SeedsFrom(1, 8), 2)) {
    std::mt19937 random(seed);
    const Scores pieces = RandomPieces(&random, 1.0f);
    const auto model = MakeModel(File(Kind::kBpe, pieces));
    ASSERT_NE(model, nullptr);
    const std::string text = RandomText(&random, 60'000);
    const std::vector<int32_t> expected = ReferenceBpe(pieces, text);
    EXPECT_EQ(Encode(*model, text, text.size()), expected) << "seed " << seed;
    EXPECT_EQ(Encode(*model, text, 1 + random() % 9000), expected) << "seed " << seed;
  }
}

// The sum of the best division's scores, which are multiples of 1/64: no sum is rounded.
double BestSum(const Scores& pieces, const std::string& text) {
  const std::map<std::string, float> known(pieces.begin(), pieces.end());
  std::vector<double> best(text.size() + 1, -1e30);
  best[0] = 0;
  for (size_t end = 1; end <= text.size(); ++end) {
    for (size_t size = 1; size <= std::min<size_t>(end, 6); ++size) {
      const auto found = known.find(text.substr(end - size, size));
      if (found != known.end()) best[end] = std::max(best[end], best[end - size] + found->second);
    }
  }
  return best.back();
}

TEST(SentencePieceModel, UnigramGivesABestDivision) {
  for (const uint32_t seed : testing::ThinnedIfSanitized(testing::SeedsFrom(1, 8), 2)) {
    std::mt19937 random(seed);
    const Scores pieces = RandomPieces(&random, 1.0f / 64);
    const auto model = MakeModel(File(Kind::kUnigram, pieces));
    ASSERT_NE(model, nullptr);
    std::string text;
    while (text.size() < 60'000) text += "abc"[random() % 3];
    const std::vector<int32_t> ids = Encode(*model, text, text.size());
    double sum = 0;
    std::string back;
    for (const int32_t id : ids) {
      sum += pieces[static_cast<size_t>(id) - 1].second;
      back += pieces[static_cast<size_t>(id) - 1].first;
    }
    EXPECT_EQ(back, text) << "seed " << seed;
    EXPECT_EQ(sum, BestSum(pieces, text)) << "seed " << seed;
    EXPECT_EQ(Encode(*model, text, 1 + random() % 9000), ids) << "seed " << seed;
  }
}

// Every division of these runs has the same sum. As in the package `tokenizers`, which sums in
// double precision, the odd one comes first; rounding to single precision chose another at 64.
TEST(SentencePieceModel, UnigramDividesRunsAsTransformersDoes) {
  const auto model = MakeModel(File(Kind::kUnigram, {{"_", -7.3f}, {"___", -8.1f}}));
  ASSERT_NE(model, nullptr);
  for (const size_t size : {64u, 1024u, 700'000u}) {
    const std::string text(size, '_');
    std::vector<int32_t> expected(size % 3, 1);
    expected.resize(size % 3 + size / 3, 2);
    EXPECT_EQ(Encode(*model, text, text.size()), expected) << size;
    EXPECT_EQ(Encode(*model, text, 4999), expected) << size;
  }
}

// No piece bridges two unknown characters, but the library makes one token of them all.
TEST(SentencePieceModel, ARunOfUnknownCharactersIsOneToken) {
  for (const Kind kind : {Kind::kBpe, Kind::kUnigram}) {
    const auto model = MakeModel(File(kind, {{"a", -1}, {"b", -2}}));
    ASSERT_NE(model, nullptr);
    const std::string text = "a" + std::string(50'000, 'x') + "b" + std::string(20'000, 'y');
    EXPECT_THAT(Encode(*model, text, 7777), ::testing::ElementsAre(1, 0, 2, 0));
  }
}

TEST(SentencePieceModel, ThreadsShareIt) {
  std::mt19937 random(5);
  const Scores pieces = RandomPieces(&random, 1.0f);
  const auto model = MakeModel(File(Kind::kBpe, pieces));
  ASSERT_NE(model, nullptr);
  const std::string text = RandomText(&random, 20'000);
  const std::vector<int32_t> expected = Encode(*model, text, text.size());
  for (int round = 0; round < 4; ++round) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        EXPECT_EQ(Encode(*model, text, 1000 + static_cast<size_t>(i)), expected);
        // Loading beside encoding.
        EXPECT_NE(MakeModel(File(Kind::kUnigram, pieces)), nullptr);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(SentencePieceLibrary, AMissingModuleIsNamed) {
  const testing::TempDirectory directory;
  const std::filesystem::path& folder = directory.path();
  const std::filesystem::path folders[] = {folder};
  absl::Status status = SentencePieceLibrary::Open(folders).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("libannulus_sentencepiece.so"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder.string()));

  std::ofstream(folder / "libannulus_sentencepiece.so") << "no module";
  status = SentencePieceLibrary::Open(folders).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("libsentencepiece0"));
}

TEST(SentencePieceLibrary, SaysWhyItRefuses) {
  const auto library = SentencePieceLibrary::Get();
  ASSERT_TRUE(library.ok()) << library.status();
  const absl::Status status = (*library)->Load("\x0A\xFF").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the sentencepiece library says: "));
}

}  // namespace
}  // namespace annulus
