#include "server/net/relay_flow.h"

#include <sys/epoll.h>

#include <optional>

namespace annulus::server {
namespace {

using Outcome = PeerStream::Outcome;

// The most that one read of a TLS stream returns. A read of less has found all that there was; if
// not, epoll tells.
constexpr size_t kRecord = size_t{16} << 10;

}  // namespace

std::ptrdiff_t RelayFlow::Write(PeerStream& sink, const char* bytes, size_t size) {
  size_t sent = 0;
  while (sent < size) {
    const auto [outcome, moved] = sink.Write(bytes + sent, size - sent);
    if (outcome == Outcome::kEnded) return -1;
    write_needs_read_ = outcome == Outcome::kWaitToRead;
    if (outcome != Outcome::kMoved) break;
    sent += moved;
  }
  moved_ += sent;
  return static_cast<std::ptrdiff_t>(sent);
}

bool RelayFlow::Flush(PeerStream& sink) {
  const std::ptrdiff_t sent = Write(sink, waiting_.data(), looked_at_);
  if (sent < 0) return false;
  waiting_.erase(waiting_.begin(), waiting_.begin() + sent);
  looked_at_ -= static_cast<size_t>(sent);
  if (waiting_.empty()) waiting_.shrink_to_fit();
  return true;
}

// Fills the piece as far as the source has bytes. Returns the outcome of the last read.
PeerStream::Result RelayFlow::Fill(PeerStream& source, std::vector<char>& piece, size_t& size) {
  PeerStream::Result read{};
  do {
    read = source.Read(piece.data() + size, piece.size() - size);
    size += read.bytes;
  } while (read.bytes >= kRecord && piece.size() - size >= kRecord);
  return read;
}

RelayFlow::Moved RelayFlow::Move(PeerStream& source, PeerStream& sink, Look look,
                                 std::vector<char>& piece) {
  for (int i = 0; i < kPiecesAtATime; ++i) {
    if (held()) {
      const std::optional<size_t> good = look({waiting_.data(), waiting_.size()});
      if (!good) return Moved::kRefused;
      looked_at_ = *good;
    }
    if (waits()) {
      if (!Flush(sink)) return Moved::kSinkFailed;
      if (waits()) return Moved::kAll;
    }
    if (ended_) return Moved::kAll;
    size_t size = 0;
    const PeerStream::Result read = Fill(source, piece, size);
    read_needs_write_ = read.outcome == Outcome::kWaitToWrite;
    if (size == 0) {
      if (read.outcome != Outcome::kEnded) return Moved::kAll;
      ended_ = true;
      sink.EndWriting();
      return Moved::kAll;
    }
    const std::optional<size_t> good = look({piece.data(), size});
    if (!good) return Moved::kRefused;
    const std::ptrdiff_t sent = Write(sink, piece.data(), *good);
    if (sent < 0) return Moved::kSinkFailed;
    waiting_.assign(piece.begin() + sent, piece.begin() + static_cast<std::ptrdiff_t>(size));
    looked_at_ = *good - static_cast<size_t>(sent);
    if (size < kRecord) return Moved::kAll;
  }
  return Moved::kAll;
}

void RelayFlow::End() {
  ended_ = true;
  waiting_ = {};
  looked_at_ = 0;
}

uint32_t RelayFlow::SourceEvents() const {
  if (ended_ || waits()) return 0;
  return read_needs_write_ ? EPOLLOUT : EPOLLIN;
}

uint32_t RelayFlow::SinkEvents() const {
  if (!stalled()) return 0;
  return write_needs_read_ ? EPOLLIN : EPOLLOUT;
}

}  // namespace annulus::server
