// Source of the calls: the comments of ucp/api/ucp.h, UCX 1.13.
#include "engine/ring/wire/ucx_carrier.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/functional/any_invocable.h"
#include "absl/strings/str_cat.h"
#include "engine/base/steady_time.h"
#include "engine/ring/wire/ucx_address.h"
#include "engine/ring/wire/ucx_library.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// The only kind of message.
constexpr unsigned kFrameId = 1;

// Adds memory to that of a message; what lies side by side is one run.
void AddRun(std::byte* data, size_t bytes, std::vector<ucp_dt_iov_t>& runs) {
  if (!runs.empty() && static_cast<std::byte*>(runs.back().buffer) + runs.back().length == data) {
    runs.back().length += bytes;
  } else {
    runs.push_back({data, bytes});
  }
}

// Links are made within this. If a process stands still for kLate meanwhile, as one that is stopped
// does, peers may have given it up, and UCX ends the process on finding so: its
// ucp_wireup_ep_pending_purge does not expect that the first message of a link fails while it
// leaves (1.13.1, and its sources since: "Assertion `wireup_ep->pending_count == 0' failed").
constexpr std::chrono::seconds kMakingLinks{10};
constexpr std::chrono::milliseconds kLate{1'500};
// How long the thread sleeps at most meanwhile.
constexpr std::chrono::milliseconds kNap{250};

class UcxCarrier;

// The carrier whose turn this thread has.
thread_local const UcxCarrier* running = nullptr;

class UcxCarrier final : public Carrier {
 public:
  explicit UcxCarrier(const UcxLibrary& ucx) : ucx_(ucx) {}
  ~UcxCarrier() override;
  absl::Status Open(const std::string& devices);

  void Start(CarrierSink& sink) override;
  const std::string& address() const override { return address_; }
  absl::Status Connect(int own, std::span<const std::string> addresses) override;
  void Send(int peer, const FrameHeaderBytes& header, const RingParts& parts, Done done) override;
  void Receive(uint64_t frame, std::vector<RingPlace> places, Done done) override;
  void Drop(uint64_t frame) override;

 private:
  // What UCX reads while it sends or receives a frame.
  struct Transfer {
    UcxCarrier* carrier = nullptr;
    FrameHeaderBytes header;
    RingParts parts;
    std::vector<ucp_dt_iov_t> runs;
    Done done;
  };
  struct Link {
    UcxCarrier* carrier = nullptr;
    int peer = 0;
    ucp_ep_h endpoint = nullptr;
  };
  // A frame that is neither received nor dropped.
  struct Held {
    void* descriptor = nullptr;        // of UCX, if the bytes are still with the sender
    std::span<const std::byte> bytes;  // otherwise: of UCX during OnFrame, then of `copy`
    std::vector<std::byte> copy;
  };
  // The frame that OnFrame is called for; 0: none.
  struct Arriving {
    uint64_t frame = 0;
    bool dropped = false;
  };

  // Runs `command` if nobody has the turn, else has the carrier's thread do it.
  void Do(absl::AnyInvocable<void()> command);
  void Run();
  bool RunCommands();
  // Whether the thread may sleep now, until one of `sources` has something.
  bool Arm(std::array<pollfd, 2>& sources);
  void LeaveLinks(std::chrono::milliseconds late, std::unique_lock<std::mutex>& turn);
  void Close();
  absl::Status CreateEndpoint(Link& link, const ucp_address_t* address);
  ucs_status_t Take(std::span<const std::byte> header, void* data, size_t bytes, bool remains);
  void BeginSend(int peer, std::unique_ptr<Transfer> transfer);
  void BeginReceive(uint64_t frame, const std::vector<RingPlace>& places, Done done);
  Held TakeHeld(uint64_t frame);
  Transfer* Keep(std::unique_ptr<Transfer> transfer);
  void AfterStart(Transfer* transfer, ucs_status_ptr_t started);
  void Complete(Transfer* transfer, void* request, ucs_status_t status);
  void Finish(Transfer* transfer, ucs_status_t status);
  static ucp_request_param_t ParametersOf(Transfer* transfer);
  // As UCX takes it: one run by itself, several as a list.
  static std::pair<void*, size_t> BufferOf(Transfer& transfer) {
    std::vector<ucp_dt_iov_t>& runs = transfer.runs;
    if (runs.empty()) return {nullptr, 0};
    if (runs.size() == 1) return {runs[0].buffer, runs[0].length};
    return {runs.data(), runs.size()};
  }

  const UcxLibrary& ucx_;
  CarrierSink* sink_ = nullptr;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int events_ = -1;  // UCX's, closed with the worker
  int wake_ = -1;
  std::string address_;

  std::mutex mutex_;
  std::vector<absl::AnyInvocable<void()>> commands_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> stops_{false};

  // Who holds it has the turn: the use of worker_, of what follows, and of the sink. A thread that
  // sends in its own turn need not wake the carrier's for a message that leaves at once.
  std::mutex turn_;
  std::vector<std::unique_ptr<Link>> links_;  // [rank]
  std::unordered_map<Transfer*, std::unique_ptr<Transfer>> transfers_;
  std::unordered_map<uint64_t, Held> held_;
  uint64_t frames_ = 0;  // that have come
  Arriving arriving_;
  std::thread thread_;
};

absl::Status UcxCarrier::Open(const std::string& devices) {
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) return absl::ResourceExhaustedError("no file descriptor for a wire");
  ucp_config_t* config = nullptr;
  ANNULUS_RETURN_IF_ERROR(
      ucx_.StatusOf(ucx_.config_read(nullptr, nullptr, &config), "reading UCX_ variables"));
  const absl::Cleanup release([&] { ucx_.config_release(config); });
  const std::string eager = std::to_string(kMostEagerBytes);
  // Bytes are copied to UCX's own buffers before they are sent: where a peer leaves while they are
  // sent from ours, UCX 1.13.1 ends the process ("Assertion `comp->count > 0' failed").
  std::vector<std::pair<const char*, const char*>> settings = {
      {"TLS", "tcp"}, {"RNDV_THRESH", eager.c_str()}, {"ZCOPY_THRESH", "inf"}};
  if (!devices.empty()) settings.emplace_back("NET_DEVICES", devices.c_str());
  for (const auto& [name, value] : settings) {
    ANNULUS_RETURN_IF_ERROR(ucx_.StatusOf(ucx_.config_modify(config, name, value), name));
  }
  ucp_params_t parameters = {};
  parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
  parameters.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  ANNULUS_RETURN_IF_ERROR(
      ucx_.StatusOf(ucx_.init_version(UCP_API_MAJOR, UCP_API_MINOR, &parameters, config, &context_),
                    absl::StrCat("opening network devices \"", devices, "\"")));
  ucp_worker_params_t worker = {};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ANNULUS_RETURN_IF_ERROR(
      ucx_.StatusOf(ucx_.worker_create(context_, &worker, &worker_), "making a worker"));
  ANNULUS_RETURN_IF_ERROR(
      ucx_.StatusOf(ucx_.worker_get_efd(worker_, &events_), "asking for its events"));
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  ANNULUS_RETURN_IF_ERROR(
      ucx_.StatusOf(ucx_.worker_get_address(worker_, &address, &bytes), "asking for its address"));
  address_ = PackAddress(address, bytes);
  ucx_.worker_release_address(worker_, address);

  ucp_am_handler_param_t handler = {};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kFrameId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.arg = this;
  handler.cb = [](void* self, const void* header, size_t header_bytes, void* data, size_t bytes,
                  const ucp_am_recv_param_t* parameters) {
    return static_cast<UcxCarrier*>(self)->Take(
        {static_cast<const std::byte*>(header), header_bytes}, data, bytes,
        (parameters->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
  };
  return ucx_.StatusOf(ucx_.worker_set_am_recv_handler(worker_, &handler), "asking for frames");
}

UcxCarrier::~UcxCarrier() {
  if (thread_.joinable()) {
    stops_.store(true, std::memory_order_release);
    eventfd_write(wake_, 1);
    thread_.join();
  }
  if (worker_ != nullptr) ucx_.worker_destroy(worker_);
  if (context_ != nullptr) ucx_.cleanup(context_);
  if (wake_ >= 0) close(wake_);
}

void UcxCarrier::Start(CarrierSink& sink) { sink_ = &sink; }

absl::Status UcxCarrier::Connect(int own, std::span<const std::string> addresses) {
  std::vector<const ucp_address_t*> unpacked;
  for (size_t rank = 0; rank < addresses.size(); ++rank) {
    const bool none = static_cast<int>(rank) == own || addresses[rank].empty();
    unpacked.push_back(none ? nullptr : UnpackAddress(addresses[rank]));
    if (!none && unpacked.back() == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("what rank ", rank, " gave as the address of its wire is none"));
    }
  }
  for (size_t rank = 0; rank < unpacked.size(); ++rank) {
    links_.push_back(std::make_unique<Link>(Link{this, static_cast<int>(rank)}));
    if (unpacked[rank] == nullptr) continue;
    // UCX may see at once that nobody is there: a peer that has left, as any later loss.
    const absl::Status status = CreateEndpoint(*links_.back(), unpacked[rank]);
    if (!status.ok()) sink_->OnLost(static_cast<int>(rank), status);
  }
  // Not before: an endpoint takes a connection of the peer that has come, and if the peer has gone
  // meanwhile, UCX ends the process. Its uct_tcp_ep_connect lets an endpoint send that has failed
  // (1.13.1, and its sources since): "Assertion `!(ep->flags & UCT_TCP_EP_FLAG_CTX_TYPE_TX)'
  // failed".
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

absl::Status UcxCarrier::CreateEndpoint(Link& link, const ucp_address_t* address) {
  ucp_ep_params_t parameters = {};
  parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                          UCP_EP_PARAM_FIELD_ERR_HANDLER;
  parameters.address = address;
  parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  parameters.err_handler.arg = &link;
  parameters.err_handler.cb = [](void* failed, ucp_ep_h, ucs_status_t status) {
    const Link& link = *static_cast<const Link*>(failed);
    link.carrier->sink_->OnLost(link.peer, link.carrier->ucx_.StatusOf(status, "its link failed"));
  };
  return ucx_.StatusOf(ucx_.ep_create(worker_, &parameters, &link.endpoint),
                       absl::StrCat("connecting with rank ", link.peer));
}

void UcxCarrier::Send(int peer, const FrameHeaderBytes& header, const RingParts& parts, Done done) {
  auto transfer = std::make_unique<Transfer>(Transfer{this, header, parts, {}, std::move(done)});
  Do([this, peer, transfer = std::move(transfer)]() mutable {
    BeginSend(peer, std::move(transfer));
  });
}

void UcxCarrier::Receive(uint64_t frame, std::vector<RingPlace> places, Done done) {
  Do([this, frame, places = std::move(places), done = std::move(done)]() mutable {
    BeginReceive(frame, places, std::move(done));
  });
}

void UcxCarrier::Drop(uint64_t frame) {
  Do([this, frame] {
    const Held held = TakeHeld(frame);
    if (held.descriptor == nullptr) return;
    if (frame == arriving_.frame) {
      arriving_.dropped = true;  // UCX does it when Take returns
    } else {
      ucx_.am_data_release(worker_, held.descriptor);
    }
  });
}

ucs_status_t UcxCarrier::Take(std::span<const std::byte> header, void* data, size_t bytes,
                              bool remains) {
  arriving_ = {++frames_, false};
  Held& held = held_[frames_];
  if (remains) {
    held.descriptor = data;
  } else {
    held.bytes = {static_cast<const std::byte*>(data), bytes};
  }
  sink_->OnFrame(header, bytes, remains ? 0 : bytes, frames_);
  const Arriving came = std::exchange(arriving_, {});
  const auto kept = held_.find(came.frame);
  if (kept != held_.end() && !remains) {
    Held& early = kept->second;
    early.copy.assign(early.bytes.begin(), early.bytes.end());
    early.bytes = early.copy;
  }
  return remains && !came.dropped ? UCS_INPROGRESS : UCS_OK;
}

UcxCarrier::Held UcxCarrier::TakeHeld(uint64_t frame) {
  const auto held = held_.find(frame);
  ANNULUS_CHECK(held != held_.end()) << "frame " << frame << " was received or dropped before";
  Held taken = std::move(held->second);
  held_.erase(held);
  return taken;
}

void UcxCarrier::BeginSend(int peer, std::unique_ptr<Transfer> transfer) {
  const auto to = static_cast<size_t>(peer);
  if (to >= links_.size() || links_[to]->endpoint == nullptr) {
    transfer->done(absl::FailedPreconditionError(absl::StrCat("rank ", peer, " is not connected")));
    return;
  }
  for (size_t i = 0; i < transfer->parts.size(); ++i) {
    // UCX has one type for both directions; what is sent is only read.
    AddRun(const_cast<std::byte*>(transfer->parts[i].data), transfer->parts[i].bytes,
           transfer->runs);
  }
  Transfer* const kept = Keep(std::move(transfer));
  ucp_request_param_t parameters = ParametersOf(kept);
  parameters.cb.send = [](void* request, ucs_status_t status, void* sent) {
    static_cast<Transfer*>(sent)->carrier->Complete(static_cast<Transfer*>(sent), request, status);
  };
  const auto [buffer, count] = BufferOf(*kept);
  AfterStart(kept, ucx_.am_send_nbx(links_[to]->endpoint, kFrameId, kept->header.data(),
                                    kept->header.size(), buffer, count, &parameters));
}

void UcxCarrier::BeginReceive(uint64_t frame, const std::vector<RingPlace>& places, Done done) {
  const Held held = TakeHeld(frame);
  if (held.descriptor == nullptr) {
    const std::byte* from = held.bytes.data();
    for (const RingPlace& place : places) {
      std::copy_n(from, place.bytes, place.data);
      from += place.bytes;
    }
    done(absl::OkStatus());
    return;
  }
  auto transfer = std::make_unique<Transfer>(Transfer{this, {}, {}, {}, std::move(done)});
  for (const RingPlace& place : places) AddRun(place.data, place.bytes, transfer->runs);
  Transfer* const kept = Keep(std::move(transfer));
  ucp_request_param_t parameters = ParametersOf(kept);
  parameters.cb.recv_am = [](void* request, ucs_status_t status, size_t, void* received) {
    static_cast<Transfer*>(received)->carrier->Complete(static_cast<Transfer*>(received), request,
                                                        status);
  };
  const auto [buffer, count] = BufferOf(*kept);
  AfterStart(kept, ucx_.am_recv_data_nbx(worker_, held.descriptor, buffer, count, &parameters));
}

UcxCarrier::Transfer* UcxCarrier::Keep(std::unique_ptr<Transfer> transfer) {
  Transfer* const kept = transfer.get();
  transfers_.emplace(kept, std::move(transfer));
  return kept;
}

ucp_request_param_t UcxCarrier::ParametersOf(Transfer* transfer) {
  ucp_request_param_t parameters = {};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                            UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  parameters.user_data = transfer;
  const ucp_datatype_t list = UCP_DATATYPE_IOV;
  parameters.datatype = transfer->runs.size() > 1 ? list : ucp_dt_make_contig(1);
  parameters.memory_type = UCS_MEMORY_TYPE_HOST;
  return parameters;
}

void UcxCarrier::AfterStart(Transfer* transfer, ucs_status_ptr_t started) {
  if (started == nullptr) {
    Finish(transfer, UCS_OK);
  } else if (UCS_PTR_IS_ERR(started)) {
    Finish(transfer, UCS_PTR_STATUS(started));
  }
}

void UcxCarrier::Complete(Transfer* transfer, void* request, ucs_status_t status) {
  ucx_.request_free(request);
  Finish(transfer, status);
}

void UcxCarrier::Finish(Transfer* transfer, ucs_status_t status) {
  const Done done = std::move(transfer->done);
  transfers_.erase(transfer);
  done(ucx_.StatusOf(status, "moving a message"));
}

void UcxCarrier::Do(absl::AnyInvocable<void()> command) {
  if (running == this) {
    command();
    return;
  }
  bool wake = false;
  if (std::unique_lock turn(turn_, std::try_to_lock); turn.owns_lock()) {
    const UcxCarrier* const outer = std::exchange(running, this);
    RunCommands();  // those that came before
    command();
    running = outer;
    wake = !transfers_.empty();  // what is not done yet takes turns of the thread
  } else {
    std::lock_guard lock(mutex_);
    wake = commands_.empty();
    commands_.push_back(std::move(command));
  }
  if (wake) eventfd_write(wake_, 1);
}

bool UcxCarrier::RunCommands() {
  std::vector<absl::AnyInvocable<void()>> commands;
  {
    std::lock_guard lock(mutex_);
    commands.swap(commands_);
  }
  for (auto& command : commands) command();
  return !commands.empty();
}

void UcxCarrier::Run() {
  std::array<pollfd, 2> sources;
  std::unique_lock turn(turn_);
  running = this;
  const SteadyTime begun = std::chrono::steady_clock::now();
  SteadyTime last = begun;
  while (!stops_.load(std::memory_order_acquire)) {
    const SteadyTime now = std::chrono::steady_clock::now();
    const bool makes_links = last - begun < kMakingLinks;
    if (makes_links && now - last > kLate) {
      LeaveLinks(std::chrono::duration_cast<std::chrono::milliseconds>(now - last), turn);
      break;
    }
    last = now;
    const bool progressed = ucx_.worker_progress(worker_) != 0;
    if (RunCommands() || progressed || !Arm(sources)) continue;
    turn.unlock();
    poll(sources.data(), sources.size(), makes_links ? static_cast<int>(kNap.count()) : -1);
    eventfd_t wakes;
    eventfd_read(wake_, &wakes);
    turn.lock();
  }
  Close();
}

// Says that all links are lost, and lets UCX do nothing more with them until they are closed.
void UcxCarrier::LeaveLinks(std::chrono::milliseconds late, std::unique_lock<std::mutex>& turn) {
  for (const auto& link : links_) {
    if (link->endpoint == nullptr) continue;
    sink_->OnLost(link->peer, absl::UnavailableError(absl::StrCat(
                                  "this process stood still for ", late.count(),
                                  " ms while its links were made, so they are made anew")));
  }
  pollfd wake = {wake_, POLLIN, 0};
  while (!stops_.load(std::memory_order_acquire)) {
    if (RunCommands()) continue;
    turn.unlock();
    poll(&wake, 1, /*timeout=*/-1);
    eventfd_t wakes;
    eventfd_read(wake_, &wakes);
    turn.lock();
  }
}

bool UcxCarrier::Arm(std::array<pollfd, 2>& sources) {
  const ucs_status_t armed = ucx_.worker_arm(worker_);
  if (armed == UCS_ERR_BUSY) return false;  // something has happened meanwhile
  // poll() passes over -1.
  sources = {{{wake_, POLLIN, 0}, {armed == UCS_OK ? events_ : -1, POLLIN, 0}}};
  if (armed == UCS_OK) return true;
  for (const auto& link : links_) {
    sink_->OnLost(link->peer, ucx_.StatusOf(armed, "waiting for events"));
  }
  return true;
}

// What is under way ends with its endpoint, so that UCX touches no memory of ours afterwards.
void UcxCarrier::Close() {
  ucp_request_param_t parameters = {};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  parameters.flags = UCP_EP_CLOSE_FLAG_FORCE;
  std::vector<ucs_status_ptr_t> closing;
  for (const auto& link : links_) {
    if (link->endpoint == nullptr) continue;
    const ucs_status_ptr_t begun = ucx_.ep_close_nbx(link->endpoint, &parameters);
    if (begun != nullptr && !UCS_PTR_IS_ERR(begun)) closing.push_back(begun);
  }
  // Not before all are closed: see kMakingLinks. Nobody is waited for: a forced close takes turns
  // of this worker alone.
  for (const ucs_status_ptr_t request : closing) {
    while (ucx_.request_check_status(request) == UCS_INPROGRESS) ucx_.worker_progress(worker_);
    ucx_.request_free(request);
  }
  // What was under way is done by callbacks that are queued now. Peers may go on sending for ever.
  while (!transfers_.empty() && ucx_.worker_progress(worker_) != 0) continue;
  for (const auto& [frame, held] : held_) {
    if (held.descriptor != nullptr) ucx_.am_data_release(worker_, held.descriptor);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Carrier>> OpenUcxCarrier(const std::string& devices) {
  ANNULUS_ASSIGN_OR_RETURN(const UcxLibrary* const ucx, LoadUcx());
  auto carrier = std::make_unique<UcxCarrier>(*ucx);
  ANNULUS_RETURN_IF_ERROR(carrier->Open(devices));
  return carrier;
}

}  // namespace annulus
