#ifndef ANNULUS_CLIENT_FORMAT_PROGRESS_H_
#define ANNULUS_CLIENT_FORMAT_PROGRESS_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <thread>

#include "absl/strings/string_view.h"

namespace annulus {

// One reading of something that goes on.
struct ProgressSample {
  enum class Unit { kTokens, kBytes, kItems };
  std::string phase;  // "Reading"; a change of phase begins a new line
  Unit unit = Unit::kTokens;
  int64_t done = 0;
  std::optional<int64_t> total;  // absent where the end is not known
  int64_t cached = 0;            // of `done`, what cost nothing
  double elapsed = 0;            // seconds since the phase began
  std::optional<double> eta;     // seconds to the end; absent: estimated from the rate; 0: overdue
};

// One line without a newline, without a bar where `columns` is 0:
//   "Reading    [#######-------]  50%  32,768/65,536 tokens  5,244 tok/s  ETA 6.20 s".
// Where it does not fit in `columns` the bar goes first, then the rate, then the amount: how far it
// is and when it ends are seen on any terminal.
std::string ProgressLine(const ProgressSample& sample, int columns);

// Draws progress on a stream. Thread-safe; whoever writes on the same stream calls Clear before.
class ProgressDisplay {
 public:
  enum class Mode {
    kNone,
    kLines,  // a line now and then, for logs
    kBar,    // one line that is redrawn, for terminals
  };
  using Clock = std::function<std::chrono::steady_clock::time_point()>;
  // Of the terminal: asked before a bar is drawn, since windows change their size.
  using Columns = std::function<int()>;

  ProgressDisplay(std::ostream& out, Mode mode, Columns columns,
                  Clock clock = &std::chrono::steady_clock::now);
  ~ProgressDisplay() { Clear(); }
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  Mode mode() const { return mode_; }

  // Shows `sample` unless the last one of its phase was shown a moment ago. A finished phase
  // (done == total) is shown always as a bar, and as a line if a line of it was shown before.
  void Show(const ProgressSample& sample);

  // Shows a short remark in place of the bar, with the same restraint.
  void Note(absl::string_view remark);

  // Takes the bar away, so that something else can be written.
  void Clear();

  // Brings a visible bar up to date if a second has passed or the window has another size: nothing
  // may be heard for long while a prompt is read. No-op without one.
  void Tick();

 private:
  using Time = std::chrono::steady_clock::time_point;
  // What was shown last, as of `now`.
  struct Shown {
    std::optional<ProgressSample> sample;  // absent: a remark
    std::string remark;
    Time heard;  // when it came
  };

  void Draw(absl::string_view phase, Shown shown, bool finished);
  void DrawBar(Time now);
  std::string Line(Time now, int columns) const;

  std::ostream& out_;
  const Mode mode_;
  const Columns columns_;
  const Clock clock_;
  std::mutex mutex_;
  std::string phase_;
  Time began_;  // when the phase did
  Time last_;   // when the phase began or was shown last
  Shown current_;
  int drawn_columns_ = 0;  // that the bar was drawn for
  bool shown_ = false;     // anything of this phase
  bool bar_visible_ = false;
};

// Has a display tick on a thread of its own while it lives.
class ProgressTicker {
 public:
  // `display` must outlive the ticker.
  explicit ProgressTicker(ProgressDisplay& display);

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::jthread thread_;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_FORMAT_PROGRESS_H_
