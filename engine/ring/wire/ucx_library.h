#ifndef ANNULUS_ENGINE_RING_WIRE_UCX_LIBRARY_H_
#define ANNULUS_ENGINE_RING_WIRE_UCX_LIBRARY_H_

#include <ucp/api/ucp.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// The functions of UCX that are used, with the types of its own headers.
struct UcxLibrary {
  decltype(ucp_config_read)* config_read;
  decltype(ucp_config_modify)* config_modify;
  decltype(ucp_config_release)* config_release;
  decltype(ucp_init_version)* init_version;
  decltype(ucp_cleanup)* cleanup;
  decltype(ucp_worker_create)* worker_create;
  decltype(ucp_worker_destroy)* worker_destroy;
  decltype(ucp_worker_get_efd)* worker_get_efd;
  decltype(ucp_worker_get_address)* worker_get_address;
  decltype(ucp_worker_release_address)* worker_release_address;
  decltype(ucp_worker_set_am_recv_handler)* worker_set_am_recv_handler;
  decltype(ucp_worker_progress)* worker_progress;
  decltype(ucp_worker_arm)* worker_arm;
  decltype(ucp_ep_create)* ep_create;
  decltype(ucp_ep_close_nbx)* ep_close_nbx;
  decltype(ucp_am_send_nbx)* am_send_nbx;
  decltype(ucp_am_recv_data_nbx)* am_recv_data_nbx;
  decltype(ucp_am_data_release)* am_data_release;
  decltype(ucp_request_check_status)* request_check_status;
  decltype(ucp_request_free)* request_free;
  decltype(ucs_status_string)* status_string;

  // UNAVAILABLE with what UCX says; OK for UCS_OK.
  absl::Status StatusOf(ucs_status_t status, absl::string_view what) const;
};

// UCX from `file`. Sets variables of the environment so that loading leaves the process's memory
// functions and signal handlers alone, and that it logs nothing unless UCX_LOG_LEVEL is set: no
// other thread may read the environment meanwhile.
// FAILED_PRECONDITION if it cannot be loaded, with the package to install.
absl::StatusOr<UcxLibrary> OpenUcx(const std::string& file);

// The one of this machine, opened at the first call.
absl::StatusOr<const UcxLibrary*> LoadUcx();

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_WIRE_UCX_LIBRARY_H_
