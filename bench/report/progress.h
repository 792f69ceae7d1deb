#ifndef ANNULUS_BENCH_REPORT_PROGRESS_H_
#define ANNULUS_BENCH_REPORT_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <ostream>

#include "client/format/progress.h"

namespace annulus {

// A display that suits `err`: a bar on a terminal, else a line now and then.
ProgressDisplay MakeDisplay(std::ostream& err);

// Progress of a whole command on standard error. The time left follows from operations, since a
// token costs more the deeper it stands. Not thread-safe.
class BenchProgress {
 public:
  // What a part of the command amounts to.
  struct Work {
    int64_t tokens = 0;
    double operations = 0;
  };

  explicit BenchProgress(std::ostream& err);

  void Plan(const Work& work);  // adds to the total
  void Done(const Work& work);  // a planned part has ended
  // Shows how far the command is, with `work` done of the part that runs.
  void Show(const Work& work);
  void Clear() { display_.Clear(); }

 private:
  ProgressDisplay display_;
  const std::chrono::steady_clock::time_point start_;
  Work total_;
  Work done_;
};

}  // namespace annulus

#endif  // ANNULUS_BENCH_REPORT_PROGRESS_H_
