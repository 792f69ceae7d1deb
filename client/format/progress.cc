#include "client/format/progress.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/format/units.h"

namespace annulus::client {
namespace {

constexpr std::chrono::milliseconds kBarInterval{100};
constexpr std::chrono::seconds kTickInterval{1};
constexpr std::chrono::seconds kLineInterval{5};
constexpr std::chrono::milliseconds kLook{200};  // between two calls of Tick
// Columns reserved for the numbers, so that the bar keeps its width while they grow.
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

int64_t Worked(const ProgressSample& sample) {
  return std::max<int64_t>(0, sample.done - sample.cached);
}

double PerSecond(const ProgressSample& sample) {
  return static_cast<double>(Worked(sample)) / std::max(sample.elapsed, 1e-9);
}

// nullopt if nothing is left, or if there is no estimate yet.
std::optional<double> SecondsLeft(const ProgressSample& sample) {
  if (!sample.total.has_value() || *sample.total <= sample.done) return std::nullopt;
  if (sample.eta.has_value()) return sample.eta;
  if (Worked(sample) == 0 || sample.elapsed <= 0) return std::nullopt;
  return static_cast<double>(*sample.total - sample.done) / PerSecond(sample);
}

// The sample as it looks after `seconds` without news: the ETA counts down, and without a known
// total the elapsed time goes up.
ProgressSample After(ProgressSample sample, double seconds) {
  const std::optional<double> left = SecondsLeft(sample);
  if (left.has_value()) sample.eta = std::max(0.0, *left - seconds);
  if (!sample.total.has_value()) sample.elapsed += seconds;
  return sample;
}

}  // namespace

std::string ProgressLine(const ProgressSample& sample, int columns) {
  std::string numbers = absl::StrCat(Amount(sample), Rate(sample, PerSecond(sample)));
  if (sample.cached > 0) {
    absl::StrAppend(&numbers, "  ", FormatCount(sample.cached),
                    sample.unit == ProgressSample::Unit::kItems ? " from before" : " cached");
  }
  const std::string head = absl::StrFormat("%-10s ", sample.phase);
  if (!sample.total.has_value() || *sample.total <= 0) return absl::StrCat(head, numbers);

  const double fraction =
      std::clamp(static_cast<double>(sample.done) / static_cast<double>(*sample.total), 0.0, 1.0);
  const std::optional<double> seconds_left = SecondsLeft(sample);
  const std::string eta = seconds_left.value_or(0) > 0
                              ? absl::StrCat("  ETA ", FormatDuration(*seconds_left))
                              : std::string();
  const std::string percent = absl::StrFormat("%3d%%", static_cast<int>(fraction * 100));
  const int width = std::clamp(columns - kNumberColumns, kShortestBar, kLongestBar);
  const int filled = static_cast<int>(fraction * width);
  const std::string bar =
      absl::StrCat("[", std::string(filled, '#'), std::string(width - filled, '-'), "]  ");
  const std::string whole = absl::StrCat(head, percent, "  ", numbers, eta);
  if (columns <= 0) return whole;
  // Leaves the last column empty, because some terminals wrap when it is written.
  const auto fits = [&](const std::string& line) {
    return static_cast<int>(line.size()) < columns;
  };
  for (const std::string& line : {absl::StrCat(head, bar, percent, "  ", numbers, eta), whole,
                                  absl::StrCat(head, percent, "  ", Amount(sample), eta)}) {
    if (fits(line)) return line;
  }
  return absl::StrCat(head, percent, eta);
}

ProgressDisplay::ProgressDisplay(std::ostream& out, Mode mode, Columns columns, Clock clock)
    : out_(out), mode_(mode), columns_(std::move(columns)), clock_(std::move(clock)) {}

void ProgressDisplay::Show(const ProgressSample& sample) {
  if (mode_ == Mode::kNone) return;
  const bool finished = sample.total == sample.done;
  Draw(sample.phase, {.sample = sample, .remark = "", .heard = clock_()}, finished);
}

void ProgressDisplay::Note(absl::string_view remark) {
  if (mode_ == Mode::kNone) return;
  Draw("note", {.sample = std::nullopt, .remark = std::string(remark), .heard = clock_()},
       /*finished=*/false);
}

void ProgressDisplay::Draw(absl::string_view phase, Shown shown, bool finished) {
  std::lock_guard lock(mutex_);
  const Time now = shown.heard;
  const bool is_bar = mode_ == Mode::kBar;
  if (phase != phase_) {
    phase_ = std::string(phase);
    began_ = last_ = now;
    shown_ = false;
  }
  current_ = std::move(shown);
  const bool first_of_bar = is_bar && !shown_;
  const bool last_of_phase = finished && (is_bar || shown_);
  const bool due = is_bar ? now - last_ >= kBarInterval : now - last_ >= kLineInterval;
  if (!first_of_bar && !last_of_phase && !due) return;
  shown_ = true;
  if (is_bar) return DrawBar(now);
  last_ = now;
  // Lines in a log are not cut to a terminal's width and need no bar.
  out_ << Line(now, /*columns=*/0) << std::endl;
}

std::string ProgressDisplay::Line(Time now, int columns) const {
  const double silent = std::chrono::duration<double>(now - current_.heard).count();
  if (current_.sample.has_value()) {
    return ProgressLine(After(*current_.sample, silent), columns);
  }
  if (mode_ != Mode::kBar || now - began_ < kTickInterval) return current_.remark;
  const double waited = std::chrono::duration<double>(now - began_).count();
  return absl::StrCat(current_.remark, ", ", FormatDuration(waited));
}

void ProgressDisplay::DrawBar(Time now) {
  last_ = now;
  bar_visible_ = true;
  drawn_columns_ = columns_();
  // Cut to the width: a line that wraps cannot be redrawn.
  out_ << kClearLine
       << Line(now, drawn_columns_).substr(0, static_cast<size_t>(std::max(1, drawn_columns_ - 1)))
       << std::flush;
}

void ProgressDisplay::Clear() {
  std::lock_guard lock(mutex_);
  if (bar_visible_) out_ << kClearLine << std::flush;
  bar_visible_ = false;
}

void ProgressDisplay::Tick() {
  std::lock_guard lock(mutex_);
  const Time now = clock_();
  if (!bar_visible_ || (now - last_ < kTickInterval && columns_() == drawn_columns_)) return;
  DrawBar(now);
}

ProgressTicker::ProgressTicker(ProgressDisplay& display)
    : thread_([this, &display](const std::stop_token& stop) {
        std::unique_lock lock(mutex_);
        while (!stop.stop_requested()) {
          changed_.wait_for(lock, stop, kLook, [] { return false; });
          display.Tick();
        }
      }) {}

}  // namespace annulus::client
