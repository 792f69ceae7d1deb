#ifndef ANNULUS_BENCH_REPORT_PROGRESS_H_
#define ANNULUS_BENCH_REPORT_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <ostream>

#include "client/format/progress.h"

namespace annulus::bench {

// A display suited to `err`: a bar on a terminal, else a line now and then.
client::ProgressDisplay MakeDisplay(std::ostream& err);

// Shows the progress of a whole command on standard error. Estimates the time left from operations
// instead of tokens, because later tokens cost more. Not thread-safe.
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
  // Shows the progress of the command, with `work` of the running part done.
  void Show(const Work& work);
  void Clear() { display_.Clear(); }

 private:
  client::ProgressDisplay display_;
  const std::chrono::steady_clock::time_point start_;
  Work total_;
  Work done_;
};

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_REPORT_PROGRESS_H_
