#ifndef ANNULUS_ENGINE_BASE_PROGRAM_ID_H_
#define ANNULUS_ENGINE_BASE_PROGRAM_ID_H_

#include <string>

namespace annulus {

// Identifies the code of this process: the build id that the linker put into the program, in
// hexadecimal. Two builds that differ in any instruction have different ids, so results that one of
// them stored are never taken for results of the other. If the program has no build id: a random
// one for this process alone.
const std::string& ProgramId();

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_PROGRAM_ID_H_
