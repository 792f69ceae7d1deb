#include "kernels/planned_backend.h"

#include <utility>

namespace annulus {
namespace {

absl::Status OnlyPlanned() { return absl::UnimplementedError("this device is only planned"); }

class PlannedBackend final : public Backend {
 public:
  PlannedBackend(BackendCapabilities capabilities,
                 std::function<WorkspaceBytes(const WorkShape&)> workspace)
      : capabilities_(std::move(capabilities)), workspace_(std::move(workspace)) {}

  const BackendCapabilities& capabilities() const override { return capabilities_; }
  WorkspaceBytes PlanWorkspace(const WorkShape& most) const override {
    return workspace_ ? workspace_(most) : WorkspaceBytes();
  }
  absl::StatusOr<DeviceBuffer> Allocate(size_t /*bytes*/) override { return OnlyPlanned(); }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(int /*threads*/) override {
    return OnlyPlanned();
  }
  absl::Status Copy(Stream& /*stream*/, void* /*destination*/, const void* /*source*/,
                    size_t /*bytes*/) override {
    return OnlyPlanned();
  }

 private:
  const BackendCapabilities capabilities_;
  const std::function<WorkspaceBytes(const WorkShape&)> workspace_;
};

}  // namespace

std::unique_ptr<Backend> MakePlannedBackend(
    BackendCapabilities capabilities, std::function<WorkspaceBytes(const WorkShape&)> workspace) {
  return std::make_unique<PlannedBackend>(std::move(capabilities), std::move(workspace));
}

}  // namespace annulus
