// nccl.h of this folder over NCCL, which is opened at run time. Source of the calls: NCCL user
// guide, "Creating a communicator", "Group calls", "Fault tolerance".
#include <nccl.h>

#include "absl/strings/str_cat.h"
#include "kernels/base/dynamic_library.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/common/launch_log.h"
#include "kernels/cuda/nccl/nccl.h"
#include "kernels/cuda/runtime.h"

namespace annulus::cuda {
namespace {

constexpr char kLibrary[] = "libnccl.so.2";
constexpr char kInstall[] =
    "install NCCL 2.14 or newer (Debian and Ubuntu: libnccl2) where the loader finds it, or use "
    "--ring-transport auto, peer or staged";

// The library's functions, with the types of its own header.
struct NcclApi {
  decltype(ncclGetUniqueId)* get_unique_id;
  decltype(ncclCommInitRankConfig)* init;
  decltype(ncclCommGetAsyncError)* get_async_error;
  decltype(ncclCommAbort)* abort;
  decltype(ncclGroupStart)* group_start;
  decltype(ncclGroupEnd)* group_end;
  decltype(ncclSend)* send;
  decltype(ncclRecv)* receive;
  decltype(ncclGetErrorString)* text;
};

absl::StatusOr<NcclApi> LoadNccl() {
  ANNULUS_ASSIGN_OR_RETURN(const DynamicLibrary library, DynamicLibrary::Open(kLibrary, kInstall));
  NcclApi api;
  ANNULUS_RETURN_IF_ERROR(library.Find("ncclGetUniqueId", api.get_unique_id));
  ANNULUS_RETURN_IF_ERROR(library.Find("ncclCommInitRankConfig", api.init));
  ANNULUS_RETURN_IF_ERROR(library.Find("ncclCommGetAsyncError", api.get_async_error));
  ANNULUS_RETURN_IF_ERROR(library.Find("ncclCommAbort", api.abort));
  ANNULUS_RETURN_IF_ERROR(library.Find("ncclGroupStart", api.group_start));
  ANNULUS_RETURN_IF_ERROR(library.Find("ncclGroupEnd", api.group_end));
  ANNULUS_RETURN_IF_ERROR(library.Find("ncclSend", api.send));
  ANNULUS_RETURN_IF_ERROR(library.Find("ncclRecv", api.receive));
  ANNULUS_RETURN_IF_ERROR(library.Find("ncclGetErrorString", api.text));
  return api;
}

class NcclLibrary final : public Nccl {
 public:
  explicit NcclLibrary(const NcclApi& api) : api_(api) {}

  absl::StatusOr<std::vector<NcclHandle>> Begin(std::span<const int> ordinals) override {
    ncclUniqueId id;
    ANNULUS_RETURN_IF_ERROR(StatusOfNccl(api_.get_unique_id(&id), "naming a group"));
    std::vector<ncclComm_t> made(ordinals.size(), nullptr);
    // Ranks wait for each other: one thread may make several of them inside of a group only.
    ncclResult_t result = api_.group_start();
    absl::Status device;
    for (size_t rank = 0; rank < ordinals.size() && Fine(result); ++rank) {
      device = UseDevice(ordinals[rank]);
      if (!device.ok()) break;
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      result = api_.init(&made[rank], static_cast<int>(ordinals.size()), id, static_cast<int>(rank),
                         &config);
    }
    const ncclResult_t ended = api_.group_end();
    if (Fine(result)) result = ended;
    device.Update(StatusOfNccl(result, "making a group"));
    if (!device.ok()) {
      for (const ncclComm_t communicator : made) {
        if (communicator != nullptr) api_.abort(communicator);
      }
      return device;
    }
    return std::vector<NcclHandle>(made.begin(), made.end());
  }

  absl::Status Exchange(NcclHandle communicator, StreamHandle stream,
                        std::span<const NcclTransfer> sends,
                        std::span<const NcclTransfer> receives) override {
    const auto own = static_cast<ncclComm_t>(communicator);
    const auto queue = static_cast<cudaStream_t>(NativeOf(stream));
    ncclResult_t result = api_.group_start();
    for (const NcclTransfer& part : sends) {
      if (!Fine(result)) break;
      result = api_.send(part.data, part.bytes, ncclUint8, part.peer, own, queue);
    }
    for (const NcclTransfer& part : receives) {
      if (!Fine(result)) break;
      result = api_.receive(part.data, part.bytes, ncclUint8, part.peer, own, queue);
    }
    const ncclResult_t ended = api_.group_end();
    return StatusOfNccl(Fine(result) ? ended : result, "an exchange");
  }

  absl::StatusOr<bool> Settled(NcclHandle communicator) override {
    ncclResult_t state = ncclSuccess;
    ANNULUS_RETURN_IF_ERROR(StatusOfNccl(
        api_.get_async_error(static_cast<ncclComm_t>(communicator), &state), "asking for errors"));
    ANNULUS_RETURN_IF_ERROR(StatusOfNccl(state, "an exchange"));
    return state != ncclInProgress;
  }

  void Abort(NcclHandle communicator) override {
    api_.abort(static_cast<ncclComm_t>(communicator));
  }

 private:
  static bool Fine(ncclResult_t result) {
    return result == ncclSuccess || result == ncclInProgress;
  }

  absl::Status StatusOfNccl(ncclResult_t result, absl::string_view what) const {
    if (Fine(result)) return absl::OkStatus();
    const std::string said =
        absl::StrCat(what, ": NCCL says ", api_.text(result), " (", static_cast<int>(result), ")");
    switch (result) {
      case ncclRemoteError:
        return absl::UnavailableError(
            absl::StrCat(said, "; a peer has failed: look for its error, then restart the server"));
      case ncclUnhandledCudaError:
      case ncclSystemError:
        return absl::UnavailableError(absl::StrCat(
            said, "; set NCCL_DEBUG=WARN to see why, or use --ring-transport peer or staged"));
      default:
        return absl::InternalError(said);
    }
  }

  const NcclApi api_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Nccl>> OpenNccl() {
  ANNULUS_ASSIGN_OR_RETURN(const NcclApi api, LoadNccl());
  return std::make_unique<NcclLibrary>(api);
}

}  // namespace annulus::cuda
