#ifndef ANNULUS_SERVER_NET_RELAY_FLOW_H_
#define ANNULUS_SERVER_NET_RELAY_FLOW_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "server/net/peer_stream.h"

namespace annulus::server {

// One direction of a relayed connection: bytes go from a source to a sink, and at most one piece of
// them waits here.
class RelayFlow {
 public:
  enum class Moved : uint8_t { kAll, kSinkFailed, kRefused };

  // Looks at the next bytes and returns how many of them may be moved; it gets the rest again
  // later. nullopt refuses them.
  using Look = absl::FunctionRef<std::optional<size_t>(absl::string_view)>;

  // Moves what is available, up to kPiecesAtATime pieces, without waiting for either side. `piece`:
  // scratch for the bytes of one piece. Ends the sink's direction when the source has ended.
  Moved Move(PeerStream& source, PeerStream& sink, Look look, std::vector<char>& piece);
  // Sends what may be moved already, without reading more. Returns false if the sink has failed.
  bool Flush(PeerStream& sink);

  // Reads nothing more, and drops what waits.
  void End();

  bool ended() const { return ended_; }                // no more to read
  bool waits() const { return !waiting_.empty(); }     // so nothing is read
  bool stalled() const { return looked_at_ > 0; }      // the sink takes no more for now
  bool held() const { return waits() && !stalled(); }  // nothing may be moved for now
  uint64_t moved() const { return moved_; }            // bytes that the sink has taken so far

  // The events of epoll to wait for before Move is called again: of the source, unless Move must
  // not read now, and of the sink.
  uint32_t SourceEvents() const;
  uint32_t SinkEvents() const;

 private:
  static constexpr int kPiecesAtATime = 4;  // then other connections have a turn

  PeerStream::Result Fill(PeerStream& source, std::vector<char>& piece, size_t& size);
  // Writes as much as the sink takes; returns how much, -1 if the sink has failed.
  std::ptrdiff_t Write(PeerStream& sink, const char* bytes, size_t size);

  std::vector<char> waiting_;  // read but not yet sent
  size_t looked_at_ = 0;       // bytes at the front of waiting_ that may be moved
  bool ended_ = false;
  // TLS may have to write before it can read, and the other way round.
  bool read_needs_write_ = false;
  bool write_needs_read_ = false;
  uint64_t moved_ = 0;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_NET_RELAY_FLOW_H_
