#include "client/draw/explain_page.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace annulus::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

ExplainedRun ExamplePage() {
  ExplainedRun run;
  run.subject = {.model = "recall<3>",
                 .documents = {"report & more.pdf", "notes.txt"},
                 .date = "2026-03-01 10:00:00 UTC",
                 .version = "annulusd 0.1.0"};
  run.prompt = "Is <b> & 'c' here?";
  run.answer.text = "</pre><script>alert(1)</script>";
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(request_id: "r<1>" usage { prompt_tokens: 65536 cached_tokens: 64 }
         timings { prefill: 2 total: 3 }
         attention {
           policy: "adaptive:coverage=0.9" density: 0.25 ring_degree: 2
           sampled_coverage { mean: 0.97 minimum: 0.91 first_percentile: 0.93 rows: 4096 }
           estimated_coverage: 0.96 layer_steps: 64 layers_raised: 3 layers_dense: 1
           contract_met: true estimate_seconds: 2 attend_seconds: 8
           estimate_wall_seconds: 0.5 attend_wall_seconds: 2
           details { layer: 1 kv_head: 0 density: 0.25 sampled_coverage: 0.875
                     map: "\377\000\200\377" computed: "\000\377" }
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
  EXPECT_EQ(Count(page, "href=\"data:image/png;base64,iVBORw0KGgo"), 2u);
  EXPECT_EQ(Count(page, "<title>layer 1, head 0: "), 2u);  // density and coverage
  EXPECT_THAT(page, HasSubstr("Is &lt;b&gt; &amp; &#39;c&#39; here?"));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_EQ(Count(page, "://"), 0u);
  EXPECT_THAT(page, Not(HasSubstr("Dense attention gives")));
}

TEST(ExplainPage, NamesWhatItIsAbout) {
  const std::string page = ExplainPage(ExamplePage()).value();
  for (const char* fact :
       {"<th>model</th><td>recall&lt;3&gt;</td>",
        "<th>documents</th><td>report &amp; more.pdf<br>notes.txt</td>",
        "<th>policy</th><td><code>adaptive:coverage=0.9</code></td>",
        "<th>request</th><td>r&lt;1&gt;</td>", "<th>date</th><td>2026-03-01 10:00:00 UTC</td>",
        "<th>server</th><td>annulusd 0.1.0</td>"}) {
    EXPECT_THAT(page, HasSubstr(fact));
  }
  ExplainedRun run = ExamplePage();
  run.subject = {.documents = std::vector<std::string>(23, "a.txt")};
  EXPECT_THAT(ExplainPage(run).value(),
              AllOf(HasSubstr("a.txt<br>and 3 more</td>"), Not(HasSubstr("<th>model"))));
}

// Colours run from the smallest to the largest value, and say which those are.
TEST(ExplainPage, ScalesItsColoursToWhatIsThere) {
  ExplainedRun run = ExamplePage();
  std::string page = ExplainPage(run).value();
  EXPECT_THAT(page, HasSubstr("<p class=\"legend\">0.125 <i"));
  EXPECT_THAT(page, HasSubstr("</i> 0.25</p>"));
  EXPECT_THAT(page, HasSubstr("fill=\"#0a3470\"><title>layer 1, head 0: 0.25<"));
  EXPECT_THAT(page, HasSubstr("fill=\"#b0d0f2\"><title>layer 1, head 1: 0.125<"));
  EXPECT_THAT(page, HasSubstr(" all 0.875 &ensp; "));  // coverage, of one head alone
  EXPECT_THAT(page, HasSubstr("<title>layer 1, head 1: not known<"));
  EXPECT_THAT(page, HasSubstr("above 0% to 100% of a cell"));
  for (v1::AttentionDetail& detail :
       *run.answer.completion.mutable_attention()->mutable_details()) {
    detail.set_map(std::string("\x0a\0\x05\x14", 4));
  }
  EXPECT_THAT(ExplainPage(run).value(), HasSubstr("above 0% to 7.8% of a cell"));
}

TEST(ExplainPage, TellsWhatWasNotComputedFromWhatWasLeftOut) {
  ExplainedRun run = ExamplePage();
  EXPECT_THAT(ExplainPage(run).value(),
              HasSubstr("not computed by this request: reused or not needed"));
  auto& details = *run.answer.completion.mutable_attention()->mutable_details();
  details[0].set_computed("\x01\xff");
  EXPECT_THAT(ExplainPage(run).value(), Not(HasSubstr("not computed")));
  details[0].set_computed("abc");
  EXPECT_THAT(std::string(ExplainPage(run).status().message()),
              HasSubstr("a map of 2 rows with 3 marks"));
}

TEST(ExplainPage, MapsHaveAxesInTokens) {
  const std::string page = ExplainPage(ExamplePage()).value();
  EXPECT_EQ(Count(page, ">queries (tokens)<"), 2u);
  EXPECT_EQ(Count(page, ">keys (tokens)<"), 2u);
  EXPECT_EQ(Count(page, ">40,000<"), 4u);
}

// A phone's width: no fixed widths but inside of what scrolls, and rules for narrow screens and for
// paper.
TEST(ExplainPage, FitsNarrowScreensAndPaper) {
  const std::string page = ExplainPage(ExamplePage()).value();
  EXPECT_THAT(page, AllOf(HasSubstr("width=device-width,initial-scale=1"),
                          HasSubstr("@media(max-width:520px)"), HasSubstr("@media print"),
                          HasSubstr("print-color-adjust:exact")));
  EXPECT_EQ(Count(page, "<table>"), Count(page, "<div class=\"scroll\"><table>"));
  EXPECT_EQ(Count(page, "<svg class=\"heat\""),
            Count(page, "<div class=\"scroll\"><svg class=\"heat\""));
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

TEST(ExplainPage, HeadsWithEqualMapsShareOne) {
  ExplainedRun run = ExamplePage();
  v1::AttentionReport& report = *run.answer.completion.mutable_attention();
  v1::AttentionDetail detail = report.details(1);
  for (const auto& [layer, head] : {std::pair(1, 2), std::pair(2, 1), std::pair(2, 2)}) {
    detail.set_layer(layer);
    detail.set_kv_head(head);
    detail.set_sampled_coverage(layer == 1 ? 0.75 : 0.5);
    *report.add_details() = detail;
  }
  const std::string page = ExplainPage(run).value();
  EXPECT_EQ(Count(page, "href=\"data:image/png;base64,iVBORw0KGgo"), 2u);
  EXPECT_THAT(page,
              HasSubstr("layers 1 to 2, heads 1 to 2<br>density 0.125, coverage 0.5 to 0.75"));
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
    EXPECT_THAT(std::string(ExplainPage(run).status().message()),
                HasSubstr("allowed are 0 to 65535"));
  }
}

}  // namespace
}  // namespace annulus::client
