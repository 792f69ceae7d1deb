#include "server/identity/peer_book.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "server/base/peer_address.h"

namespace annulus::server {
namespace {

constexpr char kRelayNamePrefix[] = "annulus-";
// When a connection has had so many calls, older ones count half.
constexpr int kCallsOfLate = 1'000;

// Random, because other servers may use the same name space.
std::string UniquePrefix() {
  std::random_device random;
  const uint64_t number = uint64_t{random()} << 32 | random();
  return absl::StrCat(kRelayNamePrefix, absl::Hex(number, absl::kZeroPad16), "-");
}

}  // namespace

PeerBook::PeerBook() : prefix_(UniquePrefix()) {}

PeerBook::Number PeerBook::Add(const std::string& address,
                               std::vector<std::string> certificate_names) {
  const size_t level = absl::HashOf(AddressOf(address)) % levels_.size();
  std::lock_guard lock(mutex_);
  const Number number = next_++;
  peers_.emplace(number, Peer{std::move(certificate_names), level});
  return number;
}

std::string PeerBook::SocketName(Number number, const std::string& address) const {
  return absl::StrCat(prefix_, number, "/", address);
}

void PeerBook::Remove(Number number) {
  std::lock_guard lock(mutex_);
  peers_.erase(number);
}

PeerBook::Number PeerBook::NumberOf(absl::string_view peer) const {
  Number number = 0;
  const bool ours = absl::ConsumePrefix(&peer, "unix-abstract:") &&
                    absl::ConsumePrefix(&peer, prefix_) &&
                    absl::SimpleAtoi(peer.substr(0, peer.find('/')), &number);
  return ours ? number : 0;
}

std::vector<std::string> PeerBook::CertificateNames(Number number) const {
  std::lock_guard lock(mutex_);
  const auto found = peers_.find(number);
  return found == peers_.end() ? std::vector<std::string>() : found->second.certificate_names;
}

void PeerBook::Age(Peer& peer) {
  if (peer.known + peer.refused < kCallsOfLate) return;
  peer.known /= 2;
  peer.refused /= 2;
}

void PeerBook::CountKnown(Number number) {
  std::lock_guard lock(mutex_);
  const auto found = peers_.find(number);
  if (found == peers_.end()) return;
  ++found->second.known;
  Age(found->second);
}

void PeerBook::CountRefused(Number number, SteadyTime now) {
  std::lock_guard lock(mutex_);
  const auto place = peers_.find(number);
  if (place == peers_.end()) return;
  Peer& found = place->second;
  ++found.refused;
  Age(found);
  Level& level = levels_[found.level];
  const double seconds = std::chrono::duration<double>(now - level.filled).count();
  level.left = std::min(kRefusedBurst, level.left + std::max(0.0, seconds) * kRefusedPerSecond);
  level.filled = std::max(level.filled, now);
  if (level.left >= 1) {
    level.left -= 1;
    return;
  }
  if (found.condemned || found.refused <= kAnsweredPerConnection || found.refused <= found.known) {
    return;
  }
  found.condemned = true;
  condemned_.push_back(number);
}

std::vector<PeerBook::Number> PeerBook::TakeCondemned() {
  std::lock_guard lock(mutex_);
  return std::exchange(condemned_, {});
}

bool PeerBook::IsCondemned(Number number) const {
  std::lock_guard lock(mutex_);
  const auto found = peers_.find(number);
  return found != peers_.end() && found->second.condemned;
}

size_t PeerBook::size() const {
  std::lock_guard lock(mutex_);
  return peers_.size();
}

std::string ClientAddress(const std::string& peer) {
  absl::string_view address = peer;
  if (absl::ConsumePrefix(&address, absl::StrCat("unix-abstract:", kRelayNamePrefix))) {
    address.remove_prefix(std::min(address.find('/') + 1, address.size()));
  }
  return absl::StrReplaceAll(address, {{"%5B", "["}, {"%5D", "]"}});
}

}  // namespace annulus::server
