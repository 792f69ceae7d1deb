#include "tests/integration/ring_faults/orders.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <sstream>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace annulus::testing {

Orders& Orders::Get() {
  static auto* const orders = new Orders(std::getenv("FAULT_ORDERS"));
  return *orders;
}

// Opened for writing too, so that it never ends.
Orders::Orders(const char* path) {
  if (path == nullptr) return;
  const int descriptor = open(path, O_RDWR | O_CLOEXEC);
  ANNULUS_CHECK(descriptor >= 0) << "no FIFO is at " << path;
  std::thread([this, descriptor] { Read(descriptor); }).detach();
}

void Orders::Read(int descriptor) {
  std::string line;
  for (char byte = 0; read(descriptor, &byte, 1) == 1;) {
    if (byte != '\n') {
      line += byte;
      continue;
    }
    Take(line);
    line.clear();
  }
}

void Orders::Take(const std::string& line) {
  std::istringstream words(line);
  std::string verb;
  int serial = 0;
  words >> verb >> serial;
  std::lock_guard lock(mutex_);
  if (verb == "go") {
    gone_ = serial;
    return changed_.notify_all();
  }
  if (verb == "tell") return Say(absl::StrCat("fault ", serial, " told"));
  if (verb == "flip") {
    flip_ = serial;
  } else {
    ANNULUS_CHECK(verb == "stop") << "no order is called " << line;
    stop_.emplace().serial = serial;
    words >> stop_->moment >> stop_->count;
  }
  Say(absl::StrCat("fault ", serial, " armed"));
}

void Orders::Pass(Moment moment) {
  std::unique_lock lock(mutex_);
  if (!stop_.has_value() || stop_->moment != kMomentNames[static_cast<int>(moment)]) return;
  if (--stop_->count > 0) return;
  const int serial = stop_->serial;
  stop_.reset();
  Say(absl::StrCat("fault ", serial, " reached"));
  changed_.wait_for(lock, std::chrono::minutes(2), [&] { return gone_ >= serial; });
}

std::optional<int> Orders::TakeFlip() {
  std::lock_guard lock(mutex_);
  return std::exchange(flip_, std::nullopt);
}

void Orders::Say(const std::string& line) {
  const std::string bytes = line + "\n";
  ANNULUS_CHECK(write(STDOUT_FILENO, bytes.data(), bytes.size()) ==
                static_cast<ssize_t>(bytes.size()))
      << "nobody reads the output";
}

}  // namespace annulus::testing
