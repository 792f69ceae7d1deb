// The limits of the relay: which connections it closes.

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/net/connection_meter.h"
#include "server/net/connection_relay.h"
#include "server/net/relay_link.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;

// How long a client may take to read the rest after gRPC has closed the connection.
constexpr milliseconds kLinger{5000};
// Clients without connections whose level of frames is remembered; beyond this, none.
constexpr size_t kMostIdleHosts = 4096;
// A client with more than one of so many connections has many.
constexpr size_t kFewShare = 64;

}  // namespace

// Closes connections until the total, and what the calls of `host` take, are within the limits.
// Chooses the largest connection of the client that holds most, so that other clients lose no
// calls.
void ConnectionRelay::CloseGreedy(Host& host) {
  const auto fits = [&] {
    return !held_.Exceeds(limits_.held_bytes) && !host.calls.Exceeds(kMostCallBytesOfAddress);
  };
  // Half an equal share: while the limit is exceeded, some connection has more.
  const auto free = [](size_t limit, size_t connections) {
    return std::min(kFreeBytes, limit / (2 * std::max(connections, size_t{1})));
  };
  while (!fits()) {
    Link* largest = nullptr;
    if (host.calls.Exceeds(kMostCallBytesOfAddress)) {
      largest = LargestOf(&host, &Link::counted_calls,
                          free(kMostCallBytesOfAddress, static_cast<size_t>(host.connections)));
    } else {
      const size_t least = free(limits_.held_bytes, links_.size());
      const auto most = std::max_element(hosts_.begin(), hosts_.end(), [](auto& a, auto& b) {
        return a.second->all.open + a.second->all.leaving <
               b.second->all.open + b.second->all.leaving;
      });
      largest = LargestOf(most->second.get(), &Link::counted, least);
      if (largest == nullptr) largest = LargestOf(nullptr, &Link::counted, least);
    }
    if (largest == nullptr) return;  // gRPC has yet to let go of what is closed
    SweepLeaving();
    if (!fits()) CutOffLink(*largest, CutOff::kMemory);
  }
}

ConnectionRelay::Link* ConnectionRelay::LargestOf(const Host* host, size_t Link::*bytes,
                                                  size_t free) {
  Link* largest = nullptr;
  for (const auto& [number, link] : links_) {
    if ((host != nullptr && link->host != host) || link.get()->*bytes < free) continue;
    if (largest == nullptr || link.get()->*bytes > largest->*bytes) largest = link.get();
  }
  return largest;
}

ConnectionRelay::Link* ConnectionRelay::OneToMakeRoom(const std::string& host) {
  absl::flat_hash_map<const Host*, int> connections;
  int most = 0;
  for (const auto& [number, link] : links_) most = std::max(most, ++connections[link->host]);
  Link* longest_idle = nullptr;  // of those with most connections
  Link* idle = nullptr;          // of all
  Link* newest = nullptr;
  const auto used_before = [](const Link& link, const Link* other) {
    return other == nullptr || link.used < other->used;
  };
  for (const auto& [number, link] : links_) {
    const bool is_idle = link->meter->open_calls() == 0;
    if (is_idle && used_before(*link, idle)) idle = link.get();
    if (connections[link->host] < most) continue;
    if (newest == nullptr || number > newest->number) newest = link.get();
    if (is_idle && used_before(*link, longest_idle)) longest_idle = link.get();
  }
  if (longest_idle != nullptr || newest == nullptr) return longest_idle;
  // Where nobody has many, the most are no sign of a flood, and calls go on.
  const bool few = static_cast<size_t>(most) <= links_.size() / kFewShare;
  if (few && idle != nullptr) return idle;
  const auto known = hosts_.find(host);
  const int own = known == hosts_.end() ? 0 : connections[known->second.get()];
  return most > own + 1 ? newest : nullptr;
}

void ConnectionRelay::MakeRoom() {
  std::vector<RoomAsked> asked;
  {
    std::lock_guard lock(mutex_);
    asked.swap(room_asked_);
  }
  for (RoomAsked& one : asked) {
    std::optional<int> closed;
    if (Link* const link = OneToMakeRoom(one.host); link != nullptr) {
      closed = link->client.descriptor;
      CutOffLink(*link, CutOff::kRoom);
      SweepLeaving();
    }
    one.closed.set_value(closed);
  }
}

void ConnectionRelay::CutOffCondemned() {
  for (const uint64_t number : peers_->TakeCondemned()) {
    const auto found = links_.find(number);
    if (found != links_.end()) CutOffLink(*found->second, CutOff::kRefused);
  }
}

// Cuts off clients that do not read. After gRPC has closed they have less time, and it is no fault
// of theirs that matters to anybody.
void ConnectionRelay::SweepUnread(SteadyTime now) {
  const double least = ConnectionMeter::kLeastBytesPerSecond *
                       std::chrono::duration<double>(limits_.unread_time).count();
  std::vector<Link*> unread;
  std::vector<Link*> over;
  for (const auto& [number, link] : links_) {
    if (!link->down.stalled()) continue;
    pollfd server{link->server.descriptor, 0, 0};
    if (poll(&server, 1, 0) > 0 && (server.revents & POLLHUP) != 0) {
      if (!link->hung_up) link->hung_up = now;
      if (now - *link->hung_up >= kLinger) over.push_back(link.get());
    } else if (now - link->unread_since >= limits_.unread_time) {
      const uint64_t moved =
          link->down.moved() - std::exchange(link->moved_then, link->down.moved());
      link->unread_since = now;
      if (static_cast<double>(moved) < least) unread.push_back(link.get());
    }
  }
  for (Link* link : unread) CutOffLink(*link, CutOff::kUnread);
  for (Link* link : over) Close(*link);
}

// Closes connections on which a call's first message does not come: gRPC would wait for it, and
// keep the part that has come, without a limit.
void ConnectionRelay::SweepSlow(SteadyTime now) {
  std::vector<Link*> slow;
  for (const auto& [number, link] : links_) {
    const bool held_up = link->up.waits() || link->Stalled(now);
    if (link->meter->Trickles(now, limits_.message_time, held_up)) slow.push_back(link.get());
  }
  for (Link* link : slow) CutOffLink(*link, CutOff::kSlow);
}

// Forgets connections that gRPC has closed: their descriptor is closed, or is another socket's.
void ConnectionRelay::SweepLeaving() {
  for (auto gone = leaving_.begin(); gone != leaving_.end();) {
    if (InodeOf(gone->grpc_socket) == gone->inode) {
      ++gone;
      continue;
    }
    held_.leaving -= gone->held;
    gone->host->all.leaving -= gone->held;
    gone->host->calls.leaving -= gone->calls;
    --gone->host->connections;
    peers_->Remove(gone->number);
    gone = leaving_.erase(gone);
  }
}

// Forgets clients without connections, once they have no more frames than a new one would.
void ConnectionRelay::ForgetHosts(SteadyTime now) {
  const bool many = hosts_.size() > links_.size() + leaving_.size() + kMostIdleHosts;
  std::erase_if(hosts_, [&](const auto& entry) {
    Host& host = *entry.second;
    return host.connections == 0 &&
           (many || (host.shared.frames->full(now) && host.shared.calls->full(now)));
  });
}

}  // namespace annulus::server
