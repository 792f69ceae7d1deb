#include "bench/report/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <iostream>

namespace annulus::bench {
namespace {

constexpr int kDefaultColumns = 80;

bool IsTerminal(const std::ostream& err) {
  return &err == &std::cerr && isatty(STDERR_FILENO) == 1;
}

int ColumnsOf() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col
                                                                         : kDefaultColumns;
}

}  // namespace

client::ProgressDisplay MakeDisplay(std::ostream& err) {
  return client::ProgressDisplay(
      err,
      IsTerminal(err) ? client::ProgressDisplay::Mode::kBar : client::ProgressDisplay::Mode::kLines,
      ColumnsOf);
}

BenchProgress::BenchProgress(std::ostream& err)
    : display_(MakeDisplay(err)), start_(std::chrono::steady_clock::now()) {}

void BenchProgress::Plan(const Work& work) {
  total_.tokens += work.tokens;
  total_.operations += work.operations;
}

void BenchProgress::Done(const Work& work) {
  done_.tokens += work.tokens;
  done_.operations += work.operations;
  Show({});
}

void BenchProgress::Show(const Work& work) {
  client::ProgressSample sample;
  sample.phase = "Measuring";
  sample.done = done_.tokens + work.tokens;
  sample.total = total_.tokens;
  sample.elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const double operations = done_.operations + work.operations;
  if (operations > 0) {
    sample.eta = sample.elapsed * (total_.operations - operations) / operations;
  }
  display_.Show(sample);
}

}  // namespace annulus::bench
