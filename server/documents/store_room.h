#ifndef ANNULUS_SERVER_DOCUMENTS_STORE_ROOM_H_
#define ANNULUS_SERVER_DOCUMENTS_STORE_ROOM_H_

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "engine/api.h"

namespace annulus::server {

// What a part of the document store's memory is held for.
enum class RoomUse : uint8_t {
  kUpload,     // an upload under way
  kKept,       // a document that stays until it is deleted
  kTransient,  // a document that may be evicted
  kRestored,   // a kept document of an earlier process, which may exceed the tenant's share
};

enum class RoomAnswer : uint8_t {
  kGranted,
  kFull,       // the store is full
  kShareFull,  // uploads under way and kept documents would exceed the tenant's equal share
  // The same, but there would be room without the other uploads under way.
  kFullForNow,
  kShareFullForNow,
};

// The memory or the disk of the document store, counted by tenant and use. What cannot be evicted
// (uploads under way and kept documents) is limited to an equal share for each tenant, so that
// tenants cannot keep each other out; transient documents may take all that is free. Thread-safe.
class StoreRoom {
 public:
  enum class Of : uint8_t { kMemory, kDisk };
  explicit StoreRoom(size_t limit, Of of = Of::kMemory) : limit_(limit), of_(of) {}

  // The number of tenants that may upload, at least 1.
  void SetTenants(size_t tenants);
  size_t tenants() const;

  Of of() const { return of_; }
  size_t limit() const { return limit_; }
  size_t share() const;  // bytes
  size_t used() const;
  size_t most() const;  // the most that was ever in use at a time
  size_t HeldBy(const TenantId& tenant) const;

 private:
  friend class RoomLease;
  using Holding = std::map<RoomUse, size_t>;  // bytes

  // `own`: what the lease has already.
  RoomAnswer TryTake(const TenantId& tenant, RoomUse use, size_t own, size_t bytes);
  void Count(const TenantId& tenant, RoomUse use, size_t bytes);
  void GiveBack(const TenantId& tenant, RoomUse use, size_t bytes);
  bool TryMove(const TenantId& tenant, size_t bytes, RoomUse from, RoomUse to);
  static size_t FixedOf(const Holding& holding);

  void AddLocked(const TenantId& tenant, RoomUse use, size_t bytes);

  const size_t limit_;
  const Of of_;
  mutable std::mutex mutex_;
  size_t tenants_ = 1;
  size_t used_ = 0;
  size_t most_ = 0;
  size_t uploading_ = 0;
  std::map<TenantId, Holding> holdings_;  // of the tenants that hold anything
};

// RESOURCE_EXHAUSTED for an answer that is not kGranted; with RetryInfo if uploads under way take
// the room. `needed`: bytes that were asked for.
absl::Status RoomFullError(RoomAnswer answer, size_t needed, const StoreRoom& room);

// A part of the room; the destructor gives it back. Starts empty, as an upload's. Not thread-safe.
class RoomLease {
 public:
  RoomLease(std::shared_ptr<StoreRoom> room, TenantId tenant)
      : room_(std::move(room)), tenant_(std::move(tenant)) {}
  ~RoomLease();
  RoomLease(RoomLease&& other) noexcept
      : room_(std::move(other.room_)),
        tenant_(std::move(other.tenant_)),
        use_(other.use_),
        bytes_(std::exchange(other.bytes_, 0)) {}
  RoomLease& operator=(RoomLease&&) = delete;

  // Sets the size. Changes nothing unless the answer is kGranted.
  [[nodiscard]] RoomAnswer TryResize(size_t bytes);
  // Sets the use. Returns false, and changes nothing, if a transient part does not fit into the
  // tenant's share.
  [[nodiscard]] bool TrySetUse(RoomUse use);
  // Takes room as a kept document of `tenant`, whatever the limits allow: for what exists already.
  // The lease must be empty.
  void Count(const TenantId& tenant, size_t bytes);
  void GiveBack();
  RoomUse use() const { return use_; }
  const StoreRoom& room() const { return *room_; }
  size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<StoreRoom> room_;
  TenantId tenant_;
  RoomUse use_ = RoomUse::kUpload;
  size_t bytes_ = 0;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_DOCUMENTS_STORE_ROOM_H_
