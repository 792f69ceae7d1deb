#ifndef ANNULUS_SERVER_LOG_LOG_WRITER_H_
#define ANNULUS_SERVER_LOG_LOG_WRITER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace annulus::server {

// Writes lines to a file descriptor, in order, on its own thread, so callers never wait for it.
// If the descriptor does not accept lines, for example a pipe that nobody reads, the queue fills up
// and further lines are dropped and counted. Thread-safe.
class LogWriter {
 public:
  static constexpr size_t kMostQueuedBytes = size_t{1} << 20;
  static constexpr std::chrono::milliseconds kLongestFarewell{500};

  // `descriptor` must stay open. Wherever lines were dropped for lack of room, writes one line in
  // their place: gap_line(how many).
  LogWriter(int descriptor, std::function<std::string(uint64_t dropped)> gap_line);
  // Waits until the queue is written, at most for kLongestFarewell. A write that still hangs then
  // is abandoned: it ends with the process, or when somebody reads.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // Queues a line. Drops it if the queue would exceed kMostQueuedBytes.
  void Post(std::string line);

  // Blocks until every line posted so far is written or dropped, at most for `limit`. Returns false
  // if `limit` passed first.
  bool Flush(std::chrono::milliseconds limit);

  // Number of lines that were dropped, or that the descriptor refused.
  uint64_t dropped() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_LOG_LOG_WRITER_H_
