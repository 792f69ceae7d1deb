#ifndef ANNULUS_ENGINE_GRAMMAR_COMPILER_FINISH_MACHINE_H_
#define ANNULUS_ENGINE_GRAMMAR_COMPILER_FINISH_MACHINE_H_

#include <bitset>

#include "absl/status/status.h"
#include "engine/base/work_meter.h"
#include "engine/grammar/machine.h"

namespace annulus {

// Completes a machine that a MachineBuilder has made:
// - removes edges for bytes that are not in `bytes`, and then all from where no end can be reached;
// - sets class_of, samples and takes_plain.
// INVALID_ARGUMENT if a literal needs another byte, if no text is accepted, if some node can be
// read in more than kMaxReadings ways, or if the steps are used up.
absl::Status FinishMachine(const std::bitset<256>& bytes, WorkMeter* work, Machine* machine);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GRAMMAR_COMPILER_FINISH_MACHINE_H_
