#ifndef ANNULUS_SERVER_LOG_WRITER_H_
#define ANNULUS_SERVER_LOG_WRITER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace annulus {

// Writes lines to a descriptor from a thread of its own, in order. Whoever posts a line never waits
// for the descriptor: a pipe that nobody reads costs lines, which are counted, and nothing else.
// Thread-safe.
class LogWriter {
 public:
  static constexpr size_t kMostQueuedBytes = size_t{1} << 20;
  static constexpr std::chrono::milliseconds kLongestFarewell{500};

  // `descriptor` must stay open. After lines were dropped because too many wait, `gap_line` gives
  // the line that says how many; it stands where they are missing.
  LogWriter(int descriptor, std::function<std::string(uint64_t dropped)> gap_line);
  // Waits for what is queued, but not longer than kLongestFarewell. A write that still hangs then
  // is left to itself: it ends with the process, or when somebody reads.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // Drops the line where the ones that wait hold kMostQueuedBytes.
  void Post(std::string line);

  // Blocks until everything posted so far is written or lost, at most `limit`. True if so.
  bool Flush(std::chrono::milliseconds limit);

  // Lines that were dropped, or that the descriptor refused.
  uint64_t dropped() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_LOG_WRITER_H_
