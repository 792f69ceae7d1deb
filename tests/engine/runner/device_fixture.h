#ifndef ANNULUS_TESTS_ENGINE_RUNNER_DEVICE_FIXTURE_H_
#define ANNULUS_TESTS_ENGINE_RUNNER_DEVICE_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/api.h"
#include "engine/model/files/model_directory.h"
#include "engine/model/files/safetensors.h"
#include "kernels/base/sanitizers.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/support/golden.h"
#include "tests/support/step_driver.h"
#include "tests/support/test_data.h"
#include "tests/support/thinned.h"

namespace annulus::testing {

// What the tests run on, chosen by the linker. emulated_devices.cc: GPUs whose memory cannot be
// touched but by their own kernels and by copies, and whose streams do nothing before somebody
// waits for it. gpu_devices.cc: the GPUs of the machine.
//
// The first so many as one backend; an error where the machine has none.
absl::StatusOr<std::unique_ptr<Backend>> OpenDevices(int devices,
                                                     const CudaBackendOptions& options = {});
// After the backend has gone.
void CloseDevices();
// Lets the host touch the devices' memory, which it may not after OpenDevices: forbidding and
// allowing it takes most of the time of many small steps. Nothing on the GPUs of the machine.
void AllowHostAccess();
// Whether an address is of a device's memory.
bool IsDeviceMemory(const void* address);
// Graphs that have been run since the start of the process; absent where nobody counts.
std::optional<int64_t> GraphRuns();
// The rings worth trying on one device.
std::vector<int> RingSizes();

class DeviceTest : public ::testing::Test {
 protected:
  explicit DeviceTest(int devices = 1) {
    UseDevices(devices);
    RegisterCudaKernels(registry_);
  }
  void SetUp() override {
    if (backend_ == nullptr) GTEST_SKIP() << missing_.message();
    const int found = backend_->capabilities().devices;
    if (found < wanted_)
      GTEST_SKIP() << "needs " << wanted_ << " devices of one kind, not " << found;
  }
  ~DeviceTest() override {
    backend_.reset();
    CloseDevices();
  }

  void UseDevices(int devices, const CudaBackendOptions& options = {}) {
    absl::StatusOr<std::unique_ptr<Backend>> backend = OpenDevices(devices, options);
    missing_ = backend.status();
    wanted_ = devices;
    if (backend.ok()) backend_ = *std::move(backend);
  }

  const OpTable& ops() const { return *registry_.Available("cuda").front(); }
  // Null if these devices cannot run it.
  const OpTable* Find(const std::string& name) const {
    for (const OpTable* table : registry_.Available("cuda")) {
      if (table->name == name) return table;
    }
    return nullptr;
  }

  RankModel Load(const std::string& name, DType dtype, Backend& backend, const OpTable& ops) const {
    const std::string directory = TestFile("golden/" + name).string();
    const ModelConfig config = LoadModelConfig(directory).value();
    const auto tensors = SafetensorsCheckpoint::Open(directory).value();
    return MakeRankModel(config, LoadWeights(config, *tensors, backend, ops, dtype).value(), ops,
                         16, dtype);
  }
  // On every device.
  RankModel Load(const std::string& name, DType dtype = DType::kF32) const {
    RankModel model = Load(name, dtype, *backend_, ops());
    for (int device = 1; device < backend_->capabilities().devices; ++device) {
      RankModel copy = Load(name, dtype, backend_->OnDevice(device), ops());
      model.further_weights.push_back(std::move(copy.weights));
    }
    return model;
  }

  std::unique_ptr<Backend> backend_;
  absl::Status missing_;
  int wanted_ = 1;  // devices
  KernelRegistry registry_;
};

// Half of them; under sanitizers, which make the emulation several times slower, one.
inline std::vector<std::string> Some(const std::vector<std::string>& names) {
  return Thinned(names, kSanitized ? 1 : (names.size() + 1) / 2);
}

// Largest difference of any logit over the largest magnitude.
inline double Difference(const DriverResult& result, const Golden& golden) {
  double worst = 0;
  double scale = 0;
  for (const auto& [position, logits] : result.logits) {
    for (int v = 0; v < golden.vocabulary; ++v) {
      const double expected = golden.logits[static_cast<size_t>(position) * golden.vocabulary + v];
      worst = std::max(worst, std::abs(logits[v] - expected));
      scale = std::max(scale, std::abs(expected));
    }
  }
  return worst / scale;
}

// Of the recall model: the answer is 0417.
inline RequestSpec GateQuestion(const Engine& engine) {
  RequestSpec spec;
  spec.prompt = engine
                    .Tokenize(
                        "The heron's gate opens at 0417. Nobody in the valley knows why. "
                        "The heron's gate opens at ",
                        true, CancelFlag::Never())
                    .value();
  spec.sampling.temperature = 0;
  spec.sampling.max_tokens = 4;
  return spec;
}

inline DriverOptions AllLogits(int ranks, RingMode mode) {
  DriverOptions options;
  options.ranks = ranks;
  options.mode = mode;
  options.prefill_rows = 32;
  options.all_logits = true;
  options.kv_bytes = size_t{8} << 20;
  return options;
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_RUNNER_DEVICE_FIXTURE_H_
