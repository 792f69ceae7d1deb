#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/exchange/exchange_profile.h"
#include "engine/exchange/measure_exchange.h"
#include "engine/exchange/ring_probe.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "tests/support/temp_directory.h"

namespace annulus {
namespace {

ExchangeSetup SmallSetup() {
  return {"a processor", "cpu/some", 3, 2, {.heads = 4, .page = {16, 2, 32, 32}}};
}

ExchangeRates SomeRates() {
  ExchangeRates rates;
  rates.attention = {{1, 3.5e9, 7e9, -2e-6}, {64, 12.5e9, 25e9, 4e-6}};
  rates.call_keys = 75.5;
  rates.link_bytes_per_second = 0;
  rates.message_seconds = 5.9e-6;
  rates.part_seconds = 5.5e-9;
  return rates;
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(MeasureExchange, TakesLittleTimeWithEveryTable) {
  const auto backend = CreateCpuBackend().value();
  KernelRegistry registry;
  RegisterCpuKernels(registry);
  for (const OpTable* ops : registry.Available("cpu")) {
    SCOPED_TRACE(ops->name);
    const auto start = std::chrono::steady_clock::now();
    const auto rates = MeasureExchange(SmallSetup(), *ops, *backend);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    ASSERT_TRUE(rates.ok()) << rates.status();
    std::vector<int> rows;
    for (const AttentionRate& rate : rates->attention) {
      rows.push_back(rate.rows);
      EXPECT_GT(rate.flops, 1e5);
      EXPECT_GE(rate.alone_flops, rate.flops);
      EXPECT_GE(rate.flops * SmallSetup().ranks * 1.001, rate.alone_flops);
    }
    EXPECT_EQ(rows, std::vector<int>({1, 4, 16}));  // up to a page
    EXPECT_GE(rates->call_keys, 0);
    EXPECT_EQ(rates->link_bytes_per_second, 0);
    EXPECT_GT(rates->message_seconds, 0);
    EXPECT_GE(rates->part_seconds, 0);
    EXPECT_LT(rates->part_seconds, rates->message_seconds);
    // A free core needs 0.03 s; a sanitizer on a busy machine much more.
    EXPECT_LT(seconds.count(), 20);
  }
}

TEST(MeasureAttention, IsThatOfARankAlone) {
  const auto backend = CreateCpuBackend().value();
  KernelRegistry registry;
  RegisterCpuKernels(registry);
  ExchangeSetup setup = SmallSetup();
  setup.ranks = 1;
  for (const OpTable* ops : registry.Available("cpu")) {
    SCOPED_TRACE(ops->name);
    const auto rates = MeasureAttention(setup, *ops, *backend);
    ASSERT_TRUE(rates.ok()) << rates.status();
    std::vector<int> rows;
    for (const AttentionRate& rate : rates->attention) {
      rows.push_back(rate.rows);
      EXPECT_GT(rate.flops, 1e5);
      EXPECT_EQ(rate.alone_flops, rate.flops);
      EXPECT_EQ(rate.query_seconds, 0);
    }
    EXPECT_EQ(rows, std::vector<int>({1, 4, 16}));  // up to a page
    EXPECT_EQ(rates->message_seconds, ExchangeRates().message_seconds);
  }
}

// With large pages a daemon took seconds more to start, for rates that fewer rows had told.
TEST(MeasureExchange, StopsAtRowsThatKeepARankBusy) {
  const auto backend = CreateCpuBackend().value();
  KernelRegistry registry;
  RegisterCpuKernels(registry);
  ExchangeSetup setup = SmallSetup();
  setup.attention.page.page_tokens = 256;
  KernelRequirements required{.implementation = "cpu/reference", .k_dim = 32, .v_dim = 32};
  const auto rates = MeasureExchange(setup, **registry.Select(required), *backend);
  ASSERT_TRUE(rates.ok()) << rates.status();
  EXPECT_GE(rates->attention.back().rows, 16);
  EXPECT_LT(rates->attention.back().rows, 256);
}

TEST(RingProbe, RunsBothModesOfAnyShape) {
  const auto backend = CreateCpuBackend().value();
  KernelRegistry registry;
  RegisterCpuKernels(registry);
  RingProbeOptions options;
  options.ranks = 3;
  options.threads = 3;
  options.attention = {.heads = 4, .page = {16, 2, 32, 32}};
  options.tokens = 500;
  options.rows = 100;
  const auto probe = RingProbe::Create(options, *registry.Available("cpu")[0], *backend);
  ASSERT_TRUE(probe.ok()) << probe.status();
  for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
    for (const auto& [rows, cached] : {std::pair{1, 0}, {16, 0}, {100, 0}, {7, 333}, {100, 400}}) {
      const auto seconds = (*probe)->Layer(mode, rows, cached);
      ASSERT_TRUE(seconds.ok()) << seconds.status();
      EXPECT_GT(*seconds, 0);
    }
  }
}

class ExchangeProfile : public ::testing::Test {
 protected:
  ExchangeProfile() : path_((directory_.path() / "profile.json").string()) {}

  void Write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  absl::Status Load() { return LoadExchangeProfile(path_, SmallSetup()).status(); }

  testing::TempDirectory directory_;
  std::string path_;
};

TEST_F(ExchangeProfile, ComesBackAsItWasSaved) {
  const ExchangeRates rates = SomeRates();
  EXPECT_EQ(Load().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(SaveExchangeProfile(path_, SmallSetup(), rates).ok());
  const auto loaded = LoadExchangeProfile(path_, SmallSetup());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ASSERT_EQ(loaded->attention.size(), 2);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(loaded->attention[i].rows, rates.attention[i].rows);
    EXPECT_EQ(loaded->attention[i].flops, rates.attention[i].flops);
    EXPECT_EQ(loaded->attention[i].alone_flops, rates.attention[i].alone_flops);
    EXPECT_EQ(loaded->attention[i].query_seconds, rates.attention[i].query_seconds);
  }
  EXPECT_EQ(loaded->call_keys, rates.call_keys);
  EXPECT_EQ(loaded->link_bytes_per_second, rates.link_bytes_per_second);
  EXPECT_EQ(loaded->message_seconds, rates.message_seconds);
  EXPECT_EQ(loaded->part_seconds, rates.part_seconds);
  // Nothing else is left in the folder.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path()), {}), 1);
}

TEST_F(ExchangeProfile, OfAnotherSetupIsRefused) {
  ASSERT_TRUE(SaveExchangeProfile(path_, SmallSetup(), SomeRates()).ok());
  ExchangeSetup other = SmallSetup();
  other.ranks = 4;
  const absl::Status status = LoadExchangeProfile(path_, other).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(status.message()),
            absl::StrCat(path_,
                         " was measured with ranks 3, but this server has 4; delete it or name "
                         "another file"));
  other = SmallSetup();
  other.kernels = "cpu/other";
  EXPECT_FALSE(LoadExchangeProfile(path_, other).ok());
  other = SmallSetup();
  other.attention.page.dtype = DType::kI8;
  EXPECT_FALSE(LoadExchangeProfile(path_, other).ok());
}

TEST_F(ExchangeProfile, HostileFilesAreErrors) {
  ASSERT_TRUE(SaveExchangeProfile(path_, SmallSetup(), SomeRates()).ok());
  const std::string good = ReadAll(path_);
  const auto replaced = [&](const std::string& from, const std::string& to) {
    const std::string text = absl::StrReplaceAll(good, {{from, to}});
    EXPECT_NE(text, good) << from;
    return text;
  };
  for (const std::string& text : {std::string(),
                                  std::string("{}"),
                                  std::string("[]"),
                                  std::string("null"),
                                  good + good,
                                  std::string(70'000, ' ') + good,
                                  std::string(1000, '['),
                                  replaced("profile 3", "profile 2"),
                                  replaced("\"setup\"", "\"set\""),
                                  replaced("\"rates\"", "\"setup\""),
                                  replaced("\"flops\"", "\"flop\""),
                                  replaced("\"attention\": [", "\"attention\": [null,"),
                                  replaced("\"attention\": [", "\"attention\": [], \"a\": ["),
                                  replaced("\"attention\": [", "\"attention\": {\"a\": ["),
                                  replaced("\"rows\": 64", "\"rows\": 1"),
                                  replaced("\"rows\": 64", "\"rows\": 64.5"),
                                  replaced("\"rows\": 64", "\"rows\": 64, \"more\": 1"),
                                  replaced("\"rows\": 64", "\"rows\": 100000000"),
                                  replaced("\"rows\": 1\n", "\"rows\": 0\n"),
                                  replaced("\"ranks\": 3", "\"ranks\": {\"ranks\": 3}"),
                                  replaced("\"part_seconds\"", "\"more\": 1, \"part_seconds\""),
                                  replaced("75.5", "-75.5"),
                                  replaced("12500000000.0", "0"),
                                  replaced("12500000000.0", "-1"),
                                  replaced("12500000000.0", "1e400"),
                                  replaced("12500000000.0", "\"1\""),
                                  replaced("12500000000.0", "null"),
                                  replaced("12500000000.0", "NaN"),
                                  replaced("5.9e-06", "11"),
                                  replaced("5.9e-06", "-1e-9")}) {
    Write(text);
    EXPECT_FALSE(Load().ok()) << text.substr(0, 300);
  }
  for (size_t length = 0; length + 1 < good.size(); ++length) {
    Write(good.substr(0, length));
    EXPECT_FALSE(Load().ok()) << "cut to " << length;
  }
  Write(good);
  EXPECT_TRUE(Load().ok());
  std::filesystem::rename(path_, path_ + ".real");
  std::filesystem::create_symlink(path_ + ".real", path_);
  EXPECT_TRUE(Load().ok());
  std::filesystem::remove(path_ + ".real");
  EXPECT_FALSE(Load().ok());
  EXPECT_FALSE(LoadExchangeProfile(directory_.path().string() + "/", SmallSetup()).ok());
}

TEST_F(ExchangeProfile, AFolderThatCannotBeWrittenIsAnError) {
  const std::string path = (directory_.path() / "absent" / "profile.json").string();
  const absl::Status status = SaveExchangeProfile(path, SmallSetup(), SomeRates());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find(path), absl::string_view::npos);
}

}  // namespace
}  // namespace annulus
