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

namespace annulus::client {

// One progress report of a running task.
struct ProgressSample {
  enum class Unit { kTokens, kBytes, kItems };
  std::string phase;  // "Reading"; a change of phase begins a new line
  Unit unit = Unit::kTokens;
  int64_t done = 0;
  std::optional<int64_t> total;  // nullopt if unknown
  int64_t cached = 0;            // part of `done` that took no work
  double elapsed = 0;            // seconds since the phase began
  std::optional<double> eta;     // seconds to the end; 0: overdue; nullopt: estimate it
};

// Returns one line, without a newline:
//   "Reading    [#######-------]  50%  32,768/65,536 tokens  5,244 tok/s  ETA 6.20 s".
// If it does not fit in `columns`, leaves out first the bar, then the rate, then the amount, so
// that percentage and ETA are visible on any terminal. With `columns` 0, leaves out the bar only.
std::string ProgressLine(const ProgressSample& sample, int columns);

// Draws progress on a stream. Thread-safe. Call Clear before writing anything else to the stream.
class ProgressDisplay {
 public:
  enum class Mode {
    kNone,
    kLines,  // a new line every few seconds, for logs
    kBar,    // one line that is redrawn in place, for terminals
  };
  using Clock = std::function<std::chrono::steady_clock::time_point()>;
  // Returns the width of the terminal. Called before each drawing, since windows can be resized.
  using Columns = std::function<int()>;

  ProgressDisplay(std::ostream& out, Mode mode, Columns columns,
                  Clock clock = &std::chrono::steady_clock::now);
  ~ProgressDisplay() { Clear(); }
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  Mode mode() const { return mode_; }

  // Shows `sample`, unless the previous one was shown less than 0.1 s ago (kBar) or 5 s ago
  // (kLines). Always shows the end of a phase (done == total) as a bar; as a line only if the phase
  // already has a line.
  void Show(const ProgressSample& sample);

  // Shows a short remark in place of the bar, no more often than Show.
  void Note(absl::string_view remark);

  // Erases the bar, so that other output can be written.
  void Clear();

  // Redraws a visible bar if it is more than a second old or the window was resized, as there may
  // be no new sample for a long time while a prompt is processed. No-op without a visible bar.
  void Tick();

 private:
  using Time = std::chrono::steady_clock::time_point;
  // The latest sample or remark.
  struct Shown {
    std::optional<ProgressSample> sample;  // nullopt: show `remark`
    std::string remark;
    Time heard;  // time of the call
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
  Time began_;  // when the phase began
  Time last_;   // when it was last shown, or else began
  Shown current_;
  int drawn_columns_ = 0;  // terminal width when the bar was drawn
  bool shown_ = false;     // whether this phase was shown at all
  bool bar_visible_ = false;
};

// Owns a thread that calls Tick on a display every 200 ms.
class ProgressTicker {
 public:
  // `display` must outlive the ticker.
  explicit ProgressTicker(ProgressDisplay& display);

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::jthread thread_;
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_FORMAT_PROGRESS_H_
