#ifndef ANNULUS_SERVER_LOG_WRITER_H_
#define ANNULUS_SERVER_LOG_WRITER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace annulus {

// Writes lines to a descriptor, in order, on a thread of its own. Callers never wait for the
// descriptor. If nobody reads the pipe, lines are lost and counted, and nothing else happens.
// Thread-safe.
class LogWriter {
 public:
  static constexpr size_t kMostQueuedBytes = size_t{1} << 20;
  static constexpr std::chrono::milliseconds kLongestFarewell{500};

  // `descriptor` must stay open. If lines were dropped because too many were waiting, writes the
  // line that `gap_line` returns for their number in their place.
  LogWriter(int descriptor, std::function<std::string(uint64_t dropped)> gap_line);
  // Waits until the queue is written, at most for kLongestFarewell. A write that still hangs then
  // is abandoned: it ends with the process, or when somebody reads.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // Queues a line. Drops it if the queue would exceed kMostQueuedBytes.
  void Post(std::string line);

  // Blocks until everything posted so far is written or lost, at most for `limit`. Returns whether
  // it is.
  bool Flush(std::chrono::milliseconds limit);

  // Number of lines that were dropped, or that the descriptor refused.
  uint64_t dropped() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_LOG_WRITER_H_
