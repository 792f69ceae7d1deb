#include "client/draw/explain_page.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

namespace annulus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

ExplainedRun ExamplePage() {
  ExplainedRun run;
  run.prompt = "Is <b> & 'c' here?";
  run.answer.text = "</pre><script>alert(1)</script>";
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(usage { prompt_tokens: 65536 cached_tokens: 64 }
         timings { prefill: 2 total: 3 }
         attention {
           policy: "adaptive:coverage=0.9" density: 0.25 ring_degree: 2
           sampled_coverage { mean: 0.97 minimum: 0.91 first_percentile: 0.93 rows: 4096 }
           estimated_coverage: 0.96 layer_steps: 64 layers_raised: 3 layers_dense: 1
           contract_met: true estimate_seconds: 2 attend_seconds: 8
           estimate_wall_seconds: 0.5 attend_wall_seconds: 2
           details { layer: 1 kv_head: 0 density: 0.25 sampled_coverage: 0.875
                     map: "\377\000\200\377" }
           details { layer: 1 kv_head: 1 density: 0.125 map: "\377\000\000\377" }
         })",
      &run.answer.completion));
  return run;
}

size_t Count(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(ExplainPage, TellsEverythingAndNeedsNothing) {
  const std::string page = ExplainPage(ExamplePage()).value();
  EXPECT_THAT(page, AllOf(HasSubstr("adaptive:coverage=0.9"), HasSubstr("0.97"),
                          HasSubstr("mean over 4,096 rows"),
                          HasSubstr("first percentile of heads "
                                    "0.93"),
                          HasSubstr("3 raised and 1 dense of 64"), HasSubstr(">met<")));
  EXPECT_THAT(page, AllOf(HasSubstr("layer 1, head 0<br>density 0.25, coverage 0.875"),
                          HasSubstr("layer 1, head 1<br>density 0.125<")));
  EXPECT_EQ(Count(page, "src=\"data:image/png;base64,iVBORw0KGgo"), 2u);
  EXPECT_EQ(Count(page, "<title>layer 1, head 0: "), 2u);  // density and coverage
  EXPECT_THAT(page, HasSubstr("Is &lt;b&gt; &amp; &#39;c&#39; here?"));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  // The one address is the name of SVG.
  EXPECT_EQ(Count(page, "://"), Count(page, "xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_THAT(page, Not(HasSubstr("Dense attention gives")));
}

TEST(ExplainPage, WithoutACoverageThereIsNoContract) {
  ExplainedRun run = ExamplePage();
  run.answer.completion.mutable_attention()->set_policy("window:block=64,sinks=64,window=4096");
  EXPECT_THAT(ExplainPage(run).value(), AllOf(HasSubstr(">none<"), Not(HasSubstr(">met<"))));
}

// Ranks attend at the same time, so their clocks are not added up.
TEST(ExplainPage, WithoutADenseRunTimeSavedIsEstimatedFromTheSlowestRank) {
  const SavedTime saved = SavedSeconds(ExamplePage()).value();
  EXPECT_DOUBLE_EQ(saved.seconds, 2 / 0.25 - 2 - 0.5);
  EXPECT_FALSE(saved.measured);
  EXPECT_FALSE(SavedSeconds(ExplainedRun()).has_value());
  EXPECT_THAT(ExplainPage(ExamplePage()).value(),
              AllOf(HasSubstr("time saved"), HasSubstr("5.50 s"), HasSubstr("would take 8.00 s"),
                    HasSubstr("of the slowest rank; 500 ms")));
  ExplainedRun run = ExamplePage();
  run.answer.completion.mutable_attention()->set_estimate_wall_seconds(9);
  EXPECT_THAT(ExplainPage(run).value(), AllOf(HasSubstr("time lost"), HasSubstr("3.00 s")));
  run.answer.completion.mutable_attention()->set_attend_wall_seconds(0);
  EXPECT_THAT(ExplainPage(run).value(), Not(HasSubstr("time lost")));
}

// Never more than the dense run took.
TEST(ExplainPage, BesideADenseRunTimeSavedIsMeasured) {
  ExplainedRun run = ExamplePage();
  v1::Timings* const timings = run.answer.completion.mutable_timings();
  timings->set_queue(5);
  timings->set_total(5.76);
  run.dense = run.answer;
  run.dense->completion.mutable_timings()->set_queue(0);
  run.dense->completion.mutable_timings()->set_total(2.04);
  const SavedTime saved = SavedSeconds(run).value();
  EXPECT_NEAR(saved.seconds, 2.04 - 0.76, 1e-9);
  EXPECT_TRUE(saved.measured);
  EXPECT_THAT(ExplainPage(run).value(), AllOf(HasSubstr("time saved"), HasSubstr("1.28 s"),
                                              HasSubstr("the dense run took 2.04 s in all")));
  run.dense->completion.mutable_timings()->set_total(0.5);
  EXPECT_THAT(ExplainPage(run).value(), AllOf(HasSubstr("time lost"), HasSubstr("260 ms")));
  run.dense->completion.mutable_usage()->set_cached_tokens(128);
  EXPECT_FALSE(SavedSeconds(run).has_value());
}

TEST(ExplainPage, ComparesWithDenseAttention) {
  ExplainedRun run = ExamplePage();
  run.dense = run.answer;
  EXPECT_THAT(ExplainPage(run).value(), HasSubstr("Dense attention gives the same answer."));
  run.dense->text = "<i>other</i>";
  EXPECT_THAT(ExplainPage(run).value(), AllOf(HasSubstr("Dense attention gives another answer:"),
                                              HasSubstr("&lt;i&gt;other&lt;/i&gt;")));
}

TEST(ExplainPage, BearsEmptyReportsAndRefusesBrokenMaps) {
  EXPECT_THAT(ExplainPage(ExplainedRun()).value(), HasSubstr("The server told nothing of them"));
  ExplainedRun run = ExamplePage();
  run.answer.completion.mutable_attention()->mutable_details(0)->set_map("abc");
  EXPECT_THAT(std::string(ExplainPage(run).status().message()), HasSubstr("3 cells"));
  run.answer.completion.mutable_attention()->mutable_details(0)->clear_map();
  EXPECT_FALSE(ExplainPage(run).ok());
}

TEST(ExplainPage, AStrangeServerDoesNoHarm) {
  ExplainedRun run = ExamplePage();
  v1::AttentionDetail& detail = *run.answer.completion.mutable_attention()->mutable_details(0);
  detail.set_density(7);
  EXPECT_TRUE(ExplainPage(run).ok());
  for (const int number : {-1, 1 << 30}) {
    detail.set_kv_head(number);
    EXPECT_THAT(std::string(ExplainPage(run).status().message()), HasSubstr("and that cannot be"));
  }
}

}  // namespace
}  // namespace annulus
