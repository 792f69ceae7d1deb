#include "client/format/progress.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/format/units.h"

namespace annulus {
namespace {

constexpr std::chrono::milliseconds kBarInterval{100};
constexpr std::chrono::seconds kLineInterval{5};
// Columns kept for the numbers, so that the bar does not change its width while they do.
constexpr int kNumberColumns = 72;
constexpr int kShortestBar = 8;
constexpr int kLongestBar = 40;
constexpr char kClearLine[] = "\r\x1b[K";

std::string Amount(const ProgressSample& sample) {
  const bool tokens = sample.unit == ProgressSample::Unit::kTokens;
  const bool bytes = sample.unit == ProgressSample::Unit::kBytes;
  const auto format = bytes ? &FormatBytes : &FormatCount;
  const std::string total = sample.total ? absl::StrCat("/", format(*sample.total)) : "";
  return absl::StrCat(format(sample.done), total, tokens ? " tokens" : "");
}

std::string Rate(const ProgressSample& sample, double per_second) {
  if (sample.elapsed <= 0 || sample.unit == ProgressSample::Unit::kItems) return "";
  return sample.unit == ProgressSample::Unit::kTokens
             ? absl::StrCat("  ", FormatRate(per_second), " tok/s")
             : absl::StrCat("  ", FormatBytes(std::llround(std::min(per_second, 1e18))), "/s");
}

}  // namespace

std::string ProgressLine(const ProgressSample& sample, int columns) {
  const int64_t worked = std::max<int64_t>(0, sample.done - sample.cached);
  const double per_second = static_cast<double>(worked) / std::max(sample.elapsed, 1e-9);
  std::string numbers = absl::StrCat(Amount(sample), Rate(sample, per_second));
  if (sample.cached > 0) {
    absl::StrAppend(&numbers, "  ", FormatCount(sample.cached),
                    sample.unit == ProgressSample::Unit::kItems ? " from before" : " cached");
  }
  const std::string head = absl::StrFormat("%-11s", sample.phase);
  if (!sample.total.has_value() || *sample.total <= 0) return absl::StrCat(head, numbers);

  const int64_t left = std::max<int64_t>(0, *sample.total - sample.done);
  const double fraction =
      std::clamp(static_cast<double>(sample.done) / static_cast<double>(*sample.total), 0.0, 1.0);
  std::string eta;
  if (left > 0 && (sample.eta.has_value() || (worked > 0 && sample.elapsed > 0))) {
    eta = absl::StrCat("  ETA ",
                       FormatDuration(sample.eta.value_or(static_cast<double>(left) / per_second)));
  }
  const std::string percent = absl::StrFormat("%3d%%", static_cast<int>(fraction * 100));
  const int width = std::clamp(columns - kNumberColumns, kShortestBar, kLongestBar);
  const int filled = static_cast<int>(fraction * width);
  const std::string bar =
      absl::StrCat("[", std::string(filled, '#'), std::string(width - filled, '-'), "]  ");
  const std::string whole = absl::StrCat(head, percent, "  ", numbers, eta);
  if (columns <= 0) return whole;
  // The last column stays empty, because some terminals wrap when it is written.
  const auto fits = [&](const std::string& line) {
    return static_cast<int>(line.size()) < columns;
  };
  for (const std::string& line : {absl::StrCat(head, bar, percent, "  ", numbers, eta), whole,
                                  absl::StrCat(head, percent, "  ", Amount(sample), eta)}) {
    if (fits(line)) return line;
  }
  return absl::StrCat(head, percent, eta);
}

ProgressDisplay::ProgressDisplay(std::ostream& out, Mode mode, int columns, Clock clock)
    : out_(out), mode_(mode), columns_(columns), clock_(std::move(clock)) {}

void ProgressDisplay::Show(const ProgressSample& sample) {
  if (mode_ == Mode::kNone) return;
  // Lines in a log are not cut to a terminal's width and need no bar.
  const int columns = mode_ == Mode::kBar ? columns_ : 0;
  Draw(sample.phase, ProgressLine(sample, columns), sample.total == sample.done);
}

void ProgressDisplay::Note(absl::string_view remark) {
  if (mode_ != Mode::kNone) Draw("note", std::string(remark), /*finished=*/false);
}

void ProgressDisplay::Draw(absl::string_view phase, const std::string& line, bool finished) {
  const auto now = clock_();
  const bool is_bar = mode_ == Mode::kBar;
  if (phase != phase_) {
    phase_ = std::string(phase);
    last_ = now;
    shown_ = false;
  }
  const bool first_of_bar = is_bar && !shown_;
  const bool last_of_phase = finished && (is_bar || shown_);
  const bool due = is_bar ? now - last_ >= kBarInterval : now - last_ >= kLineInterval;
  if (!first_of_bar && !last_of_phase && !due) return;
  last_ = now;
  shown_ = true;
  bar_visible_ = is_bar;
  if (is_bar) {
    // A line that wraps could not be redrawn.
    out_ << kClearLine << line.substr(0, static_cast<size_t>(std::max(1, columns_ - 1)));
  } else {
    out_ << line << '\n';
  }
  out_ << std::flush;
}

void ProgressDisplay::Clear() {
  if (bar_visible_) out_ << kClearLine << std::flush;
  bar_visible_ = false;
}

}  // namespace annulus
