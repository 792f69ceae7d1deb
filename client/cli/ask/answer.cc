#include "client/cli/ask/answer.h"

#include <chrono>
#include <fstream>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/ask/evidence_page.h"
#include "client/cli/ask/evidence_text.h"
#include "client/cli/ask/logprobs.h"
#include "client/cli/chat/message_json.h"
#include "client/cli/outputs.h"
#include "client/draw/explain_page.h"
#include "client/format/json.h"
#include "client/format/text.h"
#include "client/format/units.h"

namespace annulus::client {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

std::string FinishReasonText(const Generation& generation, bool interrupted) {
  if (!generation.completion.has_value()) return interrupted ? "cancelled" : "error";
  return EnumText(*v1::FinishReason_descriptor(), generation.completion->finish_reason());
}

int64_t ComputedTokens(const v1::Usage& usage) {
  return usage.prompt_tokens() - usage.cached_tokens();
}

nlohmann::ordered_json UsageJson(const Generation& generation) {
  v1::Usage usage;
  if (generation.completion.has_value()) {
    usage = generation.completion->usage();
  } else {
    usage.set_completion_tokens(static_cast<int64_t>(generation.token_ids.size()));
    if (generation.progress.has_value()) {
      usage.set_prompt_tokens(generation.progress->total());
      usage.set_cached_tokens(generation.progress->cached());
    }
  }
  nlohmann::ordered_json members = MessageJson(usage, AbsentField::kNull);
  if (generation.completion.has_value()) {
    InsertAfter("checked_position", "computed_tokens", ComputedTokens(usage), members);
  }
  // Most servers bring nothing back and guess nothing: these members are there if they say
  // something.
  if (!usage.has_checked_position()) members.erase("checked_position");
  if (usage.restored_tokens() == 0) members.erase("restored_tokens");
  if (usage.host_tokens() == 0) members.erase("host_tokens");
  if (usage.drafted_tokens() == 0) {
    members.erase("drafted_tokens");
    members.erase("accepted_tokens");
  }
  return members;
}

nlohmann::ordered_json AttentionJson(const v1::AttentionReport& attention) {
  v1::AttentionReport report = attention;
  report.clear_details();  // maps for the page of `attention explain`
  nlohmann::ordered_json members = MessageJson(report);
  members.erase("details");
  if (report.choice().empty()) members.erase("choice");
  if (report.layer_steps() > 0) return members;
  // Every layer attended everything.
  for (const char* member :
       {"layer_steps", "layers_raised", "layers_dense", "contract_met", "estimate_seconds",
        "attend_seconds", "estimate_wall_seconds", "attend_wall_seconds"}) {
    members.erase(member);
  }
  return members;
}

nlohmann::ordered_json OriginJson(const v1::Origin& origin) {
  nlohmann::ordered_json members = MessageJson(origin);
  if (origin.digest().empty()) members.erase("digest");
  if (!origin.system_folded()) members.erase("system_folded");
  return members;
}

void WriteLogprobs(absl::string_view key, const std::vector<v1::TokenLogprob>& logprobs,
                   JsonWriter& json) {
  if (logprobs.empty()) return;
  json.Key(key).BeginArray();
  for (const v1::TokenLogprob& token : logprobs) WriteJson(MessageJson(token), json);
  json.EndArray();
}

// Prints the answer as it arrives and shows progress before and between.
class LiveAnswer : public GenerationObserver {
 public:
  // `prints`: whether to write the text to standard output.
  LiveAnswer(Session& session, bool prints, bool json_lines)
      : session_(session), prints_(prints), json_lines_(json_lines) {}

  void OnQueued(const v1::Queued& queued) override {
    if (json_lines_) PrintEvent("queued", MessageJson(queued));
    ShowWaiting(session_, queued);
  }

  void OnProgress(const v1::PromptProgress& progress) override {
    if (json_lines_) PrintEvent("progress", MessageJson(progress));
    ShowReading(session_, progress);
    decode_start_ = std::chrono::steady_clock::now();
  }

  void OnDelta(const v1::Delta& delta) override {
    tokens_ += delta.token_ids_size();
    if (json_lines_) PrintDelta(delta);
    if (prints_) PrintText(notes_.Mark(delta));
    if (!SharesTerminal()) ShowRate();
  }

  const EvidenceNotes& notes() const { return notes_; }

  // Ends the last printed line. A complete answer gets a line even if it is empty.
  void EndLine(bool complete) {
    session_.progress().Clear();
    if (prints_) session_.Print(wrap_.Finish());
    if (!prints_ || ends_in_newline_.value_or(!complete)) return;
    session_.Print("\n");
  }

 private:
  // Progress and answer on one terminal would garble each other.
  bool SharesTerminal() { return session_.console().out_is_terminal && (prints_ || json_lines_); }

  void PrintEvent(absl::string_view event, const nlohmann::ordered_json& members) {
    JsonWriter json;
    json.BeginObject().Key("event").String(event);
    WriteMembers(members, json);
    session_.progress().Clear();
    session_.Print(absl::StrCat(json.EndObject().text(), "\n"));
  }

  void PrintDelta(const v1::Delta& delta) {
    nlohmann::ordered_json members = MessageJson(delta);
    // What is asked for only now and then is there if it says something.
    if (delta.logprobs_size() == 0) members.erase("logprobs");
    if (delta.reasoning().empty()) members.erase("reasoning");
    if (delta.tool_calls_size() == 0) members.erase("tool_calls");
    if (delta.prompt_logprobs_size() == 0) members.erase("prompt_logprobs");
    if (delta.evidence_size() == 0) members.erase("evidence");
    PrintEvent("delta", members);
  }

  void PrintText(const std::string& text) {
    if (text.empty()) return;
    if (SharesTerminal()) session_.progress().Clear();
    const Console& console = session_.console();
    session_.Print(console.out_is_terminal ? wrap_.Add(text, console.columns()) : text);
    ends_in_newline_ = text.back() == '\n';
  }

  void ShowRate() {
    const SteadyTime now = std::chrono::steady_clock::now();
    if (!decode_start_.has_value()) decode_start_ = now;
    ProgressSample sample;
    sample.phase = "Answering";
    sample.done = tokens_;
    sample.elapsed = std::chrono::duration<double>(now - *decode_start_).count();
    session_.progress().Show(sample);
  }

  Session& session_;
  const bool prints_;
  const bool json_lines_;
  WordWrap wrap_;  // on a terminal
  EvidenceNotes notes_;
  int64_t tokens_ = 0;
  std::optional<SteadyTime> decode_start_;  // time of the last prompt progress, or first delta
  std::optional<bool> ends_in_newline_;     // nullopt: nothing printed yet
};

// The line about coverage; empty if every layer attended everything.
std::string CoverageText(const v1::AttentionReport& attention) {
  if (attention.layer_steps() == 0) return "";
  std::string text;
  if (attention.has_sampled_coverage()) {
    const v1::SampledCoverage& sampled = attention.sampled_coverage();
    absl::StrAppendFormat(&text, "coverage   %.3g of %s sampled rows, lowest %.3g of a layer",
                          sampled.mean(), FormatCount(sampled.rows()), sampled.minimum());
  } else {
    text = "coverage   no row was sampled";
  }
  if (attention.has_estimated_coverage()) {
    absl::StrAppendFormat(&text, ", estimated %.3g", attention.estimated_coverage());
  }
  if (attention.has_inherited_coverage()) {
    absl::StrAppendFormat(&text, ", inherited %.3g", attention.inherited_coverage());
  }
  return absl::StrCat(text, "; of ", FormatCount(attention.layer_steps()), " layers and steps ",
                      FormatCount(attention.layers_raised()), " raised, ",
                      FormatCount(attention.layers_dense()), " dense; ",
                      !HasContract(attention)    ? "no contract"
                      : attention.contract_met() ? "contract met"
                                                 : "contract NOT MET",
                      "\n");
}

std::string RestoredText(const v1::Usage& usage) {
  const int64_t host = usage.host_tokens();
  const int64_t disk = usage.restored_tokens() - host;
  if (host + disk <= 0) return "";
  const std::string all = absl::StrCat(", ", FormatCount(host + disk), " of them restored");
  if (host == 0) return absl::StrCat(all, " from disk");
  if (disk == 0) return absl::StrCat(all, " from host memory");
  return absl::StrCat(all, ": ", FormatCount(host), " from host memory, ", FormatCount(disk),
                      " from disk");
}

std::string ReuseText(const v1::Usage& usage) {
  const std::string why = usage.has_cache_miss() ? MissText(usage.cache_miss()) : "";
  return why.empty() ? "" : absl::StrCat("reuse      ", why, "\n");
}

// What stands below an answer with evidence: the passages, or that there are none.
void PrintPassages(Session& session, const EvidenceNotes& notes, const AnswerOptions& options) {
  const std::string lines = notes.Lines(options.titles);
  if (!lines.empty()) {
    session.Print("\n");
    session.PrintWrapped(lines, kNotesIndent);
    return;
  }
  session.Warn(
      "no passage of the documents stands out in the model's attention; the answer may rest on "
      "many of them, or on none");
}

// What a file gets: the answer, and below it its passages if it has any.
std::string TextWithPassages(const Generation& generation, const AnswerOptions& options) {
  if (!generation.completion.has_value()) return generation.text;
  EvidenceNotes notes;
  const std::string text = MarkAll(generation.text, generation.completion->evidence(), notes);
  const std::string lines = notes.Lines(options.titles);
  if (lines.empty()) return text;
  return absl::StrCat(text, absl::EndsWith(text, "\n") ? "\n" : "\n\n", lines);
}

// The line about gaps between tokens; empty for older servers, which do not report them.
std::string GapText(const v1::Timings& timings) {
  if (timings.longest_gap() <= 0) return "";
  const std::string stalls =
      timings.stalls() == 0
          ? "none"
          : absl::StrCat(FormatCount(timings.stalls()), timings.stalls() == 1 ? " gap" : " gaps");
  const std::string preempted =
      timings.preemptions() == 0
          ? ""
          : absl::StrCat("; gave its memory to others ", FormatCount(timings.preemptions()),
                         timings.preemptions() == 1 ? " time" : " times");
  return absl::StrCat("gaps       longest ", FormatDuration(timings.longest_gap()),
                      " between two tokens, ", stalls, " over the server's stall budget", preempted,
                      "\n");
}

}  // namespace

std::string MissText(const v1::CacheMiss& miss) {
  const std::string at = FormatCount(miss.position());
  switch (miss.reason()) {
    case v1::CacheMiss::REASON_OTHER_TOKENS:
      return absl::StrCat("ends: the most similar cached prompt differs at token ", at);
    case v1::CacheMiss::REASON_EVICTED:
      return absl::StrCat("ends: the cached part from token ", at, " on was evicted");
    case v1::CacheMiss::REASON_OTHER_ATTENTION:
      return absl::StrCat("ends: from token ", at, " on it is cached for another attention policy");
    case v1::CacheMiss::REASON_OTHER_MODEL:
      return absl::StrCat("ends: from token ", at,
                          " on it is on disk for another model, build or number format");
    case v1::CacheMiss::REASON_UNSPECIFIED:
      return absl::StrCat("ends at token ", at,
                          " (the server tells why only to callers with a token or certificate)");
    case v1::CacheMiss::REASON_IGNORED:
      return "none: the request asked to compute the whole prompt";
    case v1::CacheMiss::REASON_DISK_SLOWER:
      return absl::StrCat("ends: from token ", at,
                          " on, computing is faster than reading it from the cache");
    case v1::CacheMiss::REASON_DISK_REFUSED:
      return absl::StrCat("ends: from token ", at,
                          " on, cached pages failed a checksum or differed from recomputed ones");
    default:
      return "";
  }
}

void ShowWaiting(Session& session, const v1::Queued& queued) {
  session.progress().Note(
      absl::StrCat("Waiting    ", FormatCount(queued.position()), " requests ahead"));
}

void ShowReading(Session& session, const v1::PromptProgress& progress) {
  ProgressSample sample;
  sample.phase = "Reading";
  sample.done = progress.processed();
  sample.total = progress.total();
  sample.cached = progress.cached();
  sample.elapsed = progress.elapsed();
  sample.eta = progress.eta();
  session.progress().Show(sample);
}

std::string AnswerJson(const Generation& generation, bool interrupted,
                       const AnswerOptions& options) {
  JsonWriter json;
  json.BeginObject();
  json.Key("text").String(generation.text);
  json.Key("token_ids").BeginArray();
  for (const int32_t id : generation.token_ids) json.Int(id);
  json.EndArray();
  json.Key("finish_reason").String(FinishReasonText(generation, interrupted));
  if (!generation.status.ok()) {
    json.Key("error");
    WriteFailure(generation.status, json);
  }
  WriteJson(UsageJson(generation), json.Key("usage"));
  json.Key("timings");
  if (generation.completion.has_value()) {
    WriteJson(MessageJson(generation.completion->timings()), json);
    WriteJson(AttentionJson(generation.completion->attention()), json.Key("attention"));
    if (generation.completion->has_evidence()) {
      WriteJson(MessageJson(generation.completion->evidence()), json.Key("evidence"));
    }
    const std::string& rope = generation.completion->rope_factors();
    if (!rope.empty()) json.Key("rope_factors").String(rope);
    if (generation.completion->has_origin()) {  // absent from older servers
      WriteJson(OriginJson(generation.completion->origin()), json.Key("origin"));
    }
  } else {
    json.Null().Key("attention").Null();
  }
  WriteLogprobs("prompt_logprobs", generation.prompt_logprobs, json);
  WriteLogprobs("logprobs", generation.logprobs, json);
  if (options.more_members) options.more_members(generation.text, json);
  json.EndObject();
  return json.text();
}

std::string OriginText(const v1::Origin& origin) {
  return absl::StrCat("origin     seed ", origin.seed(), ", kernels ", origin.kernels(),
                      origin.digest().empty() ? "" : ", digest ", origin.digest(),
                      origin.system_folded()
                          ? "\n           the template refuses a system message: the server put it "
                            "in front of the question\n"
                          : "\n");
}

std::string TimingsText(const v1::Completion& completion) {
  const v1::Usage& usage = completion.usage();
  const v1::Timings& timings = completion.timings();
  const v1::AttentionReport& attention = completion.attention();
  const auto rate = [](int64_t tokens, double seconds) {
    if (tokens <= 0 || seconds <= 0) return std::string();
    return absl::StrCat(" (", FormatRate(static_cast<double>(tokens) / seconds), " tok/s)");
  };
  return absl::StrCat(
      "tokens     prompt ", FormatCount(usage.prompt_tokens()), " (",
      FormatCount(usage.cached_tokens()), " reused", RestoredText(usage), "; ",
      FormatCount(ComputedTokens(usage)), " computed), answer ",  //
      FormatCount(usage.completion_tokens()),
      usage.drafted_tokens() > 0
          ? absl::StrCat(" (", FormatCount(usage.accepted_tokens()), " of ",
                         FormatCount(usage.drafted_tokens()), " guesses right)")
          : "",
      "\n", ReuseText(usage),                                                                   //
      "time       first token ", FormatDuration(timings.time_to_first_token()), ", queue ",     //
      FormatDuration(timings.queue()), ", prefill ", FormatDuration(timings.prefill()),         //
      rate(ComputedTokens(usage), timings.prefill()), ", decode ",                              //
      FormatDuration(timings.decode()), rate(usage.completion_tokens() - 1, timings.decode()),  //
      ", total ", FormatDuration(timings.total()), "\n",                                        //
      "steps      waiting in the ring ", FormatDuration(timings.ring_wait()),                   //
      ", planning and processing results ", FormatDuration(timings.host()), "\n",               //
      GapText(timings), "attention  ", attention.policy(), ", density ",
      absl::StrFormat("%.3g", attention.density()), ", ring of ", attention.ring_degree(),
      ", steps ", FormatCount(attention.steps_pass_kv()), " pass-KV and ",
      FormatCount(attention.steps_pass_q()), " pass-Q\n",
      completion.rope_factors().empty() ? ""
                                        : absl::StrCat("rope       ", completion.rope_factors(),
                                                       " factors, by the prompt length\n"),
      attention.choice().empty() ? "" : absl::StrCat("           ", attention.choice(), "\n"),
      CoverageText(attention), completion.has_origin() ? OriginText(completion.origin()) : "");
}

int Answer(Session& session, const v1::GenerationSpec& spec, const AnswerOptions& options,
           std::string* text) {
  const bool json = session.options().json || options.json_lines;
  // Check now that the file can be written, before the answer costs anything.
  if (!options.output.empty() && !std::ofstream(options.output, std::ios::app)) {
    return session.CannotWrite(options.output);
  }
  LiveAnswer live(session, /*prints=*/!json && options.output.empty(), options.json_lines);
  const Generation generation = StreamGenerate(session.connection(), spec, live);
  live.EndLine(generation.status.ok());
  if (spec.evidence() && !json && options.output.empty() && generation.status.ok()) {
    if (generation.completion->has_evidence()) {
      PrintPassages(session, live.notes(), options);
    } else {
      session.Warn("this server is too old to name passages; the answer has none");
    }
  }
  if (text != nullptr) *text = generation.text;
  const bool anything =
      generation.status.ok() || !generation.token_ids.empty() || options.json_lines;
  if (anything && (json || !options.output.empty())) {
    std::string all = json ? AnswerJson(generation, session.interrupted(), options)
                      : WantsPage(spec, options) ? EvidencePage(generation, options)
                                                 : TextWithPassages(generation, options);
    if (options.json_lines) all.replace(0, 1, "{\"event\":\"end\",");
    const bool ended = absl::EndsWith(all, "\n");
    const int written = WriteOutput(session, options.output, absl::StrCat(all, ended ? "" : "\n"));
    if (written != 0) return written;
  }
  if (!generation.status.ok()) return session.CallFailed(generation.status, /*told=*/anything);
  const bool cut = generation.completion->finish_reason() == v1::FINISH_REASON_LENGTH;
  if (cut && (spec.has_output() || !spec.sampling().has_max_tokens())) {
    session.Warn(absl::StrCat("the answer was cut off after ", generation.token_ids.size(),
                              " tokens", spec.has_output() ? ", so it is incomplete" : "",
                              "; --max-tokens allows more"));
  }
  if (generation.completion->output_below_min_tokens()) {
    session.Warn(absl::StrCat("the output constraint allowed only ", generation.token_ids.size(),
                              " tokens, fewer than --min-tokens"));
  }
  if (!json) {
    const Console& console = session.console();
    const int columns = console.err_is_terminal ? console.columns() : 0;
    session.Remark(LogprobsTable(generation.prompt_logprobs, columns), /*indent=*/0);
    session.Remark(LogprobsTable(generation.logprobs, columns), /*indent=*/0);
  }
  if (options.timings) session.Remark(TimingsText(*generation.completion), kTimingsIndent);
  return session.Finish();
}

}  // namespace annulus::client
