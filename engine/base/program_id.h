#ifndef ANNULUS_ENGINE_BASE_PROGRAM_ID_H_
#define ANNULUS_ENGINE_BASE_PROGRAM_ID_H_

#include <string>

namespace annulus {

// Names the code of this process: the build id that the linker put into the program, in
// hexadecimal. Two builds that differ in any instruction differ in it, so what one of them computed
// is never taken for what another one would compute. Without a build id: a random one for this
// process alone.
const std::string& ProgramId();

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_PROGRAM_ID_H_
