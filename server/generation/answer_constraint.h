#ifndef ANNULUS_SERVER_GENERATION_ANSWER_CONSTRAINT_H_
#define ANNULUS_SERVER_GENERATION_ANSWER_CONSTRAINT_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "annulus/v1/inference.pb.h"
#include "engine/api.h"
#include "server/work/call_memory.h"

namespace annulus::server {

// Applies what the request says of its tools to how its answer is read. INVALID_ARGUMENT, with the
// field, for what the model's family or the tools do not allow.
absl::Status ReadToolChoice(const v1::GenerationSpec& spec, AnswerReading& reading);

// Compiles what the answer must look like: its form, and the calls in it; nothing if it may be
// anything. `built`: the prompt, and how its answer is read. Holds what it takes as kWork, beside
// the prompt. INVALID_ARGUMENT with the field; errors of CallMemory::Hold; CANCELLED.
absl::StatusOr<CompiledOutput> CompileOutput(const v1::GenerationSpec& spec, const Engine& engine,
                                             const RequestSpec& built, CallMemory& memory,
                                             const CancelFlag& cancel);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GENERATION_ANSWER_CONSTRAINT_H_
