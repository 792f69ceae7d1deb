#ifndef ANNULUS_CLIENT_FORMAT_PROGRESS_H_
#define ANNULUS_CLIENT_FORMAT_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>

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
  std::optional<double> eta;     // seconds to the end; absent: estimated from the rate
};

// One line without a newline, without a bar where `columns` is 0:
//   "Reading    [#######-------]  50%  32,768/65,536 tokens  5,244 tok/s  ETA 6.20 s".
// Where it does not fit in `columns` the bar goes first, then the rate, then the amount: how far it
// is and when it ends are seen on any terminal.
std::string ProgressLine(const ProgressSample& sample, int columns);

// Draws progress on a stream. Not thread-safe.
class ProgressDisplay {
 public:
  enum class Mode {
    kNone,
    kLines,  // a line now and then, for logs
    kBar,    // one line that is redrawn, for terminals
  };
  using Clock = std::function<std::chrono::steady_clock::time_point()>;

  ProgressDisplay(std::ostream& out, Mode mode, int columns,
                  Clock clock = &std::chrono::steady_clock::now);
  ~ProgressDisplay() { Clear(); }
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  // Shows `sample` unless the last one of its phase was shown a moment ago. A finished phase
  // (done == total) is shown always as a bar, and as a line if a line of it was shown before.
  void Show(const ProgressSample& sample);

  // Shows a short remark in place of the bar, with the same restraint.
  void Note(absl::string_view remark);

  // Takes the bar away, so that something else can be written.
  void Clear();

 private:
  void Draw(absl::string_view phase, const std::string& line, bool finished);

  std::ostream& out_;
  const Mode mode_;
  const int columns_;
  const Clock clock_;
  std::string phase_;
  std::chrono::steady_clock::time_point last_;  // when the phase began or was shown last
  bool shown_ = false;                          // anything of this phase
  bool bar_visible_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_FORMAT_PROGRESS_H_
