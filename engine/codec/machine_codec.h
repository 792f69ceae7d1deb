#ifndef ANNULUS_ENGINE_CODEC_MACHINE_CODEC_H_
#define ANNULUS_ENGINE_CODEC_MACHINE_CODEC_H_

#include "absl/status/statusor.h"
#include "annulus/internal/v1/step.pb.h"
#include "engine/grammar/machine.h"

// The machines of output constraints as messages. Only for engine/codec.

namespace annulus::codec {

internal::v1::Machine MachineMessage(const Machine& machine);

// INVALID_ARGUMENT unless every number names something that the machine has.
absl::StatusOr<Machine> ReadMachine(const internal::v1::Machine& message);

}  // namespace annulus::codec

#endif  // ANNULUS_ENGINE_CODEC_MACHINE_CODEC_H_
