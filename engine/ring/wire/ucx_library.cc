#include "engine/ring/wire/ucx_library.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "kernels/base/dynamic_library.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr char kLibrary[] = "libucp.so.0";
constexpr char kInstall[] =
    "install UCX 1.13 or newer (Debian and Ubuntu: libucx0), which ranks of several processes "
    "exchange data by";

}  // namespace

absl::StatusOr<UcxLibrary> OpenUcx(const std::string& file) {
  // Its constructors read these. Without them they overwrite code of the C library (munmap and
  // others), take over the signals of crashes, which are ours, and SIGHUP.
  setenv("UCX_MEM_EVENTS", "n", 1);
  setenv("UCX_HANDLE_ERRORS", "none", 1);
  setenv("UCX_DEBUG_SIGNO", "0", 1);
  // To connect would wait for peers, for minutes if a host is gone. And a peer that leaves as soon
  // as it is connected would end this process: see UcxCarrier::Connect.
  setenv("UCX_TCP_CONN_NB", "y", 1);
  // It would print to the standard output; what went wrong comes back as a status.
  setenv("UCX_LOG_LEVEL", "fatal", /*overwrite=*/0);
  ANNULUS_ASSIGN_OR_RETURN(const DynamicLibrary library, DynamicLibrary::Open(file, kInstall));
  UcxLibrary ucx;
  ANNULUS_RETURN_IF_ERROR(library.Find("ucp_config_read", ucx.config_read));
  ANNULUS_RETURN_IF_ERROR(library.Find("ucp_config_modify", ucx.config_modify));
  ANNULUS_RETURN_IF_ERROR(library.Find("ucp_config_release", ucx.config_release));
  ANNULUS_RETURN_IF_ERROR(library.Find("ucp_init_version", ucx.init_version));
  ANNULUS_RETURN_IF_ERROR(library.Find("ucp_cleanup", ucx.cleanup));
  ANNULUS_RETURN_IF_ERROR(library.Find("ucp_worker_create", ucx.worker_create));
  ANNULUS_RETURN_IF_ERROR(library.Find("ucp_worker_destroy", ucx.worker_destroy));
  ANNULUS_RETURN_IF_ERROR(library.Find("ucp_worker_get_efd", ucx.worker_get_efd));
  ANNULUS_RETURN_IF_ERROR(library.Find("ucp_worker_get_address", ucx.worker_get_address));
  ANNULUS_RETURN_IF_ERROR(library.Find("ucp_worker_release_address", ucx.worker_release_address));
  ANNULUS_RETURN_IF_ERROR(
      library.Find("ucp_worker_set_am_recv_handler", ucx.worker_set_am_recv_handler));
  ANNULUS_RETURN_IF_ERROR(library.Find("ucp_worker_progress", ucx.worker_progress));
  ANNULUS_RETURN_IF_ERROR(library.Find("ucp_worker_arm", ucx.worker_arm));
  ANNULUS_RETURN_IF_ERROR(library.Find("ucp_ep_create", ucx.ep_create));
  ANNULUS_RETURN_IF_ERROR(library.Find("ucp_ep_close_nbx", ucx.ep_close_nbx));
  ANNULUS_RETURN_IF_ERROR(library.Find("ucp_am_send_nbx", ucx.am_send_nbx));
  ANNULUS_RETURN_IF_ERROR(library.Find("ucp_am_recv_data_nbx", ucx.am_recv_data_nbx));
  ANNULUS_RETURN_IF_ERROR(library.Find("ucp_am_data_release", ucx.am_data_release));
  ANNULUS_RETURN_IF_ERROR(library.Find("ucp_request_check_status", ucx.request_check_status));
  ANNULUS_RETURN_IF_ERROR(library.Find("ucp_request_free", ucx.request_free));
  ANNULUS_RETURN_IF_ERROR(library.Find("ucs_status_string", ucx.status_string));
  return ucx;
}

absl::Status UcxLibrary::StatusOf(ucs_status_t status, absl::string_view what) const {
  if (status == UCS_OK) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(what, ": UCX says \"", status_string(status), "\" (",
                                             static_cast<int>(status), ")"));
}

absl::StatusOr<const UcxLibrary*> LoadUcx() {
  static const absl::StatusOr<UcxLibrary> ucx = OpenUcx(kLibrary);
  if (!ucx.ok()) return ucx.status();
  return &*ucx;
}

}  // namespace annulus
